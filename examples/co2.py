"""A time series with gaps: weekly CO2 at Mauna Loa, dates as they are in the file."""

from importlib.resources import files

import matplotlib.pyplot as plt
import pandas as pd

from shiftnp import Regressor

table = pd.read_csv(str(files("shiftnp") / "data/co2.csv"), parse_dates=["date"])
table = table[(table["date"] >= "1984") & (table["date"] < "1990")]
gap = (table["date"] > "1986-08") & (table["date"] < "1987-06")
observed = table[~gap].iloc[::4]  # every fourth week, and none in the gap

model = Regressor().fit(observed[["date"]], observed["co2"])
print(model.report())
found = model.predict_table(table[["date"]], quantiles=(0.05, 0.95))

figure, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
ax.fill_between(table["date"], found["q0.05"], found["q0.95"], alpha=0.25, linewidth=0, label="90 % interval")
ax.plot(table["date"], found["mean"], label="predicted mean")
ax.plot(table["date"], table["co2"], ".", color="tab:orange", markersize=3, label="withheld")
ax.plot(observed["date"], observed["co2"], "k.", markersize=5, label="observed")
ax.set(ylabel="CO2, ppm", title="CO2 at Mauna Loa: ten months are missing")
ax.legend(ncols=4, fontsize="small")
figure.savefig("co2.png", dpi=110)
