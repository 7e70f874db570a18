from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from conftest import random_batch
from shiftnp import Batch, log_likelihood
from shiftnp.likelihoods import normal


def test_shift_moves_inputs_only():
    batch = random_batch(dx=2)
    moved = batch.shift([1.0, -2.0])
    assert torch.equal(moved.xc - batch.xc, torch.tensor([1.0, -2.0], dtype=batch.xc.dtype).expand_as(batch.xc))
    assert torch.equal(moved.xt[..., 0], batch.xt[..., 0] + 1.0)
    assert torch.equal(moved.yc, batch.yc)
    assert torch.equal(batch.shift(2).xc, batch.xc + 2)


def test_to_changes_numbers_but_not_masks():
    batch = Batch.collate([random_batch(b=1, nc=2), random_batch(b=1, nc=3)]).to("cpu", torch.float32)
    assert batch.xc.dtype == batch.yt.dtype == torch.float32
    assert batch.mask_c.dtype == torch.bool


def test_collate_pads_and_marks():
    tasks = [random_batch(b=2, nc=3, nt=1), random_batch(b=1, nc=0, nt=4)]
    batch = Batch.collate(tasks)
    assert batch.xc.shape == (3, 3, 1)
    assert batch.mask_c.tolist() == [[True] * 3, [True] * 3, [False] * 3]
    assert batch.mask_t.tolist() == [[True, False, False, False]] * 2 + [[True] * 4]
    assert torch.equal(batch.yt[2:], tasks[1].yt)
    again = Batch.collate([batch, tasks[0]])
    assert torch.equal(again.mask_c[:3], batch.mask_c)
    assert torch.equal(again.xc[3:], tasks[0].xc)


def test_log_likelihood_counts_targets_that_are_there():
    batch = Batch.collate([random_batch(b=1, nt=2), random_batch(b=1, nt=5)])
    dist = normal(torch.zeros_like(batch.yt), torch.zeros_like(batch.yt), 0.0)
    scores = log_likelihood(dist, batch.yt, batch.mask_t)
    torch.testing.assert_close(scores[0], dist.log_prob(batch.yt)[0, :2].mean())
    torch.testing.assert_close(scores[1], dist.log_prob(batch.yt)[1].mean())


def test_processes_share_a_batch_out():
    batch = Batch.collate([random_batch(b=2, nc=3, nt=1), random_batch(b=2, nc=0, nt=4)])
    shares = [batch.shard(rank, 2) for rank in (0, 1)]
    for name in ("xc", "yc", "xt", "yt", "mask_c", "mask_t"):
        assert torch.equal(torch.cat([getattr(s, name) for s in shares]), getattr(batch, name))
    assert random_batch(b=2).shard(1, 2).mask_c is None
    with pytest.raises(ValueError, match="4 tasks cannot be sharded equally among 3"):
        batch.shard(0, 3)


def test_shapes_that_do_not_fit_are_refused():
    """In a process of its own: the checker of annotations in this test run would step in first."""
    code = """
from dataclasses import replace
import torch
from shiftnp import Batch
good = Batch(*(torch.zeros(2, n, 1) for n in (4, 4, 3, 3)))
bad = {
    "yc": {"yc": good.yc[:, :3]},
    "yt": {"yt": good.yt[:1]},
    "xt": {"xt": good.xt[0]},
    "mask_c": {"mask_c": torch.ones(2, 3, dtype=torch.bool)},
    "xc and xt": {"xc": good.xc.expand(-1, -1, 2)},
}
for name, change in bad.items():
    try:
        replace(good, **change)
    except ValueError as error:
        assert str(error).startswith(f"{name} must "), error
    else:
        raise SystemExit(f"{name} was accepted")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
