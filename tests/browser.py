"""A headless browser and the served playground, for tests and for benchmarks/playground.py."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from shiftnp.play.server import check_built, make_server

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-device-scale-factor=1",
)


def missing() -> str | None:
    """Why the page cannot be tested on this machine; None if it can."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"no {program}: install the packages chromium and chromium-driver to test the playground"
    try:
        check_built()
    except FileNotFoundError:
        if shutil.which("npm") is None:
            return "no npm: install it to build the playground and to test it"
    return None


def ensure_built() -> str | None:
    """Builds the page if it is not there; why that is impossible, such as a machine without a network, or None."""
    try:
        check_built()
    except FileNotFoundError:
        made = subprocess.run([sys.executable, "-m", "shiftnp.play.build"], capture_output=True, text=True)
        if made.returncode:
            return f"the playground cannot be built: {made.stderr.strip().splitlines()[-1]}"
    return None


@contextlib.contextmanager
def open_page(width: int = 1100, height: int = 900, dark: bool = False) -> Iterator[Any]:
    """A selenium driver with the page, when its networks are loaded."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in FLAGS:
        options.add_argument(flag)
    with contextlib.ExitStack() as stack:
        options.add_argument(f"--user-data-dir={stack.enter_context(tempfile.TemporaryDirectory())}")
        server = stack.enter_context(make_server(0))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.shutdown)
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        stack.callback(driver.quit)
        driver.set_script_timeout(300)
        driver.set_page_load_timeout(300)
        set_screen(driver, width, height, dark)
        driver.get(f"http://127.0.0.1:{server.server_port}/")
        there = "new Promise((go) => { const t = setInterval(() => window.shiftnp && go(clearInterval(t)), 50); })"
        wait(driver, there)
        wait(driver, "window.shiftnp.ready")
        yield driver


def set_screen(driver: Any, width: int, height: int, dark: bool = False) -> None:
    """Sets the size of the screen, and whether the page is dark."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def wait(driver: Any, expression: str) -> Any:
    """The value of a JavaScript expression, which may be a promise."""
    script = f"""const done = arguments[arguments.length - 1];
    (async () => await ({expression}))().then((v) => done({{value: v ?? null}}), (e) => done({{error: String(e)}}));"""
    found = driver.execute_async_script(script)
    if "error" in found:
        raise RuntimeError(found["error"])
    return found["value"]
