"""All models of the paper, with one interface (`NeuralProcess`). Adding one is one file and one line here."""

from typing import Any, Protocol

from shiftnp._registry import Registry
from shiftnp.models.anp import ANP
from shiftnp.models.base import NeuralProcess
from shiftnp.models.cnp import CNP
from shiftnp.models.convcnp import ConvCNP
from shiftnp.models.pt_tnp import PTTNP
from shiftnp.models.rcnp import RCNP
from shiftnp.models.te_pt_tnp import TEPTTNP
from shiftnp.models.te_tnp import TETNP
from shiftnp.models.tnp import TNP


class ModelClass(Protocol):
    """Type of the model classes: their first two arguments, and whether they are translation equivariant."""

    is_equivariant: bool

    def __call__(self, dx: int, dy: int, *args: Any, **kwargs: Any) -> NeuralProcess: ...


MODELS: Registry[ModelClass] = Registry(
    "model",
    {
        "cnp": CNP,
        "rcnp": RCNP,
        "convcnp": ConvCNP,
        "anp": ANP,
        "tnp": TNP,
        "pt-tnp": PTTNP,
        "te-tnp": TETNP,
        "te-pt-tnp": TEPTTNP,
    },
)

__all__ = ["ANP", "CNP", "MODELS", "PTTNP", "RCNP", "TEPTTNP", "TETNP", "TNP", "ConvCNP", "NeuralProcess"]
