"""The authors' weights, in our models, give the authors' predictions."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import official
from conftest import random_batch
from shiftnp import load_official, read_checkpoint

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.npz"))
MODELS = ("tnp", "pt_tnp_ist", "pt_tnp_perceiver", "te_tnp", "te_pt_tnp_ist", "te_pt_tnp_perceiver")


def read(path):
    with np.load(path) as file:
        arrays = {k: torch.from_numpy(file[k]) for k in file.files if k != "config"}
        config = json.loads(str(file["config"]))
    weights = {k.removeprefix("weights/"): v for k, v in arrays.items() if k.startswith("weights/")}
    return config, weights, arrays


def test_golden_files_are_here():
    assert len(GOLDEN) == 12


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_golden(path):
    config, weights, data = read(path)
    dist = load_official(config, weights)(data["xc"], data["yc"], data["xt"])
    torch.testing.assert_close(dist.mean, data["mean"], rtol=0, atol=1e-9)
    torch.testing.assert_close(dist.stddev, data["std"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_the_second_reading_of_their_code_is_right(path):
    config, weights, data = read(path)
    mean, std = official.predict(config, weights, data["xc"], data["yc"], data["xt"])
    torch.testing.assert_close(mean, data["mean"], rtol=0, atol=1e-12)
    torch.testing.assert_close(std, data["std"], rtol=0, atol=1e-12)
    assert {k: v.shape for k, v in official.random_weights(config).items()} == {k: v.shape for k, v in weights.items()}


configs = st.fixed_dictionaries(
    {
        "dx": st.integers(1, 3),
        "dy": st.integers(1, 3),
        "embed_dim": st.sampled_from([8, 12]),
        "num_heads": st.sampled_from([1, 2, 3]),
        "head_dim": st.sampled_from([3, 8, 12]),
        "num_layers": st.integers(1, 4),
        "num_pseudo": st.integers(1, 6),
        "location_update": st.booleans(),
        "attention_init": st.booleans(),
    }
)


@pytest.mark.parametrize("model", MODELS)
@given(configs, st.integers(1, 7), st.integers(0, 100))
def test_other_sizes(model, config, nc, seed):
    config = {"model": model, **config}
    if not model.startswith("te_"):
        config.update(location_update=False, attention_init=False)
    weights = official.random_weights(config, seed)
    batch = random_batch(nc=nc, dx=config["dx"], dy=config["dy"], seed=seed)
    mean, std = official.predict(config, weights, batch.xc, batch.yc, batch.xt)
    dist = load_official(config, weights)(batch.xc, batch.yc, batch.xt)
    torch.testing.assert_close(dist.mean, mean, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(dist.stddev, std, rtol=1e-9, atol=1e-9)


CONFIG = {
    "model": "te_pt_tnp_ist",
    "dx": 1,
    "dy": 1,
    "embed_dim": 8,
    "num_heads": 2,
    "head_dim": 4,
    "num_layers": 2,
    "num_pseudo": 3,
    "location_update": True,
    "attention_init": True,
}


def test_precision_follows_the_weights():
    weights = {k: v.float() for k, v in official.random_weights(CONFIG).items()}
    assert load_official(CONFIG, weights).dtype == torch.float32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "gpt"}, "model"),
        ({"num_layers": 1}, "no place for"),
        ({"num_layers": 3}, "lack"),
        ({"dx": 2}, "shape"),
        ({"location_update": False}, "phi"),
        ({"attention_init": False}, "pseudo_token_initialiser"),
        ({"model": "te_pt_tnp_perceiver"}, "mhsa_layers"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(change, message):
    with pytest.raises(ValueError, match=message) as caught:
        load_official({**CONFIG, **change}, official.random_weights(CONFIG))
    assert "\n" not in str(caught.value)


def test_a_config_that_lacks_something_is_refused():
    with pytest.raises(ValueError, match="head_dim, num_pseudo"):
        load_official({k: v for k, v in CONFIG.items() if k not in ("head_dim", "num_pseudo")}, {})


class Bomb:
    """Would leave a file behind if a checkpoint could run code."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_checkpoints(tmp_path):
    """As Lightning writes them: weights under `model.`, and everything else pickled beside them."""
    weights = official.random_weights(CONFIG)
    bomb = tmp_path / "bomb"
    torch.save(
        {
            "epoch": 3,
            "state_dict": {f"model.{k}": v for k, v in weights.items()},
            "hyper_parameters": {
                "model": torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()),
                "optimiser": partial(torch.optim.AdamW, lr=5e-4),
                "loss_fn": load_official,
                "args": argparse.Namespace(a=1),
                "states": defaultdict(dict, {"a": {"b": torch.ones(2)}}),
                "bomb": Bomb(bomb),
            },
        },
        tmp_path / "model.ckpt",
    )
    read = read_checkpoint(tmp_path / "model.ckpt")
    assert not bomb.exists()
    assert read.keys() == weights.keys()
    batch = random_batch()
    dist = load_official(CONFIG, read)(batch.xc, batch.yc, batch.xt)
    torch.testing.assert_close(dist.mean, official.predict(CONFIG, weights, batch.xc, batch.yc, batch.xt)[0])


@pytest.mark.parametrize("content", ["nothing", "rubbish", "no weights"])
def test_bad_checkpoints_are_refused(tmp_path, content):
    path = tmp_path / "model.ckpt"
    if content == "rubbish":
        path.write_bytes(b"not a checkpoint")
    if content == "no weights":
        torch.save({"state_dict": {"a": 1}}, path)
    with pytest.raises(ValueError, match=r"model\.ckpt") as caught:
        read_checkpoint(path)
    assert "\n" not in str(caught.value)
