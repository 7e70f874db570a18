"""Readers of MNIST (IDX) and CIFAR-10 (archive, folder or PNG sheets): uint8 arrays `[n, height, width, channels]`."""

from __future__ import annotations

import gzip
import io
import logging
import math
import pickle
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from torch.utils.data import get_worker_info

from shiftnp.tasks.download import find
from shiftnp.tasks.reading import reading

log = logging.getLogger(__name__)

CIFAR_BATCHES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
FORMS = ("", ".bin")  # pickles and binaries
CIFAR_FILES = (
    "cifar10/cifar-10-python.tar.gz",
    "cifar10/cifar-10-batches-py",
    "cifar10/cifar-10-binary.tar.gz",
    "cifar10/cifar-10-batches-bin",
)


@dataclass(frozen=True)
class DataSet:
    """An image data set: the size of its images, their number, and the files that may hold them, preferred ones
    first."""

    side: int
    channels: int
    counts: dict[str, int]
    files: dict[str, tuple[str, ...]]


def _idx(name: str) -> tuple[str, ...]:
    return (f"mnist/{name}-images-idx3-ubyte", f"mnist/{name}-images-idx3-ubyte.gz")


DATASETS = {
    "mnist": DataSet(28, 1, {"train": 60_000, "test": 10_000}, {"train": _idx("train"), "test": _idx("t10k")}),
    "cifar10": DataSet(
        32,
        3,
        {"train": 50_000, "test": 10_000},
        {
            "train": (*CIFAR_FILES, "cifar10/data_batch_1.png"),
            "test": (*CIFAR_FILES, "cifar10/test_batch.png", "cifar10/cifar10_test_first2000.png"),
        },
    ),
}


def read_images(dataset: str, part: str, folder: Path | str | None = None) -> UInt8[np.ndarray, "n side side c"]:
    """The images of `part` ("train" or "test") that the files contain, in their original order."""
    about = DATASETS[dataset]
    path = find(*about.files[part], folder=folder)
    images = read_idx(path)[..., None] if dataset == "mnist" else read_cifar(path, part)
    if images.shape[1:] != (about.side, about.side, about.channels):
        raise ValueError(f"{path} holds arrays of {images.shape[1:]}, not the images of {dataset}: replace it.")
    worker = get_worker_info()
    if len(images) < about.counts[part] and (worker is None or worker.id == 0):
        log.warning(f"{dataset}: {path} has {len(images)} of {about.counts[part]} {part} images, which are used.")
    return images


def read_idx(path: Path) -> UInt8[np.ndarray, " n *shape"]:
    """An array of bytes in the IDX format of MNIST, gzipped or not."""
    with reading(path, "an IDX file"):
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    start = 4 + 4 * data[3] if len(data) > 4 else 4
    if data[:3] != b"\0\0\x08" or len(data) <= start or not 1 <= data[3] <= 8:  # type uint8, a valid number of axes
        raise ValueError(f"{path} is no IDX file of bytes: replace it.")
    shape = [int(n) for n in np.frombuffer(data[4:start], ">u4")]
    if len(data) - start != math.prod(shape):
        raise ValueError(f"{path} should hold {math.prod(shape)} values, not {len(data) - start}: get it again.")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape).copy()  # torch needs a writable array


def read_cifar(path: Path, part: str) -> UInt8[np.ndarray, "n 32 32 3"]:
    """CIFAR-10 from the official archive (pickles or binaries), from its unpacked folder, or from PNG sheets.

    If batches are missing, only those before the first missing one are read, so that image `i` is always the same.
    """
    if path.suffix == ".png":
        sheets = [path] if part == "test" else [path.with_name(f"{name}.png") for name in CIFAR_BATCHES[part]]
        parts = {sheet.name: read_sheet(sheet) for sheet in sheets if sheet.exists()}
        return _first_batches(parts, [sheet.name for sheet in sheets], path)
    wanted = CIFAR_BATCHES[part]
    found: dict[str, UInt8[np.ndarray, "n 32 32 3"]] = {}
    with reading(path, "CIFAR-10"):
        if path.is_dir():
            for file in path.iterdir():
                if file.stem in wanted and file.suffix in FORMS:
                    found[file.stem] = read_batch(file.read_bytes(), binary=file.suffix == ".bin")
        else:
            with tarfile.open(path) as archive:
                for member in archive:  # in one pass: seeking back in a gzipped file decompresses it again
                    name, content = Path(member.name), archive.extractfile(member)
                    if name.stem in wanted and name.suffix in FORMS and content is not None:
                        found[name.stem] = read_batch(content.read(), binary=name.suffix == ".bin")
    return _first_batches(found, wanted, path)


def _first_batches(parts: dict[str, Any], names: list[str], path: Path) -> UInt8[np.ndarray, "n 32 32 3"]:
    """The batches before the first missing one, concatenated."""
    batches = []
    for name in names:
        if name not in parts:
            break
        batches.append(parts[name])
    if not batches:
        raise ValueError(f"{path} has no {names[0]}: get the data again.")
    return np.concatenate(batches)


def read_batch(data: bytes, binary: bool) -> UInt8[np.ndarray, "n 32 32 3"]:
    """One batch: records of a label and 3 x 32 x 32 bytes, or a pickled dictionary with an array of these bytes."""
    if binary:
        planes = np.frombuffer(data, np.uint8).reshape(-1, 3073)[:, 1:]
    else:
        planes = _ArraysOnly(io.BytesIO(data), encoding="bytes").load()[b"data"]
    if planes.dtype != np.uint8:
        raise TypeError(f"pixels are {planes.dtype}, not bytes")
    return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def read_sheet(path: Path) -> UInt8[np.ndarray, "n 32 32 3"]:
    """Images from an RGB sheet, each row of 1024 pixels being one image of 32 x 32."""
    from PIL import Image

    with reading(path, "a PNG picture"), Image.open(path) as sheet:
        mode, width = sheet.mode, sheet.width
        pixels = np.array(sheet) if (mode, width) == ("RGB", 1024) else None
    if pixels is None:
        raise ValueError(f"{path} must be an RGB picture 1024 wide, not {mode} and {width}: replace it.")
    return pixels.reshape(-1, 32, 32, 3)


def _latin1(text: str, encoding: str = "latin1") -> bytes:
    return text.encode("latin1")


class _ArraysOnly(pickle._Unpickler):
    """Restricted unpickler for plain objects, bytes and numpy arrays; any other class could run arbitrary code.

    It is the pure-Python unpickler, because the one in C allocates up to 64 GB for a damaged size field.
    """

    ALLOWED = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
        ("numpy._core.multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): _latin1,  # how Python 3 pickles bytes in protocol 2
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no image data need") from None
