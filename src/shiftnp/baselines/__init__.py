"""Predictors that are fitted to each context and learn nothing from one data set to the next; they call like models."""

from shiftnp.baselines.gp import GPBaseline, MultiTaskGPBaseline

BASELINES: dict[str, type[GPBaseline]] = {"gp": GPBaseline, "multi-task-gp": MultiTaskGPBaseline}
