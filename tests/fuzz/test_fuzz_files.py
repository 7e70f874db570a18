"""Damaged files of every kind that tasks read: usable data or one sentence that names the file, and in time."""

from __future__ import annotations

import gc
import gzip
import io
import pickle
import shutil
import struct
import tarfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest
import torch

from fuzz.cases import cases
from shiftnp.tasks import ClimateTask, KolmogorovTask, TableTask, hdf5_check
from shiftnp.tasks.image_files import read_cifar, read_idx, read_sheet

SECONDS = 60.0  # for one file; on an idle machine the slowest takes two
RNG = np.random.default_rng(0)


# --- one small valid file of every kind ------------------------------------------------------------------------------


def table(path: Path) -> None:
    import pandas as pd

    n = 60
    day = np.repeat(pd.date_range("2020-01-01", periods=12), 5)
    data = {"lon": RNG.uniform(5, 15, n), "lat": RNG.uniform(45, 55, n), "t": RNG.normal(10, 3, n)}
    frame = pd.DataFrame(data).round(4).assign(day=day)
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")


LAT, LON, HOURS = np.arange(42.5, 53, 1.0), np.arange(8.5, 28, 1.0), np.arange(30) * 6.0


def field() -> np.ndarray:
    return (280 + RNG.normal(0, 3, (len(HOURS), len(LAT), len(LON)))).astype(np.float32)


def climate(path: Path) -> None:
    import xarray as xr

    time = "time", HOURS, {"units": "hours since 2019-01-01"}
    data = xr.Dataset({"t2m": (("time", "lat", "lon"), field(), {"units": "K"})}, {"time": time})
    data = data.assign_coords(lat=LAT, lon=LON)
    data["orog"] = ("lat", "lon"), RNG.uniform(0, 900, (len(LAT), len(LON))), {"units": "m"}
    if path.suffix == ".zarr":
        data.to_zarr(path, consolidated=False, zarr_format=3)
    elif path.suffix == ".cdf":
        data.to_netcdf(path, engine="scipy")
    else:
        packed = {"zlib": True, "chunksizes": (10, 6, 10)}
        data.to_netcdf(path, engine="h5netcdf", encoding={"t2m": packed} if path.stem == "packed" else {})


def npz(path: Path) -> None:
    heights = RNG.uniform(0, 900, (len(LAT), len(LON)))
    np.savez(path, lat=LAT, lon=LON, time_h=HOURS.astype(np.int64) + 429_000, t2m_K=field(), elevation_m=heights)


def trajectory(path: Path) -> None:
    np.save(path, RNG.normal(size=(24, 2, 8, 8)).astype(np.float32))


def idx(path: Path) -> None:
    data = struct.pack(">HBB3I", 0, 8, 3, 9, 28, 28) + RNG.bytes(9 * 784)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def photos() -> np.ndarray:
    return RNG.integers(0, 256, (4, 3072), np.uint8)


def batch(path: Path) -> None:
    path.write_bytes(pickle.dumps({b"data": photos(), b"labels": [0] * 4, b"batch_label": b"one"}, protocol=2))


def binary(path: Path) -> None:
    path.write_bytes(np.concatenate([np.zeros((4, 1), np.uint8), photos()], 1).tobytes())


def archive(path: Path) -> None:
    content = io.BytesIO()
    pickle.dump({b"data": photos()}, content, protocol=2)
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo("cifar-10-batches-py/test_batch")
        info.size = content.tell()
        content.seek(0)
        tar.addfile(info, content)


def sheet(path: Path) -> None:
    from PIL import Image

    Image.fromarray(photos().reshape(4, 1024, 3)).save(path)


# --- reading it as a user does ---------------------------------------------------------------------------------------


def sample(task: Any) -> list[torch.Tensor]:
    made = task.sample(2, torch.Generator().manual_seed(0))
    return [made.xc, made.yc, made.xt, made.yt]


def read_table(path: Path) -> list[Any]:
    return sample(TableTask(path, inputs=("lon", "lat", "day"), outputs=("t",), group="day"))


def read_climate(path: Path) -> list[Any]:
    return sample(ClimateTask(path, size=(3, 3, 2)))


def read_flow(path: Path) -> list[Any]:
    return sample(KolmogorovTask(path, crop=(4, 4, 4), points=(1, 20)))


@dataclass(frozen=True)
class Kind:
    """A kind of file: its name, how one is written and read, and how many cases `make test` tries."""

    name: str
    write: Callable[[Path], None]
    read: Callable[[Path], list[Any]]
    count: int = 4


KINDS = {
    kind.name: kind
    for kind in (
        Kind("a.csv", table, read_table),
        Kind("a.csv.gz", table, read_table),
        Kind("a.tsv", table, read_table),
        Kind("a.parquet", table, read_table),
        Kind("a.npz", npz, read_climate),
        Kind("a.cdf", climate, read_climate),
        Kind("a.nc", climate, read_climate, 2),
        Kind("packed.nc", climate, read_climate, 2),
        Kind("a.zarr", climate, read_climate),
        Kind("a.npy", trajectory, read_flow),
        Kind("digits", idx, lambda path: [read_idx(path)]),
        Kind("digits.gz", idx, lambda path: [read_idx(path)]),
        Kind("test_batch", batch, lambda path: [read_cifar(path.parent, "test")]),
        Kind("test_batch.bin", binary, lambda path: [read_cifar(path.parent, "test")]),
        Kind("cifar.tar.gz", archive, lambda path: [read_cifar(path, "test")]),
        Kind("test_batch.png", sheet, lambda path: [read_sheet(path)]),
    )
}


# --- damage ----------------------------------------------------------------------------------------------------------


TEXT = b"0123456789eE+-.,:\"' \n\t{}[]x"


def damage(data: bytes, other: bytes, r: np.random.Generator) -> bytes:
    """The content of a file after one or several accidents; `other` is the content of a file of another kind."""
    out = bytearray(data)
    for _ in range(int(r.choice((1, 1, 2, 4)))):
        n = len(out)
        # Half of all accidents are near one of the ends, where formats keep their headers.
        at = int(r.integers(n + 1)) if r.random() < 0.5 else int(min(n, r.geometric(0.02)))
        at = n - at if r.random() < 0.3 else at
        end = min(n, at + int(r.geometric(0.05)))
        match int(r.integers(10)):
            case 0:
                del out[at:]
            case 1:
                for k in range(at, end):
                    out[k] ^= 1 << int(r.integers(8))
            case 2 if at < n:
                out[at] = int(r.integers(256))
            case 3:
                del out[at:end]
            case 4:
                out[at:at] = out[at:end]
            case 5:
                out[at:end] = bytes(end - at)
            case 6:
                out[at:end] = b"\xff" * (end - at)
            case 7 | 8 if at < n:  # text remains text
                out[at] = TEXT[int(r.integers(len(TEXT)))]
            case 9 if r.random() < 0.3:
                head = int(r.geometric(0.02))
                out[:head] = other[:head] if r.random() < 0.8 else b""
    return bytes(out) if r.random() > 0.02 else b""


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(tmp_path_factory.mktemp("originals"))


def write_all(folder: Path) -> Path:
    """One valid file of every kind, each in a folder of its own."""
    for kind in KINDS.values():
        (folder / kind.name).mkdir()
        kind.write(folder / kind.name / kind.name)
    return folder


def spoil(kind: Kind, originals: Path, folder: Path, seed: int) -> Path:
    """A damaged copy of the file of a kind; of a folder, one or several files are damaged or gone."""
    r = np.random.default_rng((seed, *kind.name.encode()))
    others = [path for path in sorted(originals.glob("*/*")) if path.is_file() and path.name != kind.name]
    other = others[int(r.integers(len(others)))].read_bytes()
    source, path = originals / kind.name / kind.name, folder / kind.name
    if source.is_file():
        path.write_bytes(damage(source.read_bytes(), other, r))
        return path
    shutil.copytree(source, path)
    members = sorted(p for p in path.rglob("*") if p.is_file())
    described = [p for p in members if p.suffix == ".json"]
    for _ in range(int(r.integers(1, 3))):
        among = described if r.random() < 0.5 else members
        member = among[int(r.integers(len(among)))]
        if not member.exists():
            continue
        if r.random() < 0.1:
            member.unlink()
        else:
            member.write_bytes(damage(member.read_bytes(), other, r))
    return path


def check(kind: Kind, path: Path) -> str:
    """Reads a file and says how it went; anything but data or one sentence is a failed assertion."""
    start = monotonic()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Column .* looks like a fill value")
            arrays = kind.read(path)
    except (ValueError, OSError, ImportError) as error:
        sentence = str(error)
        assert len(sentence.splitlines()) == 1
        assert sentence.isprintable()
        assert str(path.parent) in sentence
        assert sentence.endswith(".")
        assert len(sentence) < 1200
        assert "Traceback" not in sentence
        outcome = "refused"
    else:
        assert all(np.isfinite(np.asarray(array)).all() for array in arrays)
        outcome = "read"
    assert monotonic() - start < SECONDS
    return outcome


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_damaged_file_is_read_or_refused_in_one_sentence(kind, originals, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(hdf5_check, "SECONDS", SECONDS / 3)
    assert check(kind, originals / kind.name / kind.name) == "read"
    outcomes = []
    for seed in cases(kind.count):
        folder = tmp_path / str(seed)
        folder.mkdir()
        path = spoil(kind, originals, folder, seed)
        try:
            outcomes.append(check(kind, path))
        except BaseException:
            print(f"{kind.name}, seed {seed}: the file is {path}")
            raise
        shutil.rmtree(folder)
    assert "refused" in outcomes
    gc.collect()  # when background tasks of a reader report errors that nobody asked for
    assert not caplog.records
