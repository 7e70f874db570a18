"""From observations and places to tokens.

A token says what is known at a place: `z`. In a translation-equivariant model it also lies somewhere, `x`, and
attention sees only differences of `x`; in a plain model the place is part of `z`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from shiftnp.geometry import Geometry
from shiftnp.nn.mlp import MLP
from shiftnp.nn.spectrum import Lines


class Context(NamedTuple):
    """A checked context set. `y` holds 0 where `observed` is 0; `mask` None says that every point is there."""

    x: Float[Tensor, "b n dx"]
    y: Float[Tensor, "b n dy"]
    observed: Float[Tensor, "b n dy"]
    mask: Bool[Tensor, "b n"] | None

    @property
    def is_there(self) -> Bool[Tensor, "b n"]:
        if self.mask is None:
            return torch.ones(self.x.shape[:2], dtype=torch.bool, device=self.x.device)
        return self.mask


class Tokens(NamedTuple):
    """A set of tokens, one row a token.

    A token lies at `x + moved`: a place among the inputs, in their dtype, and how far it has gone from there (eqs. 8
    and 9; None: nowhere), in the dtype of the weights. They are kept apart because `x` may be large where differences
    are small. `x` is None in plain models.

    Where a model uses the spectrum of the data set, `lines` are what is known of it, and `likeness` are scores of a
    token with every context token that come from it.
    """

    z: Float[Tensor, "b n dz"]
    x: Float[Tensor, "b n dx"] | None = None
    moved: Float[Tensor, "b n dx"] | None = None
    mask: Bool[Tensor, "b n"] | None = None
    lines: Lines | None = None
    likeness: tuple[Float[Tensor, "b n nc"], ...] = ()


def displacement(geometry: Geometry, q: Tokens, k: Tokens) -> Float[Tensor, "b nq nk dx"]:
    """`x_q - x_k` where the tokens are now, in the dtype of their values."""
    assert q.x is not None
    assert k.x is not None
    return geometry.between(q.x, k.x, q.moved, k.moved, torch.promote_types(q.z.dtype, torch.float32))


class PlainTokens(nn.Module):
    """Tokens of a plain model: one MLP of `(x, y, observed)`; at targets `y` and `observed` are zero."""

    def __init__(self, dx: int, dy: int, dz: int) -> None:
        super().__init__()
        self.dy = dy
        self.encoder = MLP(dx + 2 * dy, dz, dz)

    def context(self, c: Context) -> Tokens:
        return Tokens(self.encoder(torch.cat([c.x.to(c.y.dtype), c.y, c.observed], -1)), mask=c.mask)

    def targets(self, xt: Float[Tensor, "b nt dx"]) -> Tokens:
        xt = xt.to(self.encoder.dtype)
        return Tokens(self.encoder(torch.cat([xt, xt.new_zeros(*xt.shape[:2], 2 * self.dy)], -1)))


class RelativeTokens(nn.Module):
    """Tokens of a translation-equivariant model: what is observed goes into `z`, where it is into `x`.

    Args:
        period, radius: see `Geometry`; one period for each input, or for each equivariant one.
        equivariant: which input dimensions are locations (None: all). The others are covariates and join `z`.
        target_token: "learned": one vector, drawn from a standard normal at first (the paper), to which an MLP of
            the covariates is added if there are any; "encoded": the context's MLP applied to "nothing observed"
            (the authors' code).
    """

    def __init__(
        self,
        dx: int,
        dy: int,
        dz: int,
        period: float | Sequence[float | None] | None = None,
        radius: float | None = None,
        equivariant: Sequence[int] | None = None,
        target_token: str = "learned",
    ) -> None:
        super().__init__()
        places = list(range(dx)) if equivariant is None else list(equivariant)
        if not places or len(set(places)) < len(places) or not set(places) <= set(range(dx)):
            raise ValueError(f"equivariant must name some of the inputs 0 to {dx - 1}, each once, got {equivariant}.")
        if isinstance(period, Sequence) and len(period) == dx:
            period = [period[i] for i in places]
        if target_token not in ("learned", "encoded"):
            raise ValueError(f'target_token must be "learned" or "encoded", got {target_token!r}.')
        self.dy, self.places = dy, places
        self.geometry = Geometry.of(len(places), period, radius)
        self.covariates = [i for i in range(dx) if i not in places]
        self.encoder = MLP(len(self.covariates) + 2 * dy, dz, dz)
        self.target = nn.Parameter(torch.randn(dz)) if target_token == "learned" else None
        self.target_covariates = (
            MLP(len(self.covariates), dz, dz) if self.covariates and target_token == "learned" else None
        )

    def context(self, c: Context) -> Tokens:
        z = self.encoder(torch.cat([c.x[..., self.covariates].to(c.y.dtype), c.y, c.observed], -1))
        return Tokens(z, c.x[..., self.places], mask=c.mask)

    def targets(self, xt: Float[Tensor, "b nt dx"]) -> Tokens:
        covariates = xt[..., self.covariates].to(self.encoder.dtype)
        if self.target is None:
            z = self.encoder(torch.cat([covariates, covariates.new_zeros(*xt.shape[:2], 2 * self.dy)], -1))
        else:
            z = self.target.expand(*xt.shape[:2], -1)
            if self.target_covariates is not None:
                z = z + self.target_covariates(covariates)
        return Tokens(z, xt[..., self.places])
