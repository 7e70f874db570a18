from __future__ import annotations

import gzip
import hashlib
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from shiftnp.tasks import download
from shiftnp.tasks.download import SOURCES, Source, find

SHARED = Path(__file__).parents[2] / "shared" / "data"
CONTENT = np.random.default_rng(0).bytes(300_000)  # more than a few chunks
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


class Server(ThreadingHTTPServer):
    """Files of this test alone, on this machine alone."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"/file": CONTENT, "/file.gz": gzip.compress(CONTENT)}
        self.cuts = []  # each of the next answers breaks off after so many bytes
        self.ranges = []  # what was asked for
        self.knows_ranges = True

    def url(self, path="/file"):
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    timeout = 5

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.server.ranges.append(wanted)
        content = self.server.files.get(self.path)
        if content is None:
            return self.send_error(404)
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and self.server.knows_ranges else 0
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = start + self.server.cuts.pop(0) if self.server.cuts else None
        self.wfile.write(content[start:end])

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(timeout=5)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache, no data, no proxy, and no waiting between attempts."""
    monkeypatch.delenv("SHIFTNP_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    monkeypatch.setattr(download, "cache", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def offer(monkeypatch):
    """Makes a file known under the name set/file."""

    def offer(*urls, known_hash=SHA256, unpack=False):
        monkeypatch.setitem(SOURCES, "set/file", Source(tuple(urls), known_hash, unpack))

    return offer


# --- looking ---------------------------------------------------------------------------------------------------------


def test_folders_are_searched_in_their_order(tmp_path, cache, monkeypatch):
    given, named = tmp_path / "given", tmp_path / "named"
    monkeypatch.setenv("SHIFTNP_DATA", str(named))
    for place in (cache, named, given):
        (place / "set").mkdir(parents=True)
        (place / "set" / "file").write_text("x")
        assert find("set/file", folder=given) == place / "set" / "file"
    assert find("set/file") == named / "set" / "file"


def test_the_environment_variable_names_one_folder(monkeypatch):
    assert download.data_folder() is None
    monkeypatch.setenv("SHIFTNP_DATA", "")
    assert download.data_folder() is None
    monkeypatch.setenv("SHIFTNP_DATA", "~/data")
    assert download.data_folder() == Path.home() / "data"


def test_a_file_may_lie_in_the_folder_itself_and_have_another_form(tmp_path):
    (tmp_path / "file.gz").write_text("x")
    assert find("set/file", "set/file.gz", folder=tmp_path) == tmp_path / "file.gz"
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "file").write_text("x")
    assert find("set/file", "set/file.gz", folder=str(tmp_path)) == tmp_path / "set" / "file"


def test_one_sentence_says_what_to_do(tmp_path, offer):
    with socket.socket() as nobody:  # bound, but it does not listen: as without a network
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/file"
        offer(url)
        with pytest.raises(FileNotFoundError) as error:
            find("set/file", folder=tmp_path / "given")
    sentence = str(error.value)
    for word in ("file is not in", str(tmp_path / "given"), "no connection", f"get {url},", "SHIFTNP_DATA"):
        assert word in sentence
    assert "\n" not in sentence
    assert ". " not in sentence
    with pytest.raises(FileNotFoundError, match=r"other is not in .*SHIFTNP_DATA"):
        find("set/other")


# --- downloading -----------------------------------------------------------------------------------------------------


def test_what_is_downloaded_stays(server, offer, cache):
    offer(server.url())
    path = find("set/file")
    assert path == cache / "set" / "file"
    assert path.read_bytes() == CONTENT
    assert find("set/file") == path
    assert server.ranges == [None]
    assert {p.name for p in path.parent.iterdir()} <= {"file", "file.lock"}


def test_content_is_checked_and_kept_unpacked(server, offer):
    offer(server.url("/file.gz"), unpack=True)
    assert find("set/file").read_bytes() == CONTENT


def test_nothing_is_downloaded_unasked(server, offer):
    offer(server.url())
    with pytest.raises(FileNotFoundError):
        find("set/file", download=False)
    assert server.ranges == []


def test_an_interrupted_download_goes_on(server, offer, cache):
    offer(server.url())
    server.cuts = [140_000, 70_000]  # both attempts break; whole pieces of 65,536 bytes are kept
    with pytest.raises(FileNotFoundError, match="no connection"):
        find("set/file")
    assert not (cache / "set" / "file").exists()
    assert (cache / "set" / "file.part").read_bytes() == CONTENT[: 3 * 65_536]
    assert find("set/file").read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=131072-", "bytes=196608-"]


def test_a_connection_that_breaks_once_is_no_error(server, offer):
    offer(server.url())
    server.cuts = [123_456]
    assert find("set/file").read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=65536-"]


def test_a_wrong_hash_is_refused(server, offer, cache):
    offer(server.url(), known_hash=f"sha256:{hashlib.sha256(b'other').hexdigest()}")
    with pytest.raises(FileNotFoundError, match="another hash"):
        find("set/file")
    assert {p.name for p in (cache / "set").iterdir()} <= {"file.lock"}
    offer(server.url(), known_hash=f"md5:{hashlib.md5(CONTENT).hexdigest()}")
    assert find("set/file").read_bytes() == CONTENT


@pytest.mark.parametrize("unpack", [False, True])
@pytest.mark.parametrize("length", [1000, 400_000])
def test_a_part_of_something_else_is_dropped(server, offer, cache, unpack, length):
    offer(server.url("/file.gz" if unpack else "/file"), unpack=unpack)
    (cache / "set").mkdir(parents=True)
    (cache / "set" / "file.part").write_bytes(b"?" * length)
    assert find("set/file").read_bytes() == CONTENT
    assert server.ranges == [f"bytes={length}-", None]


def test_a_complete_part_needs_no_more(server, offer, cache):
    offer(server.url())
    (cache / "set").mkdir(parents=True)
    (cache / "set" / "file.part").write_bytes(CONTENT)
    assert find("set/file").read_bytes() == CONTENT
    assert server.ranges == ["bytes=300000-"]


def test_a_server_that_cannot_go_on_starts_again(server, offer, cache):
    offer(server.url())
    server.knows_ranges = False
    (cache / "set").mkdir(parents=True)
    (cache / "set" / "file.part").write_bytes(CONTENT[:1000])
    assert find("set/file").read_bytes() == CONTENT
    assert len(server.ranges) == 1


def test_the_next_address_is_tried(server, offer):
    offer(server.url("/gone"), server.url())
    assert find("set/file").read_bytes() == CONTENT
    offer(server.url("/gone"))
    SOURCES["set/gone"] = SOURCES["set/file"]
    try:
        with pytest.raises(FileNotFoundError, match="answers 404"):
            find("set/gone")
    finally:
        del SOURCES["set/gone"]


def test_two_that_want_the_same_file_download_it_once(server, offer):
    offer(server.url())
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: find("set/file"), range(2)))
    assert paths[0] == paths[1]
    assert server.ranges == [None]


# --- what is known of the data ---------------------------------------------------------------------------------------


def test_hashes_are_those_of_the_real_content():
    checked = 0
    for name, source in SOURCES.items():
        path = SHARED / f"{name}.gz"
        if source.unpack and path.exists():
            assert source.known_hash == f"sha256:{hashlib.sha256(gzip.decompress(path.read_bytes())).hexdigest()}"
            checked += 1
    if not checked:
        pytest.skip(f"no MNIST files in {SHARED}")
    assert checked == 2


def test_every_source_has_a_whole_hash():
    for source in SOURCES.values():
        kind, digits = source.known_hash.split(":")
        assert len(digits) == {"sha256": 64, "md5": 32}[kind]
        assert all(url.startswith("https://") for url in source.urls)
