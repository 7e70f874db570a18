"""Tokens: embeddings of context points and targets.

A token has an embedding `z` of one context point or target. In a translation-equivariant model it also has a position
`x`, which attention uses through displacements only; in a plain model the input is part of `z`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from shiftnp.geometry import Geometry, Positions
from shiftnp.nn.mlp import MLP


class Context(NamedTuple):
    """A validated context set. `y` is 0 where `observed` is 0; `mask` is False at padding (None: no padding)."""

    x: Float[Tensor, "b n dx"]
    y: Float[Tensor, "b n dy"]
    observed: Float[Tensor, "b n dy"]
    mask: Bool[Tensor, "b n"] | None

    @property
    def present(self) -> Bool[Tensor, "b n"]:
        """The mask as a tensor: all True if it is None."""
        if self.mask is None:
            return torch.ones(self.x.shape[:2], dtype=torch.bool, device=self.x.device)
        return self.mask


class Tokens(NamedTuple):
    """A set of tokens, one row a token.

    Attributes:
        z: embeddings.
        x, offset: positions `x + offset`, see `Positions`; `x` is None in plain models.
        mask: False at padding (None: no padding).
        summary: summary of the data set by the kernel's `ContextHook`; its type depends on the kernel.
    """

    z: Float[Tensor, "b n dz"]
    x: Float[Tensor, "b n dx"] | None = None
    offset: Float[Tensor, "b n dx"] | None = None
    mask: Bool[Tensor, "b n"] | None = None
    summary: Any = None

    @property
    def positions(self) -> Positions:
        """Positions of the tokens of an equivariant model."""
        assert self.x is not None
        return Positions(self.x, self.offset)

    def take(self, rows: slice | Int[Tensor, " some"]) -> Tokens:
        """Some of these tokens, the same in every task."""
        z, x, offset, mask = (None if t is None else t[:, rows] for t in (self.z, self.x, self.offset, self.mask))
        assert z is not None
        return self._replace(z=z, x=x, offset=offset, mask=mask)

    def join(self, new: Tokens) -> Tokens:
        """These tokens and then others; without a location update so far, the offset of the others is zero."""
        mask = None
        if self.mask is not None or new.mask is not None:
            parts = (t.z.new_ones(t.z.shape[:2], dtype=torch.bool) if t.mask is None else t.mask for t in (self, new))
            mask = torch.cat([*parts], 1)
        offset = self.offset
        if offset is not None:
            later = offset.new_zeros(*new.z.shape[:2], offset.shape[-1]) if new.offset is None else new.offset
            offset = torch.cat([offset, later], 1)
        x = None if self.x is None else torch.cat([self.x, new.positions.x], 1)
        return self._replace(z=torch.cat([self.z, new.z], 1), x=x, offset=offset, mask=mask)


class PlainTokens(nn.Module):
    """Token encoder of a plain model: one MLP of `(x, y, observed)`; at targets `y` and `observed` are zero."""

    def __init__(self, dx: int, dy: int, dz: int) -> None:
        super().__init__()
        self.dy = dy
        self.encoder = MLP(dx + 2 * dy, dz, dz)

    def context(self, c: Context) -> Tokens:
        """Tokens of context points."""
        return Tokens(self.encoder(torch.cat([c.x.to(c.y.dtype), c.y, c.observed], -1)), mask=c.mask)

    def targets(self, xt: Float[Tensor, "b nt dx"]) -> Tokens:
        """Tokens of targets."""
        xt = xt.to(self.encoder.dtype)
        return Tokens(self.encoder(torch.cat([xt, xt.new_zeros(*xt.shape[:2], 2 * self.dy)], -1)))


class RelativeTokens(nn.Module):
    """Token encoder of a translation-equivariant model: observations go into `z`, locations into `x`.

    Args:
        period, radius: see `Geometry`; one period for each input, or for each equivariant one.
        equivariant: which input dimensions are locations (None: all). The others are covariates and are part of `z`.
        target_token: "learned": one vector, initialised from a standard normal (the paper), to which an MLP of the
            covariates is added if there are any; "encoded": the context's MLP with `y` and `observed` zero (the
            authors' code).
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
        locations = list(range(dx)) if equivariant is None else list(equivariant)
        if not locations or len(set(locations)) < len(locations) or not set(locations) <= set(range(dx)):
            raise ValueError(f"equivariant must name some of the inputs 0 to {dx - 1}, each once, got {equivariant}.")
        if isinstance(period, Sequence) and len(period) == dx:
            period = [period[i] for i in locations]
        if target_token not in ("learned", "encoded"):
            raise ValueError(f'target_token must be "learned" or "encoded", got {target_token!r}.')
        self.dy, self.locations = dy, locations
        self.geometry = Geometry.of(len(locations), period, radius)
        self.covariates = [i for i in range(dx) if i not in locations]
        self.encoder = MLP(len(self.covariates) + 2 * dy, dz, dz)
        self.target = nn.Parameter(torch.randn(dz)) if target_token == "learned" else None
        self.target_covariates = (
            MLP(len(self.covariates), dz, dz) if self.covariates and target_token == "learned" else None
        )

    def context(self, c: Context) -> Tokens:
        """Tokens of context points."""
        z = self.encoder(torch.cat([c.x[..., self.covariates].to(c.y.dtype), c.y, c.observed], -1))
        return Tokens(z, c.x[..., self.locations], mask=c.mask)

    def targets(self, xt: Float[Tensor, "b nt dx"]) -> Tokens:
        """Tokens of targets."""
        covariates = xt[..., self.covariates].to(self.encoder.dtype)
        if self.target is None:
            z = self.encoder(torch.cat([covariates, covariates.new_zeros(*xt.shape[:2], 2 * self.dy)], -1))
        else:
            z = self.target.expand(*xt.shape[:2], -1)
            if self.target_covariates is not None:
                z = z + self.target_covariates(covariates)
        return Tokens(z, xt[..., self.locations])

    def difference(self, a: Float[Tensor, "b n dx"], b: Float[Tensor, " b #n dx"]) -> Float[Tensor, "b n dx"]:
        """`a - b`, with locations wrapped along periodic inputs."""
        d = a - b
        d[..., self.locations] = self.geometry.wrap(d[..., self.locations])
        return d
