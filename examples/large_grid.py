"""A grid that need not fit into memory: predicted and written to Zarr block by block."""

import matplotlib.pyplot as plt
import numpy as np

from shiftnp import Regressor

SIZE = 240
rng = np.random.default_rng(0)
X = rng.uniform(0, 10, size=(2000, 2))  # more observations than a prediction uses: it takes those around it
y = np.sin(X[:, 0] * X[:, 1] / 4) + 0.1 * rng.normal(size=len(X))

model = Regressor(scales=3).fit(X, y)
# Nothing is in memory but blocks; with a dask cluster its workers predict them.
field = model.predict_grid(x0=SIZE, x1=SIZE, chunks=120, out="large_grid.zarr")
print(field)
overview = field.isel(x0=slice(None, None, 2), x1=slice(None, None, 2)).load()  # only what is drawn is read

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
for ax, name in zip(axes, ("mean", "std"), strict=True):
    image = ax.pcolormesh(overview["x0"], overview["x1"], overview[name].transpose("x1", "x0"))
    figure.colorbar(image, ax=ax)
    ax.set(title=f"{name} of {SIZE} x {SIZE} points, in blocks of 120 x 120", xlabel="x0")
axes[0].set_ylabel("x1")
figure.savefig("large_grid.png", dpi=110)
