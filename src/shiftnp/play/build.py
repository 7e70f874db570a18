"""Builds the playground: `python -m shiftnp.play.build`, or `make play`.

The page itself, `page/`, is plain HTML, CSS and JavaScript and needs no build. Here `page/built/` is made, which git
ignores: the WebAssembly runtime from npm (`playground/package-lock.json` has its version and hash), and the networks
as ONNX files. What is up to date already is not made again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import shiftnp
from shiftnp._io import aside, write_json
from shiftnp.play.server import BUILT

ROOT = Path(__file__).parents[3]
"""The checkout, which has what the package does not have: the lock file of npm and the run of the plain TNP."""
NPM = ROOT / "playground"
RUNTIME = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")
PLAIN = ROOT / "results" / "runs" / "gp-1d" / "tnp-laptop-seed0"
"""The run of the plain TNP, for comparison."""
MANIFEST = "manifest.json"


def build(say: Callable[[str], None] = print) -> Path:
    """Makes `page/built/` and returns it. Raises an error that says what is missing."""
    from shiftnp.regressor.weights import pretrained

    if not (NPM / "package-lock.json").is_file():
        raise FileNotFoundError(f"{NPM} has no package-lock.json: the playground is built in a checkout of shiftnp.")
    BUILT.mkdir(parents=True, exist_ok=True)
    made = json.loads((BUILT / MANIFEST).read_text()) if (BUILT / MANIFEST).is_file() else {}
    models = {"1d": pretrained(1), "2d": pretrained(2), "plain": PLAIN}
    digest = fingerprint(NPM / "package-lock.json")
    if made.get("runtime") != digest or not all((BUILT / name).is_file() for name in RUNTIME):
        say("runtime: npm ci")
        copy_runtime()
        made["runtime"] = digest
        write_json(BUILT / MANIFEST, made)
    for name, folder in models.items():
        digest = fingerprint(folder / "config.json", folder / "model.safetensors")
        if made.get(name) != digest or not (BUILT / f"{name}.onnx").is_file():
            say(f"network {name}: export of {folder.name}")
            export(folder, BUILT / f"{name}.onnx")
            made[name] = digest
            write_json(BUILT / MANIFEST, made)
    return BUILT


def fingerprint(*files: Path) -> str:
    """A digest of files and of the version of shiftnp."""
    digest = hashlib.sha256(shiftnp.__version__.encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def copy_runtime() -> None:
    """Installs the runtime by npm, and copies the two files that the page uses, with their licence."""
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("The playground needs npm (of Node.js 20 or later) to be built: install it first.")
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    found = subprocess.run(command, cwd=NPM, capture_output=True, text=True)
    if found.returncode:
        raise RuntimeError(f"npm ci failed in {NPM}: {found.stderr.strip().splitlines()[-1:] or found.returncode}")
    package = NPM / "node_modules" / "onnxruntime-web"
    for name in RUNTIME:
        with aside(BUILT / name) as new:
            shutil.copyfile(package / "dist" / name, new)
    about = json.loads((package / "package.json").read_text())
    licence = {key: about.get(key) for key in ("name", "version", "license", "homepage")}
    write_json(BUILT / "runtime.json", licence)


def export(folder: Path, out: Path) -> None:
    """Writes the network of a run or of pretrained weights as an ONNX file."""
    from shiftnp.onnx_file import open_model, write_onnx

    model, notes = open_model(folder)
    write_onnx(model, out, notes=notes)


if __name__ == "__main__":
    try:
        print(build())
    except (OSError, RuntimeError) as error:
        sys.exit(str(error))
