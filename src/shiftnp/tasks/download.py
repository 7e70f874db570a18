"""Data files: found in the user's folders or in the cache, or downloaded."""

from __future__ import annotations

import gzip
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pooch
import requests
from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

VARIABLE = "SHIFTNP_DATA"
"""Environment variable with the path of the data folder."""

MNIST = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
CIFAR = ("https://www.cs.toronto.edu/~kriz/",)


@dataclass(frozen=True)
class Source:
    """Download URLs of a file, and its hash.

    Args:
        urls: URLs, tried one after the other.
        known_hash: "sha256:..." or "md5:..." of the stored file.
        unpack: decompress the gzipped file and store its content. Mirrors compress the same content differently, so
            that only the hash of the content can be checked.
    """

    urls: tuple[str, ...]
    known_hash: str
    unpack: bool = False


def _mnist(name: str, sha256: str) -> Source:
    return Source(tuple(f"{base}{name}.gz" for base in MNIST), f"sha256:{sha256}", unpack=True)


SOURCES: dict[str, Source] = {
    "mnist/train-images-idx3-ubyte": _mnist(
        "train-images-idx3-ubyte", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
    ),
    "mnist/t10k-images-idx3-ubyte": _mnist(
        "t10k-images-idx3-ubyte", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
    ),
    # The authors of CIFAR-10 publish an MD5 hash, which detects transmission errors. Against tampering there is HTTPS,
    # and a reader that does not unpickle arbitrary objects.
    "cifar10/cifar-10-python.tar.gz": Source(
        tuple(f"{base}cifar-10-python.tar.gz" for base in CIFAR), "md5:c58f30108f718f92721af3b95e74349a"
    ),
    "cifar10/cifar-10-binary.tar.gz": Source(
        tuple(f"{base}cifar-10-binary.tar.gz" for base in CIFAR), "md5:c32a1d4ab5d03f1284b67883e8d87530"
    ),
}
"""Files that can be downloaded, by their path in a data folder."""


def cache() -> Path:
    """The user's cache folder of downloaded data."""
    return Path(pooch.os_cache("shiftnp")) / "data"


def data_folder() -> Path | None:
    """The folder that SHIFTNP_DATA names, None if it is not set."""
    folder = os.environ.get(VARIABLE)
    return Path(folder).expanduser() if folder else None


def folders(folder: Path | str | None = None) -> Iterator[Path]:
    """The folders that are searched, in this order: `folder`, SHIFTNP_DATA, the user's cache."""
    for path in (folder, data_folder()):
        if path:
            yield Path(path).expanduser()
    yield cache()


def find(name: str, *others: str, folder: Path | str | None = None, download: bool = True) -> Path:
    """The path of file `name` or of the first of `others` that exists; if there is none, `name` is downloaded.

    Args:
        name: path in the data folder, as "mnist/train-images-idx3-ubyte". The file may also be in the folder itself.
        others: names of the same data in other formats.
        folder: a folder to search before SHIFTNP_DATA and the user's cache.
        download: whether to download the file if it is not found.
    """
    for root in folders(folder):
        for candidate in (name, *others):
            for path in (root / candidate, root / Path(candidate).name):
                if path.exists():
                    return path
    source = SOURCES.get(name)
    reasons = download_from(name, source) if source and download else []
    if isinstance(reasons, Path):
        return reasons
    problem = f" and could not be downloaded ({', '.join(reasons)})" if reasons else ""
    origin = source.urls[0] if source else "it"
    looked = ", ".join(str(root) for root in folders(folder))
    raise FileNotFoundError(
        f"{Path(name).name} is not in {looked}{problem}: get {origin}, put it into a folder "
        f"and set {VARIABLE} to that folder."
    )


def download_from(name: str, source: Source) -> Path | list[str]:
    """Downloads a file to the user's cache; returns its path, or the reason why each URL failed."""
    reasons = []
    for url in source.urls:
        host = url.split("/")[2]
        try:
            return fetch(name, url, source.known_hash, source.unpack, cache())
        except requests.HTTPError as error:
            reasons.append(f"{host} answers {getattr(error.response, 'status_code', 'with an error')}")
        except requests.RequestException:
            reasons.append(f"no connection to {host}")
        except ValueError:  # pooch's error for a wrong hash
            reasons.append(f"what {host} sent has another hash")
        except OSError as error:
            reasons.append(str(error))
    return reasons


def fetch(name: str, url: str, known_hash: str, unpack: bool, folder: Path) -> Path:
    """Downloads a file to `folder / name`, which is created only when the file is complete and its hash is correct."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(path.name + ".lock")), quiet_pooch():  # several processes may want it at once
        # The retry is for a broken connection, and for a partial file from another download.
        store = pooch.Pooch(folder, base_url="", registry={name: known_hash}, urls={name: url}, retry_if_failed=1)
        return Path(store.fetch(name, downloader=Resume(path.with_name(path.name + ".part"), unpack)))


@contextmanager
def quiet_pooch() -> Iterator[None]:
    """Silences pooch's log messages, which the progress bar and the error message replace."""
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")
    try:
        yield
    finally:
        logger.setLevel(level)


@dataclass(frozen=True)
class Resume:
    """A downloader for pooch that resumes an interrupted download.

    Args:
        part: partial file with the bytes received so far. Pooch's own temporary file is new in every attempt.
        unpack: decompress a gzipped file.
    """

    part: Path
    unpack: bool = False

    def __call__(self, url: str, output_file: Any, pooch: Any = None) -> None:
        self.receive(url)
        try:
            if self.unpack:
                with gzip.open(self.part) as packed, Path(output_file).open("wb") as content:
                    shutil.copyfileobj(packed, content)
            else:
                self.part.replace(output_file)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"what came from {url} cannot be unpacked.") from error
        finally:
            self.part.unlink(missing_ok=True)  # if the hash is wrong, the next attempt starts from the beginning

    def receive(self, url: str) -> None:
        """Downloads the rest of the file to `part`."""
        have = self.part.stat().st_size if self.part.exists() else 0
        headers = {"Accept-Encoding": "identity"}  # byte ranges refer to the file as stored on the server
        if have:
            headers["Range"] = f"bytes={have}-"
        with requests.get(url, headers=headers, stream=True, timeout=(10, 60)) as reply:
            span = reply.headers.get("Content-Range", "")
            if reply.status_code == 416:  # range not satisfiable: the partial file is complete, or too long
                if not span.endswith(f"/{have}"):
                    self.part.unlink()
                    raise requests.ConnectionError(f"{self.part.name} is longer than {url}.")
                return
            reply.raise_for_status()
            resumed = reply.status_code == 206 and span.startswith(f"bytes {have}-")
            have = have if resumed else 0
            length = reply.headers.get("Content-Length")
            total = have + int(length) if length else None
            with self.part.open("ab" if resumed else "wb") as file, progress_bar() as bar:
                line = bar.add_task(Path(url).name, total=total, completed=have)
                for chunk in reply.iter_content(1 << 16):
                    file.write(chunk)
                    bar.advance(line, len(chunk))


def progress_bar() -> Progress:
    """A progress bar of a download, on standard error."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
