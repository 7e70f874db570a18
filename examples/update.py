"""New observations arrive: `update` adds them, and nothing is fitted again."""

import matplotlib.pyplot as plt
import numpy as np

from shiftnp import Regressor

rng = np.random.default_rng(0)


def measure(x):
    """Noisy measurements of a function."""
    return np.sin(x) * np.exp(0.1 * x) + 0.1 * rng.normal(size=len(x))


x = rng.uniform(0, 7, 40)
everywhere = np.linspace(0, 14, 200)[:, None]
model = Regressor().fit(x[:, None], measure(x))

figure, axes = plt.subplots(1, 3, figsize=(12, 3.2), layout="constrained", sharey=True)
for ax, (first, last) in zip(axes, ((0, 7), (7, 9), (9, 14)), strict=True):
    if first:
        new = rng.uniform(first, last, 15)
        model.update(new[:, None], measure(new))
    mean, std = model.predict(everywhere, return_std=True)
    ax.fill_between(everywhere[:, 0], mean - 1.645 * std, mean + 1.645 * std, alpha=0.25, linewidth=0)
    ax.plot(everywhere, mean)
    ax.plot(everywhere, np.sin(everywhere) * np.exp(0.1 * everywhere), "--", color="tab:orange")
    ax.axvspan(0, last, color="0.95", zorder=-1)
    ax.set(title=f"observed until {last}", xlabel="x", ylim=(-6, 6))
    print(f"observed until {last}: standard deviation at 14 is {std[-1]:.2f}")
figure.savefig("update.png", dpi=110)
