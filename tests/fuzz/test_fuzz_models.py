"""Random calls of every model: a finite distribution with finite gradients, or one sentence that names the argument."""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from cases import cases

from conftest import small_model
from shiftnp.models import MODELS
from shiftnp.models.inputs import LARGEST_INPUT

LIMIT = 1e6
"""Largest output that a model in float32 accepts."""
HUGE = (2e6, 1e20, 9.97e36)
"""Values that are not data; the last is what NetCDF fills gaps with."""
PLACES = ((1.0, 0.0), (1e-3, 0.0), (10.0, 1e3), (1.0, 1e6), (1e4, 0.0), (0.0, 5.0))
"""Scale and offset of inputs."""
FAR = ((1.0, 1e12), (1e12, 0.0), (1e30, 0.0))
"""The same, where rounding or overflow may leave nothing to compute: refused or answered."""


@dataclass
class Case:
    """Arguments of a call, and what is wrong with them."""

    dx: int
    dy: int
    dtype: torch.dtype
    arguments: dict[str, torch.Tensor | None]
    refused: str | None = None  # the argument that the sentence has to name
    may_refuse: bool = False


def make_case(seed: int, dx_most: int) -> Case:
    r, g = random.Random(seed), torch.Generator().manual_seed(seed)
    dx, dy, b = r.randint(1, dx_most), r.randint(1, 3), r.choice([0, 1, 1, 2, 3])
    nc, nt = r.choice([0, 1, 2, r.randint(3, 20)]), r.choice([0, 1, r.randint(2, 20)])
    weights = r.choice([torch.float32, torch.float64])
    far = r.random() < 0.1
    scale, offset = r.choice(FAR if far else PLACES)

    def gauss(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=g, dtype=torch.float64)

    xc, yc, xt = gauss(b, nc, dx) * scale + offset, gauss(b, nc, dy) * r.choice([0, 1, 1, 1e3]), gauss(b, nt, dx)
    xt = xt * scale + offset
    if nc > 1 and r.random() < 0.3:  # duplicates, with other values or the same ones
        xc[:, 1::2] = xc[:, :1]
        yc[:, 1::2] = yc[:, :1] if r.random() < 0.5 else yc[:, 1::2]
    if nc and nt and r.random() < 0.3:
        xt[:, 0] = xc[:, 0]
    if r.random() < 0.3:
        yc[torch.rand(yc.shape, generator=g) < r.choice([0.2, 1.0])] = math.nan
    mask = None if r.random() < 0.6 else torch.rand(b, nc, generator=g) < r.choice([0.0, 0.5, 1.0])
    inputs = r.choice([torch.float32, torch.float64, torch.float64, torch.float16, torch.bfloat16])
    if inputs == torch.float16 and (scale > 1e3 or abs(offset) > 1e3):
        inputs = torch.float32
    case = Case(dx, dy, weights, {"xc": xc.to(inputs), "yc": yc.to(inputs), "xt": xt.to(inputs), "mask": mask})
    case.may_refuse = far or scale > 100  # too large for a lattice
    if r.random() < 0.2 and inputs != torch.float16:
        put_huge(case, r.choice(HUGE), r)
    elif r.random() < 0.4:
        spoil(case, r)
    return case


def put_huge(case: Case, value: float, r: random.Random) -> None:
    """One output that is much too large, seen or masked out."""
    yc, mask = case.arguments["yc"], case.arguments["mask"]
    if yc.numel() == 0:
        return
    i, j, k = (r.randrange(n) for n in yc.shape)
    yc[i, j, k] = r.choice([-1, 1]) * value
    if mask is not None and not mask[i, j]:
        return
    if case.dtype == torch.float32:
        case.refused = "yc"
    else:
        case.may_refuse = True


def spoil(case: Case, r: random.Random) -> None:
    """Makes one argument wrong in kind, shape or value."""
    a = case.arguments
    name = r.choice(["xc", "yc", "xt"])
    t = a[name]
    how = r.choice(["integers", "rank", "width", "points", "tasks", "inf", "mask kind", "mask shape"])
    if how == "integers":
        a[name] = torch.zeros(t.shape, dtype=r.choice([torch.int64, torch.uint8, torch.bool]))
    elif how == "rank":
        a[name] = r.choice([t[..., 0], t[None], torch.tensor(1.0)])
    elif how == "width":
        a[name] = torch.cat([t, t], -1)
    elif how == "points":
        name = "yc"
        a[name] = torch.cat([a[name], a[name].new_zeros(len(t), 1, case.dy)], 1)
    elif how == "tasks":
        name = "xt"
        a[name] = torch.cat([a[name], a[name].new_zeros(1, *a[name].shape[1:])])
    elif how == "inf" and t.numel() and (a["mask"] is None or name == "xt"):
        t[tuple(r.randrange(n) for n in t.shape)] = r.choice([math.inf, -math.inf])
    elif how == "mask kind":
        name = "mask"
        a[name] = torch.ones(a["xc"].shape[:2])
    elif how == "mask shape":
        name = "mask"
        a[name] = torch.ones(len(t), a["xc"].shape[1] + 1, dtype=torch.bool)
    else:
        return
    case.refused = name


@cache
def model_for(name: str, dx: int, dy: int, dtype: torch.dtype):
    return small_model(name, dx, dy, dtype=dtype)


def expect_far_inputs(case: Case, model: torch.nn.Module) -> None:
    """A model that is not equivariant refuses inputs far from zero, whatever else is wrong."""
    sizes = [case.arguments[name].double().abs() for name in ("xc", "xt") if case.arguments[name].is_floating_point()]
    if not model.is_equivariant and any(size.numel() and size.max() > LARGEST_INPUT for size in sizes):
        case.refused, case.may_refuse = None, True


@pytest.mark.parametrize("seed", cases(60))
@pytest.mark.parametrize("name", MODELS)
def test_finite_or_refused(name, seed):
    case = make_case(seed, 2 if name == "convcnp" else 3)
    model = model_for(name, case.dx, case.dy, case.dtype)
    expect_far_inputs(case, model)
    try:
        dist = model(**case.arguments)
        sentence = None
    except ValueError as error:
        sentence = str(error)
    if sentence is not None:
        assert case.refused or case.may_refuse, sentence
        assert re.fullmatch(rf"({case.refused or 'xc|yc|xt|mask'}) .*\.", sentence), sentence  # one line
        return
    assert case.refused is None, f"{case.refused} was accepted"
    xt = case.arguments["xt"]
    assert dist.mean.shape == (*xt.shape[:2], case.dy)
    assert dist.mean.isfinite().all()
    assert dist.stddev.isfinite().all()
    assert (dist.stddev > 0).all()
    if dist.mean.numel() and not case.may_refuse:
        model.zero_grad()
        dist.log_prob(torch.zeros_like(dist.mean)).mean().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_cases_are_of_every_kind():
    """So that a change of the draws does not leave a kind out: refusals, far places, empty sets, masks."""
    made = [make_case(seed, 3) for seed in range(300)]
    assert {c.refused for c in made} == {None, "xc", "yc", "xt", "mask"}
    assert sum(c.refused is None and not c.may_refuse for c in made) > 100
    good = [c.arguments for c in made if c.refused is None]
    assert any(len(a["xc"]) == 0 for a in good)
    assert any(a["xc"].shape[1] == 0 for a in good)
    assert any(a["mask"] is not None and not a["mask"].any() for a in good)
    assert {a["xc"].dtype for a in good} == {torch.float16, torch.bfloat16, torch.float32, torch.float64}
