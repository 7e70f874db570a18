"""The server and the build of the playground, without a browser."""

from __future__ import annotations

import json
import threading
import urllib.request

import pytest

from shiftnp.cli.play import Play
from shiftnp.play import build, server

NEEDED = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm", "1d.onnx", "2d.onnx", "plain.onnx")


@pytest.fixture
def built(tmp_path, monkeypatch):
    """An empty folder instead of what `make play` has made, if it has."""
    for module in (server, build):
        monkeypatch.setattr(module, "BUILT", tmp_path)
    return tmp_path


def test_serves_the_page_to_this_machine_alone(built):
    for name in NEEDED:
        (built / name).touch()
    with server.make_server(0) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        assert found.server_address[0] == "127.0.0.1"
        types = {}
        for name in ("", "main.js", "style.css"):
            with urllib.request.urlopen(f"http://127.0.0.1:{found.server_port}/{name}") as answer:
                types[name] = answer.headers.get_content_type()
                assert len(answer.read()) > 1000
        found.shutdown()
    assert types == {"": "text/html", "main.js": "text/javascript", "style.css": "text/css"}


def test_says_what_to_do_where_it_is_not_built(built):
    (built / NEEDED[0]).touch()
    with pytest.raises(FileNotFoundError, match=r"not built \(ort-wasm-simd\S+ is missing\): run `make play`"):
        Play(browser=False).run()


def test_a_port_that_is_taken_gives_one_sentence(built):
    for name in NEEDED:
        (built / name).touch()
    with server.make_server(0) as found, pytest.raises(OSError, match=f"Port {found.server_port} cannot be used"):
        server.make_server(found.server_port)


def test_build_makes_what_is_missing_or_has_changed(built, monkeypatch):
    made = []

    def copy_runtime():
        made.append("runtime")
        for name in build.RUNTIME:
            (built / name).touch()

    monkeypatch.setattr(build, "copy_runtime", copy_runtime)
    monkeypatch.setattr(build, "export", lambda folder, out: (made.append(out.stem), out.touch()))
    build.build(say=lambda text: None)
    assert made == ["runtime", "1d", "2d", "plain"]
    server.check_built()
    build.build(say=lambda text: None)
    assert len(made) == 4
    (built / "2d.onnx").unlink()
    manifest = json.loads((built / "manifest.json").read_text())
    (built / "manifest.json").write_text(json.dumps({**manifest, "plain": "of other weights"}))
    build.build(say=lambda text: None)
    assert made[4:] == ["2d", "plain"]


def test_build_without_npm_gives_one_sentence(built, monkeypatch):
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    with pytest.raises(FileNotFoundError, match="needs npm"):
        build.build(say=lambda text: None)


def test_the_lock_file_names_versions_and_hashes_but_no_addresses():
    packages = json.loads((build.NPM / "package-lock.json").read_text())["packages"]
    assert "node_modules/onnxruntime-web" in packages
    for name, entry in packages.items():
        assert "resolved" not in entry
        assert not name or entry["integrity"].startswith("sha512-")


def test_the_time_in_the_documentation_is_the_measured_one():
    measured = json.loads((build.ROOT / "results/playground.json").read_text())
    assert (measured["points"], measured["targets"]) == (60, 400)
    text = " ".join((build.ROOT / "docs/playground.md").read_text().split())
    assert f"takes {measured['milliseconds']['median']} ms in the median" in text
    for name in ("curve", "map", "phone", "dark"):
        assert 0 < (build.ROOT / f"docs/playground-{name}.png").stat().st_size < 300_000
