"""The experiments of the paper, one file each, and the pretraining. Adding one is one file and one line here."""

from shiftnp.experiments.ablation import ABLATION
from shiftnp.experiments.base import Column, Experiment, Preset, Row
from shiftnp.experiments.climate import CLIMATE
from shiftnp.experiments.gp_1d import GP_1D
from shiftnp.experiments.image_completion import IMAGE_COMPLETION
from shiftnp.experiments.kolmogorov import KOLMOGOROV
from shiftnp.experiments.pretrain import PRETRAIN_1D, PRETRAIN_2D, PRETRAIN_3D
from shiftnp.experiments.timing import TIMING
from shiftnp.runs.run import Run
from shiftnp.tasks import TestSet
from shiftnp.tasks.base import reported_test_sets

_PAPER = (GP_1D, IMAGE_COMPLETION, KOLMOGOROV, CLIMATE, ABLATION, TIMING)
_PRETRAINING = (PRETRAIN_1D, PRETRAIN_2D, PRETRAIN_3D)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _PAPER + _PRETRAINING}


def evaluation_sets(run: Run) -> dict[str, TestSet]:
    """The test sets of a run: those of its experiment, or else those of its task."""
    experiment = EXPERIMENTS.get(run.config.experiment or "")
    return reported_test_sets(run.task) if experiment is None else experiment.test_sets(run.task)


__all__ = ["EXPERIMENTS", "Column", "Experiment", "Preset", "Row", "evaluation_sets"]
