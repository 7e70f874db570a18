"""Base classes of attention kernels: `Kernel` and `ContextHook`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

from torch import nn

from shiftnp.geometry import Geometry
from shiftnp.nn.block import Block
from shiftnp.nn.tokens import Context, Tokens
from shiftnp.nn.transformer import MakeBlock


class AttentionSize(NamedTuple):
    """Sizes that all attention layers of a model share.

    Attributes:
        dz: size of a token.
        heads, head_dim: number of attention heads and size of each.
        dims, geometry: number of equivariant inputs, and their geometry.
    """

    dz: int
    heads: int
    head_dim: int
    dims: int
    geometry: Geometry


class ContextHook(nn.Module, ABC):
    """A module that a kernel applies once to each data set, before the first attention layer.

    It may add to the embeddings (`z`) of tokens, and compute a `summary` of the data set, a field of the tokens that
    `targets` and the attention modules can use.
    """

    @abstractmethod
    def context(self, tokens: Tokens, c: Context) -> Tokens:
        """The context tokens with the hook's additions."""

    @abstractmethod
    def targets(self, tokens: Tokens, context: Tokens) -> Tokens:
        """The target tokens with the hook's additions, given context tokens or pseudo-tokens with the summary."""


@dataclass(frozen=True)
class Kernel(ABC):
    """A translation-equivariant attention kernel: which module computes attention, with which arguments.

    Its attention module maps `(q: Tokens, k: Tokens, mask: AttentionMask)` to the update of the query tokens
    `[b, nq, dz]` and their new `offset` `[b, nq, dx]` (None: as before), and uses positions through displacements only.
    """

    name: ClassVar[str]

    @abstractmethod
    def attention(self, size: AttentionSize, location_update: bool) -> nn.Module:
        """A new attention module.

        Args:
            location_update: whether the positions of queries are updated (eq. 8).
        """

    def make_block(self, size: AttentionSize, location_update: bool, ff_layers: int) -> MakeBlock:
        """A function that makes new transformer blocks with this kernel."""
        return lambda updates: Block(self.attention(size, updates and location_update), size.dz, ff_layers)

    def hook(self, size: AttentionSize, dy: int) -> ContextHook | None:
        """The module that the kernel applies to each data set before the first layer; None: none."""
        return None

    def to_json(self) -> str | dict[str, Any]:
        """The kernel as plain data, from which `make_kernel` makes it again."""
        arguments = asdict(self)
        return {"name": self.name, **arguments} if arguments else self.name
