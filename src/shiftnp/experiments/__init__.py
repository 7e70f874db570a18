"""The experiments of the paper, one file each. Adding one is one file and one line here."""

from shiftnp.experiments.ablation import ABLATION
from shiftnp.experiments.base import Column, Experiment, Preset, Row
from shiftnp.experiments.climate import CLIMATE
from shiftnp.experiments.gp_1d import GP_1D
from shiftnp.experiments.image_completion import IMAGE_COMPLETION
from shiftnp.experiments.kolmogorov import KOLMOGOROV
from shiftnp.experiments.timing import TIMING

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (GP_1D, IMAGE_COMPLETION, KOLMOGOROV, CLIMATE, ABLATION, TIMING)
}

__all__ = ["EXPERIMENTS", "Column", "Experiment", "Preset", "Row"]
