"""A map from stations: air temperature over North America from 150 places."""

from importlib.resources import files

import matplotlib.pyplot as plt
import pandas as pd

from shiftnp import Regressor

field = pd.read_csv(str(files("shiftnp") / "data/air-temperature.csv"))
field["celsius"] = field["kelvin"] - 273.15
stations = field.sample(150, random_state=1)

model = Regressor().fit(stations[["lon", "lat"]], stations["celsius"])
print(model.report())
grid = model.predict_grid(lon=(-160, -30, 53), lat=(15, 75, 25))  # an xarray.Dataset with `mean` and `std`

truth = field.pivot(index="lat", columns="lon", values="celsius")
figure, axes = plt.subplots(1, 3, figsize=(12, 3.2), layout="constrained", sharey=True)
for ax, title, values, colours in (
    (axes[0], "truth and stations", truth.to_numpy(), "plasma"),
    (axes[1], "predicted mean", grid["mean"].transpose("lat", "lon"), "plasma"),
    (axes[2], "standard deviation", grid["std"].transpose("lat", "lon"), "viridis"),
):
    low = {"vmin": field["celsius"].min(), "vmax": field["celsius"].max()} if colours == "plasma" else {"vmin": 0}
    image = ax.pcolormesh(grid["lon"], grid["lat"], values, cmap=colours, **low)
    figure.colorbar(image, ax=ax, label="°C")
    ax.set(title=title, xlabel="longitude")
axes[0].plot(stations["lon"], stations["lat"], "k.", markersize=2)
axes[0].set_ylabel("latitude")
figure.savefig("temperature_map.png", dpi=110)
