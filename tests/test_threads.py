"""Tiles and chunks in threads: the same results, the caller's modes, exceptions, child processes."""

from __future__ import annotations

import multiprocessing
import threading

import pytest
import torch

from conftest import random_batch, small_model
from shiftnp.attention import threads, tiled
from shiftnp.nn import transformer
from test_tiled import by_tiles, make, results, specified, worst

HERE = torch.device("cpu")


@pytest.fixture
def three_threads():
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(1)


@pytest.mark.parametrize("kept", [0, 1 << 21])  # recomputed in the backward pass, or kept
@pytest.mark.parametrize("masked", [False, True])
def test_tiles_in_threads_are_the_specification(three_threads, monkeypatch, masked, kept):
    monkeypatch.setattr(tiled, "KEPT", kept)
    setup = make(torch.float64, None, masked, True)
    ours = results(by_tiles(20), setup)
    assert worst(ours, results(specified, setup)) < 1e-12
    for a, b in zip(ours, results(by_tiles(20), setup), strict=True):  # sums have a fixed order
        assert torch.equal(a, b)


@pytest.mark.parametrize("options", [{}, {"radius": 0.5}, {"kernel": "rotary"}])
@pytest.mark.parametrize("chunk", [7, 1000])  # chunks in threads, or parts of one chunk
def test_predictions_do_not_depend_on_threads(monkeypatch, options, chunk):
    monkeypatch.setattr(transformer, "MOST_QUERIES", 6)
    monkeypatch.setattr(transformer, "DENSE", 8)
    model, batch = small_model("te-tnp", **options), random_batch(b=1, nc=20, nt=40)
    arguments = batch.xc[0], batch.yc[0], batch.xt[0]
    alone = model.predict(*arguments, chunk=chunk)
    torch.set_num_threads(3)
    try:
        with torch.inference_mode(chunk == 7):
            together = model.predict(*arguments, chunk=chunk)
    finally:
        torch.set_num_threads(1)
    for a, b in zip(alone, together, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_each_piece_runs_once_in_one_of_the_threads(three_threads):
    seen, together = [], threading.Barrier(3)

    def piece(i: int) -> None:
        if i < 3:
            together.wait(60)  # three pieces at a time
        seen.append((i, threading.current_thread().name, torch.get_num_threads(), threads.count(HERE, 9)))

    threads.each(piece, range(10), HERE)
    assert sorted(i for i, *_ in seen) == list(range(10))
    assert len({name for _, name, *_ in seen}) == 3
    assert {(n, inside) for _, _, n, inside in seen} == {(1, 1)}  # no threads of threads
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("gradients", [False, True])
def test_the_modes_of_the_caller_hold(three_threads, gradients):
    seen = []
    with torch.set_grad_enabled(gradients), torch.autocast("cpu", torch.bfloat16), tiled.low_precision(gradients):
        threads.each(
            lambda _: seen.append(
                (
                    torch.is_grad_enabled(),
                    tiled.uses_low_precision(HERE, 8),
                    (torch.ones(2, 2) @ torch.ones(2, 2)).dtype,
                )
            ),
            range(4),
            HERE,
        )
    assert set(seen) == {(gradients, gradients, torch.bfloat16)}


def test_after_an_exception_no_piece_is_begun(three_threads):
    begun = []

    def piece(i: int) -> None:
        begun.append(i)
        if i == 0:
            raise ZeroDivisionError("here")
        threading.Event().wait(0.05)

    with pytest.raises(ZeroDivisionError, match="here"):
        threads.each(piece, range(1000), HERE)
    assert len(begun) < 20


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own(three_threads):
    threads.each(lambda _: None, range(3), HERE)
    results = multiprocessing.get_context("fork").Queue()

    def child() -> None:
        done = []
        threads.each(done.append, range(5), HERE)
        results.put(sorted(done))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    assert results.get(timeout=60) == [0, 1, 2, 3, 4]
    process.join()
