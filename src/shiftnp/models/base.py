"""The base class of all models and their interface: `model(xc, yc, xt, mask) -> Distribution`."""

from __future__ import annotations

import functools
import inspect
import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.distributions import Distribution

from shiftnp.kernels import Kernel, make_kernel
from shiftnp.likelihoods import draw, make_likelihood
from shiftnp.models import prediction, sampling
from shiftnp.models.encoded import Encoded
from shiftnp.models.inputs import check_context, check_points, check_targets, drop_mask, make_context
from shiftnp.models.prediction import Array, Prediction
from shiftnp.nn.mlp import MLP
from shiftnp.nn.tokens import Context

MAY_BE_ZERO = ("components", "hidden", "ff_layers")
"""Integer arguments of models that may be zero; all others are at least one."""


class NeuralProcess(nn.Module, ABC):
    """A map from a context set and target inputs to a predictive distribution.

    A subclass defines how the context is embedded and how targets are embedded given the context; checks, decoder,
    likelihood and sampling are here. `model.config` holds the constructor's arguments as plain data.

    Args:
        dx, dy: number of inputs and outputs.
        d_embed: number of channels of the embeddings that `embed_targets` returns.
        width: width of the decoder's two hidden layers.
        likelihood: "heteroscedastic", "homoscedastic" or "mixture" (of `components` Gaussians).
        variance_floor: added to every variance.
    """

    config: dict[str, Any]
    is_equivariant = False
    """Whether a shift of all inputs leaves predictions unchanged."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Wraps the constructor of every model: checks its sizes and records its arguments in `config`, from which
        checkpoints are loaded."""
        super().__init_subclass__(**kwargs)
        init, signature = cls.__init__, inspect.signature(cls.__init__)

        @functools.wraps(init)
        def recording(self: NeuralProcess, *args: Any, **kwargs: Any) -> None:
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            for name, value in bound.arguments.items():
                if name == "kernel":
                    bound.arguments[name] = make_kernel(value)
            config = {k: v for k, v in bound.arguments.items() if k != "self"}
            for name, size in config.items():
                least = 0 if name in MAY_BE_ZERO else 1
                if signature.parameters[name].annotation not in ("int", "int | None", int) or size is None:
                    continue
                if not isinstance(size, int) or isinstance(size, bool) or size < least:
                    raise ValueError(f"{name} must be a whole number of at least {least}, got {size!r}.")
            init(*bound.args, **bound.kwargs)
            self.config = {k: v.to_json() if isinstance(v, Kernel) else v for k, v in config.items()}

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

    # --- what a model implements ---------------------------------------------------------------------------------

    @abstractmethod
    def embed_context(self, c: Context) -> Any:
        """Encodes the context, once for any number of targets, into a memory of any type.

        `predict` chooses the size of its chunks by the memory's attribute `keys_per_target`, the number of tokens that
        a target attends to, if it has one, else by the number of context points.
        """

    @abstractmethod
    def embed_targets(self, memory: Any, xt: Float[Tensor, "b nt dx"]) -> Float[Tensor, "b nt d"]:
        """Embeds each target given the memory, independently of all other targets."""

    def target_order(self, memory: Any, xt: Float[Tensor, "1 nt dx"]) -> Int[Tensor, " nt"] | None:
        """The permutation of targets with which `predict` is fastest, neighbours next to each other; None: any."""
        return None

    def extend_memory(self, memory: Any, new: Context) -> Any | None:
        """The memory of a context with more points, if that takes less than encoding all of it again; else None."""
        return None

    def difference(self, a: Float[Tensor, "b n dx"], b: Float[Tensor, " b #n dx"]) -> Float[Tensor, "b n dx"]:
        """`a - b`, wrapped along periodic inputs."""
        return a - b

    @property
    def absolute_inputs(self) -> list[int]:
        """Inputs in which predictions are not translation equivariant."""
        return [] if self.is_equivariant else list(range(self.dx))

    @property
    def receptive_field(self) -> float:
        """Distance beyond which a context point has no influence on a target."""
        return math.inf

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the weights."""
        return self.decoder.dtype

    # --- public interface ----------------------------------------------------------------------------------------

    def forward(self, xc: Tensor, yc: Tensor, xt: Tensor, mask: Tensor | None = None) -> Distribution:
        """Predicts at the targets.

        Args:
            xc: context inputs `[b, nc, dx]`; `nc` may be 0.
            yc: context outputs `[b, nc, dy]`; NaN where a channel was not observed.
            xt: target inputs `[b, nt, dx]`.
            mask: `[b, nc]`, True for context points, False for padding. None: no padding.

        Returns:
            a distribution of batch shape `[b, nt]` and event shape `[dy]`.
        """
        self.check(xc, yc, xt, mask)
        return self.distribution(self.context(xc, yc, mask), xt)

    def encode(self, xc: Tensor, yc: Tensor, mask: Tensor | None = None) -> Encoded:
        """The first half of `forward`: encodes the context once, for any number of calls to `decode` and `predict`.

        `encoded.update(x, y)` adds observations. Use `torch.no_grad()` unless you need gradients.
        """
        check_context(xc, yc, mask, self.dx, self.dy, self.absolute_inputs)
        encoded = Encoded(self, xc, yc, mask)
        _ = encoded.memory
        return encoded

    def decode(self, encoded: Encoded, xt: Tensor) -> Distribution:
        """The second half of `forward`: predicts at targets from an encoded context."""
        check_targets(xt, self.dx, self.absolute_inputs, encoded.tasks)
        return self.likelihood(self._decode(encoded.memory, xt))

    def check(self, xc: Tensor, yc: Tensor, xt: Tensor, mask: Tensor | None = None) -> None:
        """Validates the arguments of `forward`; raises a ValueError that names the invalid one."""
        check_points("xt", xt, self.dx)
        check_context(xc, yc, mask, self.dx, self.dy, self.absolute_inputs)
        check_targets(xt, self.dx, self.absolute_inputs, len(xc))

    def distribution(self, c: Context, xt: Float[Tensor, "b nt dx"]) -> Distribution:
        """`forward` without input validation: its control flow depends on shapes only, so that `shiftnp.export` can
        trace it."""
        return self.likelihood(self._decode(self.embed_context(c), xt))

    def _decode(self, memory: Any, xt: Float[Tensor, "b nt dx"]) -> Float[Tensor, "b nt d"]:
        raw = self.decoder(self.embed_targets(memory, xt))
        # Under autocast the decoder's output may be bfloat16, which is too coarse for a variance.
        return raw.to(torch.promote_types(raw.dtype, torch.float32))

    def context(self, xc: Tensor, yc: Tensor, mask: Tensor | None = None) -> Context:
        """A valid context as `embed_context` takes it."""
        return drop_mask(make_context(xc, yc, mask, self.dtype))

    def predict(
        self,
        xc: Array | Encoded,
        yc: Array | None = None,
        xt: Array | None = None,
        chunk: int | None = None,
        out: tuple[Array, Array] | None = None,
        mask: Array | None = None,
        progress: bool = False,
    ) -> Prediction:
        """Mean and standard deviation at any number of targets, without gradients and in bounded memory.

        The context is encoded once, and targets are processed in chunks. `model.predict(encoded, xt=xt)` predicts from
        a context that `encode` returned, without encoding it again. Takes torch tensors or numpy arrays, of one data
        set (`[n, dx]`) or several (`[b, n, dx]`).

        Args:
            xc, yc, xt, mask: as in `forward`; or an encoded context as `xc`, without `yc` and `mask`. An `xt` on disk
                (`numpy.memmap`) is read chunk by chunk.
            chunk: targets of each data set in a chunk. None: as many as a few hundred megabytes allow, which depends on
                the number of keys that a target attends to (context points, pseudo-tokens, or neighbours within a
                radius).
            out: arrays `(mean, std)` to write to, tensors, numpy arrays or memmaps of shape `[nt, dy]` or
                `[b, nt, dy]`. None: new arrays in memory, of the same type as `xt`.
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
        steps: int | None = None,
        chunk: int | None = None,
    ) -> Float[Tensor, "n b nt dy"]:
        """Autoregressive joint samples of `n` functions at the targets, noise included (AR-CNP; Bruinsma et al., 2023).

        Predictions at two targets are independent given the context, so joint samples are drawn one target after the
        other, in random order (a new one for every function), and each sampled value is added to the context. A new
        point changes every token of the context, so this takes as many encodings as there are targets.

        With `steps`, the targets of one step are drawn independently of each other given those of the steps before,
        which takes `steps - 1` encodings of each function. Each target is the one farthest from all before it, so that
        targets of a step are far apart, and later steps have more targets. docs/sampling.md has times and accuracy.

        Args:
            generator: random generator; samples also depend on `chunk`. None: torch's global generator.
            steps: number of steps. None: one for each target, which is exact. On GPs with 20 context points 4 steps
                lose about 0.01 nats per target; with 4 points 16 steps do.
            chunk: functions sampled at once; bounds memory. None: 64, and fewer for large contexts.
        """
        if n < 1 or (steps is not None and steps < 1) or (chunk is not None and chunk < 1):
            raise ValueError(f"n, steps and chunk must be at least 1, got {n}, {steps} and {chunk}.")
        self.check(xc, yc, xt, mask)
        (b, nt), nc = xt.shape[:2], xc.shape[1]
        encoded = Encoded(self, xc.to(torch.promote_types(xc.dtype, xt.dtype)), yc.to(self.dtype), mask)
        tasks = torch.arange(b, device=xt.device).repeat(n)
        parts = tasks.split(sampling.default_chunk(nc + nt) if chunk is None else chunk)
        functions = [self._sample(encoded, xt, part, generator, steps) for part in parts]
        return torch.cat(functions).view(n, b, nt, self.dy)

    def _sample(
        self, encoded: Encoded, xt: Tensor, tasks: Tensor, generator: torch.Generator | None, steps: int | None
    ) -> Float[Tensor, "rows nt dy"]:
        """One function of each of the given tasks, which follow each other cyclically."""
        x, nt = xt[tasks], xt.shape[1]
        if steps is None:
            order, sizes = torch.rand(x.shape[:2], generator=generator, device=x.device).argsort(1), [1] * nt
        else:
            order, sizes = sampling.spread(x, self.difference, generator), sampling.sizes(nt, steps)
        yt = torch.empty(*x.shape[:2], self.dy, dtype=self.dtype, device=x.device)
        functions: Encoded | None = None
        for step, indices in enumerate(order.split(sizes, dim=1), 1):
            where = indices[..., None]
            at = x.take_along_dim(where, 1)
            if functions is None:  # the context is still the same for all functions of a task
                raw = sampling.shared(lambda x: self._decode(encoded.memory, x), xt, at, tasks)
                functions = encoded.repeat(tasks)
            else:
                raw = self._decode(functions.memory, at)
            y = draw(self.likelihood(raw), generator).to(self.dtype)
            yt.scatter_(1, where.expand_as(y), y)
            if step < len(sizes):
                functions.add(at.to(encoded.xc.dtype), y)
        return yt

    def extra_repr(self) -> str:
        """The constructor's arguments."""
        shown = {k: make_kernel(v) if k == "kernel" and isinstance(v, dict) else v for k, v in self.config.items()}
        return ", ".join(f"{k}={v!r}" for k, v in shown.items())

    def __repr__(self) -> str:
        count = sum(p.numel() for p in self.parameters())
        return f"{type(self).__name__}({self.extra_repr()})  # {count:,} parameters"
