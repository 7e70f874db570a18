"""`Regressor`, without any training, beside Gaussian processes fitted to each data set.

    python benchmarks/zero_shot.py --data DIR --climate DIR --cache DIR

Real data and samples of Gaussian processes, see `zero_shot_sets.py`; `zero_shot_data.py` says how to get the former.
The rivals are `SingleGP`: a Matern 5/2 kernel, and a sum of a Matern 5/2 and a Matern 1/2 kernel, with one length-scale
per input, a constant mean, the best of three starts, in float64. From 1,000 observations they get one start and 50
steps. They do not depend on our weights, so their scores are stored in `--cache` and are not computed again.

Writes results/zero-shot.json. CRPS, RMSE and log-likelihood are in units of the standard deviation of the observations.
A quick look at some of it, which writes nothing unless `--out` is given:

    python benchmarks/zero_shot.py --data DIR --climate DIR --cache DIR --only meuse,pm10 --sizes 30,100 --no-gp

`--no-gp` uses rivals that are in the cache and fits no new ones; `--no-regressor` only fills the cache. Parts of the
benchmark can be run one by one, each with `--out`, and joined:

    python benchmarks/zero_shot.py --join FIRST.json SECOND.json
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from zero_shot_sets import SEED, SETS, Case, Source

from shiftnp import Regressor
from shiftnp._io import write_json
from shiftnp._machine import commit, machine
from shiftnp.baselines.single import SingleGP
from shiftnp.metrics import COVERAGE
from shiftnp.regressor.distribution import distribution
from shiftnp.regressor.mixture import Mixture
from shiftnp.regressor.weights import pretrained

OUT = Path(__file__).parent.parent / "results/zero-shot.json"
RIVALS = {"gp": "matern52", "two-materns": "two-materns"}
"""Names of the rivals and their covariance functions."""
MANY = 1000
"""Number of observations from which the cost of a fitted Gaussian process is capped."""
FEW = 30
"""Data sets with fewer observations are summarised apart: there a fitted Gaussian process may be arbitrarily wrong."""
OURS = "regressor"
GROUPS = {
    "data sets of the issue": ("issue",),
    "other data sets": ("other",),
    "looked at while Regressor was improved": ("issue", "other", "further"),
    "not looked at": ("unseen",),
}
"""Summaries, and the groups of data sets in them."""

Scores = dict[str, Any]


# --- predictions and their scores --------------------------------------------------------------------------------


def scores(prediction: Mixture, case: Case) -> Scores:
    """Mean scores of predictions of the withheld observations, in units of the standard deviation of the others."""
    unit, yt = case.y.std(), torch.from_numpy(case.yt)
    off = (prediction.cdf(yt) - 0.5).abs()
    return {
        "crps": float(prediction.crps(yt).mean()) / unit,
        "log-likelihood": float(prediction.log_prob(yt).mean()) + math.log(unit),
        "rmse": float((prediction.mean - yt).square().mean().sqrt()) / unit,
        "coverage": {name: float((off <= level / 2).double().mean()) for name, level in COVERAGE.items()},
    }


def timed(predict: Callable[[], Mixture], case: Case) -> Scores:
    """Scores of a prediction with its wall time and processor time."""
    wall, cpu = time.perf_counter(), time.process_time()
    prediction = predict()
    spent = {"seconds": time.perf_counter() - wall, "processor seconds": time.process_time() - cpu}
    return {**scores(prediction, case), **spent, "threads": torch.get_num_threads()}


def fitted_gp(covariance: Any, case: Case) -> Mixture:
    """The prediction of a Gaussian process that is fitted to a case."""
    gp = SingleGP(covariance) if len(case.y) < MANY else SingleGP(covariance, starts=1, iterations=50)
    mean, std = (torch.from_numpy(part)[:, None] for part in gp.predict(case.x, case.y, case.xt))
    return Mixture(torch.ones_like(mean), mean, std)


def cached(path: Path | None, case: Case, compute: Callable[[], Scores] | None) -> Scores | None:
    """Scores from a file, if it belongs to the same data; else computed and stored, or None without `compute`."""
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in case[1:])).hexdigest()[:16]
    if path is not None and path.is_file():
        found: Scores = json.loads(path.read_text())
        if found.pop("data") == digest:
            return found
    if compute is None:
        return None
    result = compute()
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"data": digest, **result})
    return result


def regressor(case: Case, arguments: dict[str, Any]) -> Scores:
    """Scores of `Regressor`; its time is that of `fit` and `predict` with standard deviations."""
    wall, cpu = time.perf_counter(), time.process_time()
    model = Regressor(**arguments).fit(case.x, case.y)
    model.predict(case.xt, return_std=True)
    spent = {"seconds": time.perf_counter() - wall, "processor seconds": time.process_time() - cpu}
    found = {
        "scales": model.scales_[0].typical.round(3).tolist(),
        "spread factor": round(model.spread_factors_[0], 3),
        "cross-validated": model.scores_[0]._asdict() if model.scores_ else None,
    }
    if model.scores_:
        found["cross-validated"]["crps"] /= case.y.std()
        found["cross-validated"]["log_likelihood"] += math.log(case.y.std())
    return {**scores(distribution(model, case.xt), case), **spent, "threads": torch.get_num_threads(), **found}


# --- summaries ---------------------------------------------------------------------------------------------------


def mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def against(rows: list[Scores], rival: str) -> Scores:
    """Ours beside a rival: geometric mean of ratios, mean of differences; the ratio of times is the rival's to ours."""
    pairs = [(row[OURS], row[rival]) for row in rows]
    return {
        "crps ratio": math.exp(mean(math.log(a["crps"] / b["crps"]) for a, b in pairs)),
        "log-likelihood difference": mean(a["log-likelihood"] - b["log-likelihood"] for a, b in pairs),
        "rmse ratio": math.exp(mean(math.log(a["rmse"] / b["rmse"]) for a, b in pairs)),
        "times faster": math.exp(mean(math.log(b["seconds"] / a["seconds"]) for a, b in pairs)),
        "times faster, processor": math.exp(
            mean(math.log(b["processor seconds"] / a["processor seconds"]) for a, b in pairs)
        ),
    }


def summarise(rows: list[Scores]) -> Scores:
    """Means over splits, then over the sizes of a data set, then over data sets."""
    names = list(dict.fromkeys(row["data set"] for row in rows))
    result: Scores = {"data sets": len(names), "cases": len(rows)}
    for method in (OURS, *RIVALS):
        some = [row for row in rows if method in row]
        for name in names if some else []:
            mine = [row[method] for row in some if row["data set"] == name]
            if mine:
                result.setdefault("coverage", {}).setdefault(method, {})[name] = {
                    level: mean(m["coverage"][level] for m in mine) for level in COVERAGE
                }
        each = result.get("coverage", {}).get(method, {}).values()
        if each:
            result["coverage"][method]["all"] = {level: mean(m[level] for m in each) for level in COVERAGE}
    for rival in RIVALS:
        both = [row for row in rows if OURS in row and rival in row]
        if not both:
            continue
        by_name: dict[str, Scores] = {}
        for name in dict.fromkeys(row["data set"] for row in both):
            mine = [row for row in both if row["data set"] == name]
            sizes = {s: against([r for r in mine if r["size"] == s], rival) for s in sorted({r["size"] for r in mine})}
            by_name[name] = {"all sizes": _over(sizes.values()), **{str(s): v for s, v in sizes.items()}}
        total = _over(entry["all sizes"] for entry in by_name.values())
        worst = max(by_name, key=lambda name: by_name[name]["all sizes"]["crps ratio"])
        by_size = {
            str(s): _over(entry[str(s)] for entry in by_name.values() if str(s) in entry)
            for s in sorted({row["size"] for row in both})
        }
        gains = [entry["all sizes"]["log-likelihood difference"] for entry in by_name.values()]
        result[f"against {rival}"] = {
            "data sets": len(by_name),
            **total,
            "median log-likelihood difference": float(np.median(gains)),
            "worst data set": {worst: by_name[worst]["all sizes"]["crps ratio"]},
            "by size": by_size,
            "by data set": by_name,
        }
    return result


def _over(entries: Iterable[Scores]) -> Scores:
    """Means over entries of `against`: of ratios geometric ones."""
    found = list(entries)
    return {
        key: mean(e[key] for e in found) if "difference" in key else math.exp(mean(math.log(e[key]) for e in found))
        for key in found[0]
    }


def rounded(value: Any) -> Any:
    """Plain data with four significant digits."""
    if isinstance(value, dict):
        return {key: rounded(v) for key, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def show(row: Scores) -> None:
    """One line about a case."""
    line = f"{row['data set']:12} {row['size']:5} {row['case'][:34]:34}"
    for method in (OURS, *RIVALS):
        if method in row:
            s = row[method]
            line += f" | {method[:9]} {s['crps']:.4f} {s['log-likelihood']:+.3f} {s['coverage']['90']:.2f}"
            line += f" {s['seconds']:6.2f} s"
    print(line, flush=True)


# --- the command -------------------------------------------------------------------------------------------------


def command(words: list[str]) -> str:
    """The command that was run, with DIR for folders, which differ from machine to machine, also that of the output."""
    shown = ["python", f"benchmarks/{Path(words[0]).name}"]
    for before, word in pairwise(words):
        word = Path(word).name if before == "--out" else word
        shown.append("DIR" if before in ("--data", "--climate", "--cache", "--weights") else word)
    return " ".join(shown)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compares Regressor with fitted Gaussian processes.")
    parser.add_argument("--data", type=Path, default=Path("data/real"), help="folder with the CSV files")
    parser.add_argument("--climate", type=Path, default=Path(os.environ.get("SHIFTNP_DATA", "data")) / "climate")
    parser.add_argument("--cache", type=Path, help="folder of stored scores of Gaussian processes")
    parser.add_argument("--weights", type=Path, help="folder of pretrained weights (default: those in the package)")
    parser.add_argument("--only", default=",".join(SETS), help="names of data sets")
    parser.add_argument("--sizes", default="", help="numbers of observations (default: all of each data set)")
    parser.add_argument("--inputs", type=int, help="only data sets with so many inputs")
    parser.add_argument("--no-gp", action="store_true", help="fit no Gaussian process that is not in the cache")
    parser.add_argument("--no-regressor", action="store_true", help="only fit Gaussian processes")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=JSON", help="arguments of Regressor")
    parser.add_argument("--join", nargs="+", type=Path, help="join files of earlier runs instead")
    parser.add_argument("--note", default="", help="what to know about the run, such as the load of the machine")
    parser.add_argument("--out", type=Path, help="file to write (default: results/zero-shot.json, for a whole run)")
    args = parser.parse_args()
    unknown = set(args.only.split(",")) - set(SETS)
    if unknown:
        parser.error(f"unknown data set {', '.join(sorted(unknown))}; there are {', '.join(SETS)}")
    return args


def has_weights(inputs: int, folder: Path | None) -> bool:
    """Whether there are weights for so many inputs."""
    try:
        return (pretrained(inputs, folder) / "config.json").is_file()
    except FileNotFoundError:
        return False


def report(result: dict[str, Any]) -> None:
    """Prints the summaries."""
    for part, summary in result["summary"].items():
        for rival in RIVALS:
            if f"against {rival}" in summary:
                found = summary[f"against {rival}"]
                plain = {key: value for key, value in found.items() if not key.startswith("by")}
                print(part, f"against {rival}", json.dumps(rounded(plain)))
                print("  by size", json.dumps({s: rounded(v["crps ratio"]) for s, v in found["by size"].items()}))
                each = {n: v["all sizes"]["crps ratio"] for n, v in found["by data set"].items()}
                print("  by data set", json.dumps(rounded(each)))
        if OURS in summary.get("coverage", {}):
            print(part, "coverage", json.dumps(rounded({m: c["all"] for m, c in summary["coverage"].items()})))


def results(rows: list[Scores], skipped: list[str], run: str | list[str]) -> dict[str, Any]:
    """The content of the file.

    Args:
        run: the command, or several.
    """
    return {
        "what": "scores and time of Regressor, without training, beside Gaussian processes fitted to each data set",
        "command": run,
        "seed": SEED,
        "commit": commit(),
        "machine": machine(),
        "rivals": "best of three starts, at most 100 steps of L-BFGS; from 1,000 observations one start and 50 steps",
        "left out for lack of weights": skipped,
        "summary": {
            "all": summarise([row for row in rows if row["size"] >= FEW]),
            **{
                group: summarise([row for row in rows if row["size"] >= FEW and row["group"] in names])
                for group, names in GROUPS.items()
            },
            "few observations": summarise([row for row in rows if row["size"] < FEW]),
        },
        "cases": rows,
    }


def main() -> None:
    """Runs the benchmark."""
    args = arguments()
    if args.join:
        parts = [json.loads(path.read_text()) for path in args.join]
        rows = [row for part in parts for row in part["cases"]]
        skipped = sorted({name for part in parts for name in part["left out for lack of weights"]})
        result = {"note": args.note, **results(rows, skipped, [part["command"] for part in parts])}
        write_json(args.out or OUT, rounded(result))
        report(result)
        return
    source = Source(args.data, args.climate)
    sizes = [int(s) for s in args.sizes.split(",") if s]
    ours = {"weights": args.weights, **{k: json.loads(v) for k, _, v in (item.partition("=") for item in args.set)}}
    rows, skipped = [], []
    for name in args.only.split(","):
        data_set = SETS[name]
        if args.inputs not in (None, data_set.inputs):
            continue
        if not args.no_regressor and not has_weights(data_set.inputs, args.weights):
            skipped.append(name)
            print(f"{name}: left out, as there are no weights for {data_set.inputs} inputs")
            continue
        for size in [s for s in data_set.sizes if not sizes or s in sizes]:
            for i, case in enumerate(data_set.cases(source, size)):
                row: Scores = {"data set": name, "group": data_set.group, "size": size, "case": case.name}
                row |= {"withheld": len(case.yt)}
                for rival, covariance in RIVALS.items():
                    path = args.cache and args.cache / f"{rival}-{name}-{size}-{i}.json"
                    compute = None if args.no_gp else lambda: timed(lambda: fitted_gp(covariance, case), case)  # noqa: B023
                    found = cached(path, case, compute)
                    if found is not None:
                        row[rival] = found
                if not args.no_regressor:
                    row[OURS] = regressor(case, ours)
                show(row)
                rows.append(row)
    result = {"note": args.note, **results(rows, skipped, command(sys.argv))}
    whole = not (args.sizes or args.inputs or args.no_regressor or args.no_gp or args.only != ",".join(SETS))
    if args.out or whole:
        write_json(args.out or OUT, rounded(result))
    report(result)


if __name__ == "__main__":
    main()
