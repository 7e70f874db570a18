"""Time of a frame of the playground in headless Chromium, on one core: `python benchmarks/playground.py`; and with
`--pictures docs` the pictures of docs/playground.md.

A frame is what follows a movement of the points: the prediction at 400 targets from 60 points, its 50 % and 90 % bands,
and the drawing. Needs a built page (`make play`), chromium and chromium-driver.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser import missing, open_page, set_screen, wait  # noqa: E402
from shiftnp._io import write_json  # noqa: E402
from shiftnp._machine import processor  # noqa: E402

GOAL = 50
PICTURES = {
    "curve": (960, 820, False, "curve", "sine"),
    "dark": (960, 820, True, "curve", "co2"),
    "phone": (400, 860, False, "curve", "periodic"),
    "map": (960, 820, False, "map", "bumps"),
}
"""Width, height, whether it is dark, view and example of each picture."""


def draw(page: Any, folder: Path) -> None:
    """Writes the pictures."""
    for name, (width, height, dark, view, example) in PICTURES.items():
        set_screen(page, width, height, dark)
        wait(page, f"shiftnp.show('{view}')")
        if view == "curve":
            overlays = str(name == "curve").lower()
            page.execute_script(f"for (const n of ['plain', 'gp']) shiftnp.views.curve.input(n).checked = {overlays}")
        wait(page, f"shiftnp.views.{view}.example('{example}')")
        if view == "curve":
            wait(page, "shiftnp.views.curve.sample()")
        else:
            wait(page, "(shiftnp.views.map.size = 48, shiftnp.views.map.update())")
        page.execute_script("window.scrollTo(0, 0)")
        page.save_screenshot(str(folder / f"playground-{name}.png"))


def thread_seconds(page: Any) -> float:
    """CPU seconds that the page's thread has spent in tasks, which other processes do not add to."""
    metrics = page.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return next(m["value"] for m in metrics if m["name"] == "TaskDuration")


def main() -> None:
    """Measures and prints, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=60)
    parser.add_argument("--frames", type=int, default=40)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pictures", type=Path)
    given = parser.parse_args()
    if missing():
        sys.exit(missing())
    with open_page() as page:
        wait(page, f"shiftnp.measure({given.points}, 3)")  # the first frames are slower
        page.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        before = thread_seconds(page)
        found = wait(page, f"shiftnp.measure({given.points}, {given.frames})")
        busy = (thread_seconds(page) - before) / (given.frames + 1)
        if given.pictures:
            page.execute_script("shiftnp.views.curve.input('functions').value = 3")
            draw(page, given.pictures)
        version = page.execute_script("return navigator.userAgent.match(/Chrome\\/\\S+/)[0]")
    times = sorted(found["times"])
    result = {
        "command": "python " + " ".join(["benchmarks/playground.py", *sys.argv[1:]]),
        "what": "milliseconds of a frame of the playground: prediction, bands and drawing, on one thread",
        "points": found["points"],
        "targets": found["targets"],
        "frames": len(times),
        "goal": GOAL,
        "milliseconds": {
            "median": round(median(times), 1),
            "fastest": round(times[0], 1),
            "nine of ten": round(times[int(0.9 * (len(times) - 1))], 1),
            "CPU time of the thread": round(1e3 * busy, 1),
        },
        "browser": version,
        "processor": processor(),
        "seed": 11,
    }
    print(result)
    if given.out:
        write_json(given.out, result)


if __name__ == "__main__":
    main()
