"""Whole functions instead of points: how deep was the valley inside a gap?"""

import matplotlib.pyplot as plt
import numpy as np

from shiftnp import Regressor

rng = np.random.default_rng(5)
x = np.sort(np.concatenate([rng.uniform(0, 4, 22), rng.uniform(6.5, 10, 20)]))
y = np.sin(2 * x) + 0.3 * x + 0.05 * rng.normal(size=len(x))
at = np.linspace(4, 6.5, 24)  # the gap

model = Regressor().fit(x[:, None], y)
joint = model.sample(at[:, None], n=60, joint=True)  # each row is one function
alone = model.sample(at[:, None], n=60)  # the same distribution at each point, but no functions

figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
for ax, title, drawn in ((axes[0], "joint samples", joint), (axes[1], "independent samples", alone)):
    ax.plot(at, drawn[:12].T, linewidth=0.8)
    ax.plot(x, y, "k.")
    ax.set(title=title, ylim=(-2, 4))
lowest = {"joint": joint.min(1), "independent": alone.min(1)}
axes[2].hist(list(lowest.values()), bins=20, range=(-2, 2), label=list(lowest))
axes[2].axvline((np.sin(2 * at) + 0.3 * at).min(), color="k", linestyle="--", label="truth")
axes[2].set(title="lowest value inside the gap")
axes[2].legend()
for name, values in lowest.items():
    low, middle, high = np.quantile(values, (0.05, 0.5, 0.95))
    print(f"{name}: the lowest value is {middle:.2f}, with 90 % between {low:.2f} and {high:.2f}")
figure.savefig("joint_samples.png", dpi=110)
