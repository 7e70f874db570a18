"""Choosing by name."""

from __future__ import annotations

import copy
import pickle

import pytest

from shiftnp._registry import Registry, UnknownName, choose

NAMES = Registry("model", {"te-tnp": 1, "tnp": 2, "ConvCNP": 3})


def test_a_registry_is_a_dictionary():
    assert NAMES["tnp"] == 2
    assert list(NAMES) == ["te-tnp", "tnp", "ConvCNP"]
    assert NAMES.get("other") is None
    assert "other" not in NAMES
    for same in (copy.deepcopy(NAMES), pickle.loads(pickle.dumps(NAMES))):
        assert same == NAMES
        assert same.what == "model"


def test_what_is_no_name_gets_a_sentence():
    with pytest.raises(UnknownName, match="There is no model named 3: there are te-tnp, tnp, ConvCNP"):
        NAMES[3]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("tetnp", "did you mean 'te-tnp'?"),
        ("TE-TNP", "did you mean 'te-tnp'?"),
        ("convcnp", "did you mean 'ConvCNP'?"),
        ("zzz", "there are te-tnp, tnp, ConvCNP."),
    ],
)
def test_a_wrong_name_gets_a_sentence(name, hint):
    sentence = f"There is no model named {name!r}: {hint}"
    for call in (lambda: NAMES[name], lambda: choose(name, NAMES, "model"), lambda: choose(name, dict(NAMES), "model")):
        with pytest.raises(UnknownName) as caught:
            call()
        assert str(caught.value) == sentence
        assert isinstance(caught.value, KeyError)
        assert isinstance(caught.value, ValueError)
