"""A scikit-learn style estimator that predicts from pretrained weights, without any training: `Regressor`."""

from shiftnp.regressor.estimator import Regressor
from shiftnp.regressor.weights import pretrained, write_pretrained

__all__ = ["Regressor", "pretrained", "write_pretrained"]
