"""The settings of the memory allocator, each in a process of its own."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from shiftnp._memory import keep_freed_memory

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is of glibc")

FAULTS = """
import resource, sys
from shiftnp._memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
import torch
def use():
    for _ in range(5):
        torch.stack([torch.ones(4_000_000) for _ in range(8)]).sum()  # 256 MB, 63,000 pages
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    """Page faults of a computation with large tensors, the second time."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", FAULTS, how]
    return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


@glibc
def test_pages_are_used_again():
    assert 10 * faults("keep") < faults("default")


def test_the_users_settings_are_kept(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    assert not keep_freed_memory()


def test_other_c_libraries_are_left_alone(monkeypatch):
    for name in [name for name in os.environ if name.startswith("MALLOC_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    assert not keep_freed_memory()
