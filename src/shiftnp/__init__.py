"""Translation-equivariant transformer neural processes.

`MODELS["te-tnp"](dx=2, dy=1)` is a module that maps a context set `(xc, yc)` and target inputs `xt` to a predictive
distribution: `model(xc, yc, xt).mean`. Names are imported lazily, on first use, so that `import shiftnp` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shiftnp import _cpu as _cpu  # limits oneDNN's instruction set where needed, before torch is used

if TYPE_CHECKING:
    from shiftnp.batch import Batch as Batch
    from shiftnp.compat import load_official as load_official
    from shiftnp.compat import read_checkpoint as read_checkpoint
    from shiftnp.likelihoods import LIKELIHOODS as LIKELIHOODS
    from shiftnp.metrics import log_likelihood as log_likelihood
    from shiftnp.models import ANP as ANP
    from shiftnp.models import CNP as CNP
    from shiftnp.models import MODELS as MODELS
    from shiftnp.models import PTTNP as PTTNP
    from shiftnp.models import RCNP as RCNP
    from shiftnp.models import TEPTTNP as TEPTTNP
    from shiftnp.models import TETNP as TETNP
    from shiftnp.models import TNP as TNP
    from shiftnp.models import ConvCNP as ConvCNP
    from shiftnp.models import NeuralProcess as NeuralProcess
    from shiftnp.regressor import Regressor as Regressor
    from shiftnp.runs.run import Run as Run
    from shiftnp.tasks import TASKS as TASKS

__version__ = "0.1.0"

_MODULE_OF = {
    "Batch": "batch",
    "LIKELIHOODS": "likelihoods",
    "Regressor": "regressor",
    "Run": "runs.run",
    "TASKS": "tasks",
    "load_official": "compat",
    "log_likelihood": "metrics",
    "read_checkpoint": "compat",
    **dict.fromkeys(
        ("ANP", "CNP", "MODELS", "PTTNP", "RCNP", "TEPTTNP", "TETNP", "TNP", "ConvCNP", "NeuralProcess"), "models"
    ),
}

__all__ = ["__version__", *_MODULE_OF]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"shiftnp.{_MODULE_OF[name]}"), name)
    try:
        return import_module(f"shiftnp.{name}")  # shiftnp.compat, shiftnp.tasks, ...
    except ModuleNotFoundError:
        raise AttributeError(f"module 'shiftnp' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return __all__
