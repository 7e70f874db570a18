"""The conventions of scikit-learn estimators, which does not have to be installed."""

from __future__ import annotations

import inspect
from typing import Any

from shiftnp._registry import choose


class NotFittedError(ValueError, AttributeError):
    """Raised by methods that need `fit` first, where scikit-learn is not installed; else its own error is."""


def not_fitted(message: str) -> Exception:
    """The error for an estimator that has not been fitted."""
    try:
        from sklearn.exceptions import NotFittedError as Theirs
    except ImportError:
        return NotFittedError(message)
    error: Exception = Theirs(message)
    return error


class Estimator:
    """`get_params`, `set_params` and tags. The constructor stores its arguments under their names and does nothing
    else, so that scikit-learn can clone the estimator."""

    @classmethod
    def _names(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> Estimator:
        """Changes arguments of the constructor."""
        for name, value in params.items():
            choose(name, dict.fromkeys(self._names()), f"argument of {type(self).__name__}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = {name: p.default for name, p in inspect.signature(type(self)).parameters.items()}
        changed = [f"{k}={v!r}" for k, v in self.get_params().items() if v is not defaults[k] and v != defaults[k]]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=True, multi_output=True, single_output=True),
            regressor_tags=RegressorTags(),
            input_tags=InputTags(),
        )
