"""Are the intervals right? Withheld observations beside a fitted Gaussian process."""

from importlib.resources import files

import matplotlib.pyplot as plt
import pandas as pd
from scipy.stats import norm

from shiftnp import Regressor
from shiftnp.baselines.single import SingleGP

field = pd.read_csv(str(files("shiftnp") / "data/air-temperature.csv"))
field["celsius"] = field["kelvin"] - 273.15
known, withheld = field.sample(100, random_state=0), field.drop(field.sample(100, random_state=0).index)

model = Regressor().fit(known[["lon", "lat"]], known["celsius"])
draws = model.sample(withheld[["lon", "lat"]], n=300)
ours = (draws < withheld["celsius"].to_numpy()).mean(0)  # the probability integral transform, from draws
mean, std = SingleGP().predict(
    known[["lon", "lat"]].to_numpy(), known["celsius"].to_numpy(), withheld[["lon", "lat"]].to_numpy()
)
theirs = norm.cdf(withheld["celsius"], mean, std)

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained", sharey=True)
for ax, name, pit in ((axes[0], "shiftnp, no training", ours), (axes[1], "fitted GP", theirs)):
    inside = (abs(pit - 0.5) < 0.45).mean()
    print(f"{name}: 90 % intervals cover {inside:.0%} of {len(pit)} withheld observations")
    ax.hist(pit, bins=20, range=(0, 1), density=True, color="tab:blue", alpha=0.6)
    ax.axhline(1, color="k", linestyle="--")
    ax.set(title=f"{name}: 90 % intervals cover {inside:.0%}", xlabel="probability integral transform")
axes[0].set_ylabel("density (flat: calibrated)")
figure.savefig("calibration.png", dpi=110)
