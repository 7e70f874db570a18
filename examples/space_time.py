"""Space and time: a front moves over a network of stations, and is mapped at a time when nobody measured."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from shiftnp import Regressor

rng = np.random.default_rng(0)


def truth(x, y, hour):
    """Temperature: a front from the south-west, behind which it is colder, and warmer land in the east."""
    return 12 + 4 * np.tanh((x + 0.6 * y - 8 * hour) / 12) + 2 * np.exp(-((x - 70) ** 2 + (y - 40) ** 2) / 400)


places = rng.uniform(0, 100, size=(40, 2))
rows = [(x, y, hour) for x, y in places for hour in range(0, 13, 2)]  # every other hour
stations = pd.DataFrame(rows, columns=["x", "y", "hour"])
stations["celsius"] = truth(*stations.to_numpy().T) + 0.3 * rng.normal(size=len(stations))

model = Regressor().fit(stations[["x", "y", "hour"]], stations["celsius"])
print(model.report())

figure, axes = plt.subplots(2, 3, figsize=(12, 6.4), layout="constrained", sharex=True, sharey=True)
line = np.linspace(0, 100, 41)
x, y = (part.reshape(-1) for part in np.meshgrid(line, line))
for column, hour in zip(axes.T, (3, 7, 11), strict=True):  # times without measurements
    targets = pd.DataFrame({"x": x, "y": y, "hour": np.full(len(x), float(hour))})
    predicted, exact = np.asarray(model.predict(targets)), truth(x, y, hour)
    print(f"hour {hour}: root mean squared error {np.sqrt(np.mean((predicted - exact) ** 2)):.2f} °C")
    for ax, title, values in ((column[0], "truth", exact), (column[1], "predicted", predicted)):
        image = ax.pcolormesh(line, line, values.reshape(41, 41), vmin=7, vmax=17, cmap="plasma")
        ax.plot(*places.T, "k.", markersize=3)
        ax.set_title(f"{title}, hour {hour}")
figure.colorbar(image, ax=axes, label="°C")
figure.savefig("space_time.png", dpi=110)
