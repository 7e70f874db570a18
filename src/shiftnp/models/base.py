"""The contract that every model keeps: `model(xc, yc, xt, mask) -> Distribution`."""

from __future__ import annotations

import functools
import inspect
import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Distribution

from shiftnp import prediction
from shiftnp.likelihoods import draw, make_likelihood
from shiftnp.nn.mlp import MLP
from shiftnp.nn.tokens import Context
from shiftnp.prediction import Array, Prediction

# Smallest sensible value of every size that some model takes.
LEAST = {
    **dict.fromkeys(
        ("dx", "dy", "dz", "heads", "head_dim", "layers", "pseudo", "channels", "kernel_size", "frequencies"), 1
    ),
    **dict.fromkeys(("components", "hidden", "ff_layers", "spectrum"), 0),
}


class Encoded(NamedTuple):
    """What `encode` returns: what a model remembers of the contexts of `tasks` data sets."""

    memory: Any
    tasks: int


class NeuralProcess(nn.Module, ABC):
    """A map from a context set and target inputs to a predictive distribution.

    A model says how it embeds a context and how a target then reads it; checks, decoder, likelihood and sampling are
    here. `model.config` holds the arguments it was made with.

    Args:
        dx, dy: number of inputs and outputs.
        d_embed: size of what `embed_targets` returns.
        width: width of the decoder's two hidden layers.
        likelihood: "heteroscedastic", "homoscedastic" or "mixture" (of `components` Gaussians).
        variance_floor: added to every variance.
    """

    config: dict[str, Any]
    is_equivariant = False
    """Whether a shift of all inputs leaves predictions unchanged."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Checks the sizes and records the arguments of every model, which is what a run folder rebuilds it from."""
        super().__init_subclass__(**kwargs)
        init, signature = cls.__init__, inspect.signature(cls.__init__)

        @functools.wraps(init)
        def recording(self: NeuralProcess, *args: Any, **kwargs: Any) -> None:
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            config = {k: v for k, v in bound.arguments.items() if k != "self"}
            for name, size in config.items():
                if name in LEAST and size is not None and not (isinstance(size, int) and size >= LEAST[name]):
                    raise ValueError(f"{name} must be a whole number of at least {LEAST[name]}, got {size!r}.")
            init(self, *args, **kwargs)
            self.config = config

        cls.__init__ = recording  # type: ignore[method-assign]

    def __init__(
        self,
        dx: int,
        dy: int,
        d_embed: int,
        width: int,
        likelihood: str,
        components: int,
        variance_floor: float,
    ) -> None:
        super().__init__()
        self.dx, self.dy = dx, dy
        self.likelihood = make_likelihood(likelihood, dy, variance_floor, components)
        self.decoder = MLP(d_embed, self.likelihood.d_in, width)

    # --- what a model has to say ---------------------------------------------------------------------------------

    @abstractmethod
    def embed_context(self, c: Context) -> Any:
        """Everything about the context that targets need, computed once."""

    @abstractmethod
    def embed_targets(self, memory: Any, xt: Float[Tensor, "b nt dx"]) -> Float[Tensor, "b nt d"]:
        """What each target reads from the memory, independently of all other targets."""

    @property
    def receptive_field(self) -> float:
        """Distance beyond which a context point has no influence on a target."""
        return math.inf

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the weights."""
        return self.decoder.dtype

    # --- what a user calls ---------------------------------------------------------------------------------------

    def forward(self, xc: Tensor, yc: Tensor, xt: Tensor, mask: Tensor | None = None) -> Distribution:
        """Predicts at the targets.

        Args:
            xc: context inputs `[b, nc, dx]`; `nc` may be 0.
            yc: context outputs `[b, nc, dy]`; NaN where a channel was not observed.
            xt: target inputs `[b, nt, dx]`.
            mask: `[b, nc]`, True = this context point is there. None: all are.

        Returns:
            a distribution of batch shape `[b, nt]` and event shape `[dy]`.
        """
        self._check_targets(xt)
        return self.decode(self.encode(xc, yc, mask), xt)

    def encode(self, xc: Tensor, yc: Tensor, mask: Tensor | None = None) -> Encoded:
        """The first half of `forward`: reads the context once, for any number of calls to `decode`."""
        return Encoded(self.embed_context(self._check_context(xc, yc, mask)), len(xc))

    def decode(self, encoded: Encoded, xt: Tensor) -> Distribution:
        """The second half of `forward`: predicts at targets from an encoded context."""
        self._check_targets(xt, encoded.tasks)
        raw = self.decoder(self.embed_targets(encoded.memory, xt))
        # Under autocast the network may end in bfloat16, which is too coarse for a variance.
        return self.likelihood(raw.to(torch.promote_types(raw.dtype, torch.float32)))

    def predict(
        self,
        xc: Array,
        yc: Array,
        xt: Array,
        chunk: int | None = None,
        out: tuple[Array, Array] | None = None,
        mask: Array | None = None,
        progress: bool = False,
    ) -> Prediction:
        """Mean and standard deviation at any number of targets, without gradients and in bounded memory.

        The context is encoded once, also for further calls with the same context and weights; targets go through the
        model in chunks. Takes torch tensors or numpy arrays, of one data set (`[n, dx]`) or several (`[b, n, dx]`).

        Args:
            xc, yc, xt, mask: as in `forward`. An `xt` on disk (`numpy.memmap`) is read chunk by chunk.
            chunk: targets of each data set that go through the model at once. None: as many as a few hundred
                megabytes allow, which depends on the number of keys that a target looks at (context points,
                pseudo-tokens, or neighbours within a radius).
            out: arrays `(mean, std)` to write to, tensors, numpy arrays or memmaps of shape `[nt, dy]` or
                `[b, nt, dy]`. None: new ones in memory, of the kind that `xt` is.
            progress: whether to show a bar with the time left.

        Returns:
            `(mean, std)`, in `out` if it was given.
        """
        return prediction.predict(self, xc, yc, xt, chunk, out, mask, progress)

    @torch.no_grad()
    def sample(
        self,
        xc: Tensor,
        yc: Tensor,
        xt: Tensor,
        n: int = 1,
        generator: torch.Generator | None = None,
        mask: Tensor | None = None,
        block: int = 1,
        chunk: int = 64,
    ) -> Float[Tensor, "n b nt dy"]:
        """Draws `n` coherent functions, noise included, at the targets.

        Predictions at two targets are independent given the context, so joint samples come autoregressively: targets
        are visited in random order (a new one for every function), and each drawn value joins the context of the next.

        Args:
            generator: decides the draws, together with `chunk`. None: torch's global generator.
            block: targets drawn at once before they join the context. 1 is exact; more is faster and a little less
                coherent.
            chunk: functions that go through the model at once; bounds memory.
        """
        if n < 1 or block < 1 or chunk < 1:
            raise ValueError(f"n, block and chunk must be at least 1, got {n}, {block} and {chunk}.")
        self._check_context(xc, yc, mask)
        self._check_targets(xt, len(xc))
        b, nt = xt.shape[:2]
        xc = xc.to(torch.promote_types(xc.dtype, xt.dtype))
        if mask is None:
            mask = torch.ones(xc.shape[:2], dtype=torch.bool, device=xc.device)
        rows = torch.arange(b, device=xt.device).repeat(n)
        functions = [self._sample_rows(xc[r], yc[r], xt[r], mask[r], generator, block) for r in rows.split(chunk)]
        return torch.cat(functions).view(n, b, nt, self.dy)

    def _sample_rows(
        self, xc: Tensor, yc: Tensor, xt: Tensor, mask: Tensor, generator: torch.Generator | None, block: int
    ) -> Tensor:
        order = torch.rand(xt.shape[:2], generator=generator, device=xt.device).argsort(1)
        yt = torch.empty(*xt.shape[:2], self.dy, dtype=self.dtype, device=xt.device)
        yc = yc.to(self.dtype)
        for visit in order.split(block, dim=1):
            where = visit[..., None]
            x = xt.take_along_dim(where, 1)
            y = draw(self(xc, yc, x, mask), generator).to(self.dtype)
            yt.scatter_(1, where.expand_as(y), y)
            xc, yc = torch.cat([xc, x.to(xc.dtype)], 1), torch.cat([yc, y], 1)
            mask = torch.cat([mask, torch.ones_like(visit, dtype=torch.bool)], 1)
        return yt

    # --- checks: one sentence that names the argument --------------------------------------------------------------

    def _check_form(self, name: str, x: Tensor) -> None:
        """Refuses inputs of a wrong kind or shape."""
        if not isinstance(x, Tensor) or not x.is_floating_point():
            kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"{name} must be a floating-point torch.Tensor, got {kind}; convert it first.")
        if x.ndim != 3 or x.shape[-1] != self.dx:
            points = "nt" if name == "xt" else "nc"
            raise ValueError(
                f"{name} must have shape [b, {points}, dx] with dx = {self.dx} inputs, got {tuple(x.shape)}."
            )

    def _check_inputs(self, name: str, x: Tensor, there: Tensor | None = None) -> None:
        """Refuses inputs of a wrong kind, shape or value (where `there`)."""
        self._check_form(name, x)
        finite = x.isfinite().all(-1)
        if not (finite if there is None else finite | ~there).all():
            remedy = "drop those points" if name == "xt" else "drop those points or mask them out"
            raise ValueError(f"{name} holds NaN or inf: {remedy} before predicting.")

    def _check_targets(self, xt: Tensor, tasks: int | None = None) -> None:
        self._check_inputs("xt", xt)
        if tasks is not None and len(xt) != tasks:
            raise ValueError(f"xt must hold as many tasks as the context ({tasks}), got {len(xt)}.")

    def _check_context(self, xc: Tensor, yc: Tensor, mask: Tensor | None) -> Context:
        """Refuses a bad context; makes of a good one a Context without NaN, padding rubbish or zero-size tensors."""
        if mask is not None:
            self._check_form("xc", xc)
            if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
                kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
                raise ValueError(f"mask must be a boolean torch.Tensor, True = this point is there, got {kind}.")
            if mask.shape != xc.shape[:2]:
                raise ValueError(f"mask must have shape [b, nc] = {tuple(xc.shape[:2])}, got {tuple(mask.shape)}.")
        self._check_inputs("xc", xc, mask)
        if not isinstance(yc, Tensor) or not yc.is_floating_point():
            kind = yc.dtype if isinstance(yc, Tensor) else type(yc).__name__
            raise ValueError(f"yc must be a floating-point torch.Tensor, got {kind}; convert it first.")
        if yc.shape != (*xc.shape[:2], self.dy):
            expected = (*xc.shape[:2], self.dy)
            raise ValueError(f"yc must have shape [b, nc, dy] = {expected}, got {tuple(yc.shape)}.")
        there = torch.ones(xc.shape[:2], dtype=torch.bool, device=xc.device) if mask is None else mask
        if (yc.isinf() & there[..., None]).any():
            raise ValueError("yc holds inf: use NaN for a value that was not observed.")
        observed = ~yc.isnan() & there[..., None]
        there = observed.any(-1)
        if xc.shape[1] == 0:  # one point that is not there, so that no model has to deal with tensors of size zero
            xc, yc, observed, there = (t.new_zeros(t.shape[0], 1, *t.shape[2:]) for t in (xc, yc, observed, there))
        if not there.all():  # padding goes where the data are, so that no difference of places can grow large
            corner = xc.where(there[..., None], math.inf).amin(1, keepdim=True)
            xc = xc.where(there[..., None], corner.where(corner.isfinite(), 0.0))
        return Context(
            x=xc,
            y=yc.where(observed, 0.0).to(self.dtype),
            observed=observed.to(self.dtype),
            mask=None if there.all() else there,
        )

    def extra_repr(self) -> str:
        return ", ".join(f"{k}={v!r}" for k, v in self.config.items())

    def __repr__(self) -> str:
        count = sum(p.numel() for p in self.parameters())
        return f"{type(self).__name__}({self.extra_repr()})  # {count:,} parameters"
