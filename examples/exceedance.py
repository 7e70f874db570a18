"""Quantiles, and the probability that a threshold is exceeded: where does it freeze?"""

from importlib.resources import files

import matplotlib.pyplot as plt
import pandas as pd

from shiftnp import Regressor

field = pd.read_csv(str(files("shiftnp") / "data/air-temperature.csv"))
field["celsius"] = field["kelvin"] - 273.15
stations = field.sample(60, random_state=2)  # few, so that a lot stays uncertain

places = field[["lon", "lat"]]
model = Regressor().fit(stations[["lon", "lat"]], stations["celsius"])
low, high = model.predict_quantiles(places, q=(0.05, 0.95)).to_numpy().T
frost = (model.sample(places, n=400) < 0).mean(0)  # of 400 draws at each place, how many are below zero
print(f"it freezes almost surely at {(frost > 0.95).mean():.0%} of the places, perhaps at {(frost > 0.05).mean():.0%}")

figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", sharey=True)
shape = field["lat"].nunique(), field["lon"].nunique()
lon, lat = (field[name].to_numpy().reshape(shape) for name in ("lon", "lat"))
for ax, title, values, colours in (
    (axes[0], "probability of frost", frost, "Blues"),
    (axes[1], "width of the 90 % interval, °C", high - low, "viridis"),
):
    figure.colorbar(ax.pcolormesh(lon, lat, values.reshape(shape), cmap=colours, vmin=0), ax=ax)
    ax.contour(lon, lat, field["celsius"].to_numpy().reshape(shape), levels=[0], colors="tab:red")
    ax.plot(stations["lon"], stations["lat"], "k.", markersize=3)
    ax.set(title=title, xlabel="longitude")
axes[0].set_ylabel("latitude (red: the true frost line)")
figure.savefig("exceedance.png", dpi=110)
