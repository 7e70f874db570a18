"""bfloat16 on every processor: never a crash, and never slower than float32."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
import torch

from shiftnp import _cpu
from shiftnp.attention import precision

CPUINFO = """processor\t: 0
model name\t: Intel(R) Xeon(R)
cpuid level\t: {level}
flags\t\t: fpu avx2 avx512f avx512_bf16 {flags}
bugs\t\t:

processor\t: 1
cpuid level\t: 99
flags\t\t: fpu
"""
HIDDEN = {"flags": "fpu amx_tile amx_bf16", "cpuid level": "28"}
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _fresh():
    """No test sees what another one measured."""
    for known in (precision.measured, precision.runs):
        known.cache_clear()
    yield
    for known in (precision.measured, precision.runs):
        known.cache_clear()


@pytest.mark.parametrize(
    ("flags", "level", "hidden"),
    [("amx_tile amx_bf16", 28, True), ("amx_tile amx_bf16", 29, False), ("amx_tile", 13, True), ("", 28, False)],
)
def test_hidden_tiles_are_seen(flags, level, hidden, tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_text(CPUINFO.format(flags=flags, level=level))
    core = _cpu.first_core(file)
    assert core["model name"] == "Intel(R) Xeon(R)"
    assert core["cpuid level"] == str(level)
    assert _cpu.hides_tiles(core) is hidden
    environment: dict[str, str] = {}
    assert _cpu.limit_onednn(core, environment) is hidden
    assert environment == ({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"} if hidden else {})


def test_a_limit_of_the_user_stays():
    environment = {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    assert not _cpu.limit_onednn(HIDDEN, environment)
    assert environment == {"ONEDNN_MAX_CPU_ISA": "AVX2"}


@pytest.mark.parametrize("text", ["", "Features : fp asimd bf16\n", "cpuid level : ?\nflags : amx_tile\n", "\xff\x00"])
def test_odd_descriptions_do_no_harm(text, tmp_path):
    file = tmp_path / "cpuinfo"
    file.write_bytes(text.encode("latin-1"))
    assert not _cpu.hides_tiles(_cpu.first_core(file))


def test_systems_without_a_description(tmp_path):
    assert _cpu.first_core(tmp_path / "missing") == {}
    assert not _cpu.hides_tiles({})


def test_import_sets_the_limit_and_takes_no_time(tmp_path):
    """In a process of its own, with the description of a processor that hides its tiles."""
    file = tmp_path / "cpuinfo"
    file.write_text(CPUINFO.format(flags="amx_tile", level=28))
    code = f"""
import os, pathlib, sys
opened = pathlib.Path.open
pathlib.Path.open = lambda p, *a, **k: opened(pathlib.Path({str(file)!r}) if str(p) == "/proc/cpuinfo" else p, *a, **k)
if "late" in sys.argv:
    import torch
import shiftnp
print(os.environ["ONEDNN_MAX_CPU_ISA"], shiftnp._cpu.TOO_LATE)
"""
    clean = {k: v for k, v in os.environ.items() if k != "ONEDNN_MAX_CPU_ISA"}
    for late in (False, True):
        command = [sys.executable, "-c", code, *(["late"] if late else [])]
        run = subprocess.run(command, env=clean, capture_output=True, text=True, check=True)
        assert run.stdout.split() == ["AVX512_CORE_FP16", str(late)]
    start = time.perf_counter()
    for _ in range(10):
        _cpu.first_core()
    assert (time.perf_counter() - start) / 10 < 0.005  # 0.1 ms where nothing else runs


@pytest.mark.parametrize("seconds", [1.0, 0.95, 0.5])
def test_bf16_pays_where_it_measures_faster(seconds, monkeypatch):
    """A clock that counts a float32 product as one second."""
    now = [0.0]
    product = torch.mm

    def counted(a, b, out):
        now[0] += seconds if a.dtype == torch.bfloat16 else 1.0
        assert a.dtype == b.dtype == out.dtype
        return product(a, b, out=out)

    monkeypatch.setattr(torch, "mm", counted)
    monkeypatch.setattr(time, "process_time", lambda: now[0])
    monkeypatch.setattr(precision, "runs", lambda: True)
    assert precision.gain(16, 64) == pytest.approx(1 / seconds)
    with torch.autocast("cpu", torch.bfloat16):  # changes nothing about what is measured
        assert precision.bf16_pays(CPU, 16) is (seconds == 0.5)


def test_emulated_products_are_measured_once_and_with_few_rows(monkeypatch):
    now, calls = [0.0], []
    each = precision.REPEATS + 1

    def counted(a, b, out):
        calls.append(a.shape)
        now[0] += 26.0 if a.dtype == torch.bfloat16 else 1.0
        return out

    monkeypatch.setattr(torch, "mm", counted)
    monkeypatch.setattr(time, "process_time", lambda: now[0])
    monkeypatch.setattr(precision, "runs", lambda: True)
    assert not precision.bf16_pays(CPU, 100)
    assert not precision.bf16_pays(CPU, 128)  # the same size class
    assert calls == [(64, 128)] * 2 * each
    assert not precision.bf16_pays(CPU, 64)
    assert calls[2 * each :] == [(64, 64)] * 2 * each


def test_products_have_the_size_at_hand(monkeypatch):
    """bfloat16 that pays for many rows only, as its conversions cost more than few rows gain."""
    sizes = []
    monkeypatch.setattr(
        precision, "gain", lambda width, rows: sizes.append((width, rows)) or (2.0 if rows > 512 else 0.9)
    )
    monkeypatch.setattr(precision, "runs", lambda: True)
    precision.measured.cache_clear()
    assert precision.bf16_pays(CPU, 128)
    assert precision.bf16_pays(CPU, 128, 10**6)  # no more than a tile
    assert precision.bf16_pays(CPU, 120, 700)
    assert not precision.bf16_pays(CPU, 128, 300)  # 512 rows
    assert not precision.bf16_pays(CPU, 128, 1)
    assert [rows for _, rows in sizes if rows > 64] == [4096, 1024, 512]
    precision.measured.cache_clear()


def test_with_amx_another_process_tries_first(monkeypatch):
    monkeypatch.setattr(precision, "gain", lambda width, rows: 2.0)
    monkeypatch.setattr(_cpu, "CORE", HIDDEN)
    monkeypatch.setattr(_cpu, "TOO_LATE", False)
    for trial, survives in (("import os; os.kill(os.getpid(), 4)", False), ("pass", True)):
        monkeypatch.setattr(precision, "TRIAL", trial)
        precision.runs.cache_clear()
        precision.measured.cache_clear()
        assert precision.bf16_pays(CPU, 128) is survives
    precision.runs.cache_clear()
    precision.measured.cache_clear()
    monkeypatch.setattr(_cpu, "TOO_LATE", True)
    assert not precision.bf16_pays(CPU, 128)


def test_tests_import_the_package_before_torch():
    order = list(sys.modules)
    assert order.index("shiftnp") < order.index("torch")


def test_measuring_here_leaves_no_trace():
    state = torch.random.get_rng_state()
    start = time.perf_counter()
    assert precision.bf16_pays(CPU, 128) in (True, False)
    assert time.perf_counter() - start < 10  # milliseconds, or two seconds with AMX, on an idle machine
    assert torch.equal(state, torch.random.get_rng_state())
