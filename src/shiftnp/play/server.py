"""The server of the playground: Python's own, for this machine only."""

from __future__ import annotations

import http.server
from functools import partial
from pathlib import Path

PAGE = Path(__file__).parent / "page"
BUILT = PAGE / "built"
TYPES = {
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".wasm": "application/wasm",
    ".onnx": "application/octet-stream",
}


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files without a log line for each, with the types that browsers insist on."""

    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, **TYPES}  # noqa: RUF012

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""

    def end_headers(self) -> None:
        """Adds a header: a new build is seen at once."""
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()


def make_server(port: int) -> http.server.ThreadingHTTPServer:
    """A server of the page on 127.0.0.1; port 0: any that is free."""
    check_built()
    try:
        return http.server.ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, directory=str(PAGE)))
    except OSError as error:
        raise OSError(f"Port {port} cannot be used ({error.strerror}): choose another with --port.") from error


def check_built() -> None:
    """Raises a FileNotFoundError if the page lacks its runtime or a network."""
    needed = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm", "1d.onnx", "2d.onnx", "plain.onnx")
    lacking = [name for name in needed if not (BUILT / name).is_file()]
    if lacking:
        raise FileNotFoundError(
            f"The playground of this installation is not built ({lacking[0]} is missing): run `make play` in a "
            "checkout of shiftnp, which needs npm and the extra export."
        )
