"""Equivariance: two models, trained between -3 and 3, meet the same data set further and further right."""

from pathlib import Path

import matplotlib.pyplot as plt
import torch

from shiftnp import Run
from shiftnp.tasks import GPTask

RUNS = Path(__file__).parent.parent / "results/runs/gp-1d"
models = {name: Run.open(RUNS / f"{run}-laptop-seed0").model() for name, run in (("TNP", "tnp"), ("TE-TNP", "te-tnp"))}
batch = GPTask(kernels=("se",), length=(0.5, 0.5), points=(20, 20)).sample(1, torch.Generator().manual_seed(4))
everywhere = torch.linspace(-3, 3, 200).reshape(1, -1, 1)

figure, axes = plt.subplots(2, 3, figsize=(12, 5), layout="constrained", sharey=True)
for row, (name, model) in zip(axes, models.items(), strict=True):
    still = model.predict(batch.xc, batch.yc, everywhere).mean
    for ax, shift in zip(row, (0.0, 2.0, 50.0), strict=True):
        x = (everywhere + shift)[0, :, 0]
        mean, std = (part[0, :, 0] for part in model.predict(batch.xc + shift, batch.yc, everywhere + shift))
        print(f"{name}, shift {shift:g}: the mean changes by {(mean - still[0, :, 0]).abs().max():.5f} at most")
        ax.fill_between(x, mean - 1.645 * std, mean + 1.645 * std, alpha=0.25, linewidth=0)
        ax.plot(x, mean)
        ax.plot(batch.xc[0, :, 0] + shift, batch.yc[0, :, 0], "k.")
        ax.set(title=f"{name}, shifted by {shift:g}", ylim=(-3.5, 3.5))
figure.savefig("shift.png", dpi=110)
