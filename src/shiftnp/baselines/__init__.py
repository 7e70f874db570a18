"""Baselines, which are fitted to each context set separately and called like models: `baseline(xc, yc, xt, mask)`."""

from shiftnp.baselines.gp import GPBaseline, MultiTaskGPBaseline

BASELINES: dict[str, type[GPBaseline]] = {"gp": GPBaseline, "multi-task-gp": MultiTaskGPBaseline}
