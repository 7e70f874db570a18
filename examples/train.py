"""Training: a small TE-TNP learns to predict Gaussian processes; the best possible score is known."""

import matplotlib.pyplot as plt
import torch

from shiftnp import MODELS, log_likelihood
from shiftnp.tasks import GPTask
from shiftnp.tasks.gp_posterior import BayesOptimal

STEPS = 600
task = GPTask(kernels=("se",), points=(3, 32), train_targets=64)
generator = torch.manual_seed(0)
model = MODELS["te-tnp"](dx=1, dy=1, dz=32, heads=4, head_dim=8, layers=3, kernel="rotary")
optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
held_out = [task.sample(16, torch.Generator().manual_seed(1000 + i)) for i in range(8)]


@torch.no_grad()
def score(predictor):
    """Log-likelihood per target on data sets that are not trained on."""
    return torch.cat([log_likelihood(predictor(b.xc, b.yc, b.xt), b.yt) for b in held_out]).mean().item()


ceiling, curve = score(BayesOptimal(task, gaussian=True)), []
for step in range(STEPS):
    batch = task.sample(16, generator)
    loss = -log_likelihood(model(batch.xc, batch.yc, batch.xt), batch.yt).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    if step % 30 == 29:
        curve.append((step + 1, score(model)))
print(f"{STEPS} steps: {curve[-1][1]:.3f}, best possible Gaussian: {ceiling:.3f}")

figure, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
ax.plot(*zip(*curve, strict=True), ".-", label="TE-TNP, rotary kernel")
ax.axhline(ceiling, color="k", linestyle="--", label="ceiling: the best possible Gaussian")
ax.set(xlabel="training steps", ylabel="log-likelihood per target", title="128 data sets that are not trained on")
ax.legend()
figure.savefig("train.png", dpi=110)
