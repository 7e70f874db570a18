"""The command `shiftnp play`."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass


@dataclass(frozen=True)
class Play:
    """Opens the playground in a browser: the pretrained models on points that you set and drag, or on your CSV.

    Everything is computed in the page; the server only serves its files, to this machine alone. Ctrl-C stops it.
    """

    port: int = 8765
    """Port of the server; 0: any that is free."""
    browser: bool = True
    """Open a browser."""

    def run(self) -> None:
        """Runs the command."""
        from shiftnp.play.server import make_server

        with make_server(self.port) as server:
            address = f"http://127.0.0.1:{server.server_port}/"
            print(f"{address} (Ctrl-C stops)", flush=True)
            if self.browser:
                webbrowser.open(address)
            server.serve_forever()
