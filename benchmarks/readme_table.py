"""Fills the table of results in README.md from the files in results/: `python benchmarks/readme_table.py`.

`tests/test_readme.py` checks that the table is the one that this script makes.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import fmean
from typing import Any

from shiftnp._io import write

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "README.md"
BLOCK = re.compile(r"(<!-- results -->\n).*?(<!-- end -->)", re.DOTALL)


def read(name: str) -> Any:
    """A file in results/."""
    return json.loads((ROOT / "results" / name).read_text())


def accuracy() -> str:
    """Regressor beside a Gaussian process fitted to each data set."""
    found = read("zero-shot.json")["summary"]["all"]
    alone = read("zero-shot-network.json")["summary"]["all"]["against gp"]["crps ratio"]
    gp, cover = found["against gp"], {name: 100 * each["all"]["90"] for name, each in found["coverage"].items()}
    return (
        f"CRPS {gp['crps ratio']:.3f} times the GP's ({alone:.3f} by the network alone), log-likelihood "
        f"{gp['median log-likelihood difference']:+.3f} nats (median over data sets), 90 % "
        f"intervals cover {cover['regressor']:.0f} % (the GP's: {cover['gp']:.0f} %)"
    )


def speed() -> str:
    """Seconds of fit and prediction."""
    sizes = read("regressor-speed.json")["observations"]
    return "; ".join(
        f"{int(n):,} observations: {each['regressor']:.2f} s ({each['ratio']:.1f} times faster)"
        for n, each in sizes.items()
    )


def gaps() -> str:
    """Gaps of some models to the best possible Gaussian on the paper's 1-D task, with the settings of the preset."""
    runs = [run["evaluation"] for run in read("gp-1d/gp-1d.json")["runs"]]

    def gap(row: str) -> str:
        found = [run["sets"]["delta-0.0"]["gap"]["mean"] for run in runs if run["row"] == row and not run["changes"]]
        return f"{fmean(found):.3f}"

    return (
        f"small models, 10,000 steps: TNP {gap('tnp')}, TE-TNP {gap('te-tnp')}, with rotary kernel"
        f" {gap('te-tnp-rotary-small')}; larger, 20,000 steps: rotary TE-TNP {gap('te-tnp-rotary-control')}, with"
        f" period search {gap('te-tnp-rotary')}"
    )


def steps() -> str:
    """Training steps of the TE-TNP, against the plain formula."""
    found = {name: each["median"] for name, each in read("attention.json")["steps"].items()}
    plain = found["TE-TNP, plain formula"]
    return f"tiled {plain / found['TE-TNP, tiled']:.2f} x, rotary kernel {plain / found['TE-TNP, rotary']:.2f} x"


def large() -> str:
    """Encoding and predicting with many points."""
    found = {name: each["sizes"][-1] for name, each in read("scale-paper.json")["models"].items()}
    rotary = {name.split(", D_z")[0]: row for name, row in found.items() if name.endswith(", rotary")}
    parts = [f"{name}: {r['encode'] + r['predict']:.1f} s, {r['megabytes']:.0f} MB" for name, r in rotary.items()]
    return f"rotary kernel, the paper's size: {'; '.join(parts)}"


def table() -> str:
    """The table: what, how much, and the file that has it."""
    sets = read("zero-shot.json")["summary"]["all"]["against gp"]["by data set"]
    real = [name for name in sets if not name.startswith(("gp-", "functions-"))]
    rows = [
        (f"{len(sets)} data sets, {len(real)} of them real, beside a GP fitted to each", accuracy(), "zero-shot.json"),
        ("fit and prediction, two inputs, against the GP", speed(), "regressor-speed.json"),
        ("the paper's 1-D task: nats below the best possible Gaussian", gaps(), "gp-1d/gp-1d.md"),
        ("training step of a TE-TNP, against the plain formula", steps(), "attention.json"),
        ("100,000 context points, 1,000,000 targets", large(), "scale-paper.json"),
    ]
    lines = [f"| {what} | {found} | [{file.partition('/')[0]}](results/{file}) |" for what, found, file in rows]
    return "\n".join(["| | measured | file |", "|---|---|---|", *lines]) + "\n"


def fill(text: str) -> str:
    """The page with the table made again."""
    return BLOCK.sub(lambda found: found[1] + table() + found[2], text)


if __name__ == "__main__":
    write(PAGE, fill(PAGE.read_text()))
