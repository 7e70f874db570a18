"""A periodic input: longitude ends where it begins, and with a period the prediction does too."""

import matplotlib.pyplot as plt
import numpy as np

from shiftnp import Regressor

rng = np.random.default_rng(3)


def wave(lon):
    """A function on the circle."""
    return np.cos(np.radians(2 * lon - 40)) + 0.5 * np.sin(np.radians(3 * lon))


lon = rng.uniform(-180, 180, 30)
lon = lon[(lon > -150) & (lon < 160)]  # no observation around the date line
y = wave(lon) + 0.1 * rng.normal(size=len(lon))
everywhere = np.linspace(-180, 180, 241)

figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained", sharey=True)
for ax, title, period in zip(axes, ("no period", 'period={"lon": 360}'), (None, {0: 360}), strict=True):
    model = Regressor(period=period).fit(lon[:, None], y)
    mean, std = model.predict(everywhere[:, None], return_std=True)
    print(f"{title}: the ends differ by {abs(mean[0] - mean[-1]):.3f}")
    ax.fill_between(everywhere, mean - 1.645 * std, mean + 1.645 * std, alpha=0.25, linewidth=0)
    ax.plot(everywhere, mean)
    ax.plot(everywhere, wave(everywhere), "--", color="tab:orange")
    ax.plot(lon, y, "k.")
    ax.set(title=title, xlabel="longitude", xticks=[-180, -90, 0, 90, 180])
figure.savefig("longitude.png", dpi=110)
