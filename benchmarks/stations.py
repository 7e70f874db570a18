"""Fine-tuning on many days of fixed stations: scores on days and at stations that `fit` has never seen.

    python benchmarks/stations.py --data DIR --minutes 10

Daily PM10 in Germany; `zero_shot_data.py` says how to get pm10.csv. A fifth of the stations and the last fifth of the
days are withheld from everything. On each withheld day the other stations are the observations: predicted are the
withheld stations (new places) and, from the rest, a fifth of the others (known places). Before: no training. After:
`Regressor().fit(..., groups=day, station=station, minutes=...)`. Writes results/stations.json; CRPS is in ug/m3, with
standard errors over days.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shiftnp import Regressor
from shiftnp._io import write_json
from shiftnp._machine import commit, machine
from shiftnp._optional import import_optional
from shiftnp.regressor.distribution import distribution

OUT = Path(__file__).parent.parent / "results/stations.json"
SEED, DAYS = 0, 60


def score(model: Regressor, frame: Any, new: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Scores of a fitted model on withheld days, at known and new places."""
    found: dict[str, list[list[float]]] = {"known places": [], "new places": []}
    for day, rows in frame.groupby("day"):
        there, elsewhere = rows[~rows.station.isin(new)], rows[rows.station.isin(new)]
        some = rng.permutation(len(there)) < len(there) // 5
        cases = {"known places": (there[~some], there[some]), "new places": (there, elsewhere)}
        for name, (context, targets) in cases.items():
            label = f"{day} {name}"
            model.update(context[["x", "y"]], context.pm10, groups=label)
            prediction = distribution(model.select(label), targets[["x", "y"]].to_numpy())
            y = torch.tensor(targets.pm10.to_numpy())
            inside = (prediction.cdf(y) - 0.5).abs() <= 0.45
            parts = prediction.crps(y), prediction.log_prob(y), inside.double()
            found[name].append([float(part.mean()) for part in parts])
    result = {}
    for name, each in found.items():
        values = np.array(each)
        means, errors = values.mean(0), values.std(0, ddof=1) / np.sqrt(len(values))
        keys = ("crps", "log-likelihood", "90 % intervals cover")
        result[name] = {
            key: {"mean": round(float(m), 4), "standard error": round(float(e), 4)}
            for key, m, e in zip(keys, means, errors, strict=True)
        }
    return result


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data/real"), help="folder with pm10.csv")
    parser.add_argument("--minutes", type=float, default=10.0, help="time of `fit`")
    parser.add_argument("--note", default="", help="what to know about the run, such as the load of the machine")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    frame = import_optional("pandas", "Reading CSV files").read_csv(args.data / "pm10.csv").dropna()
    rng = np.random.default_rng(SEED)
    stations, days = np.sort(frame.station.unique()), np.sort(frame.day.unique())
    new, last = rng.permutation(stations)[: len(stations) // 5], days[-(len(days) // 5) :]
    train = frame[~frame.station.isin(new) & ~frame.day.isin(last)]
    test = frame[frame.day.isin(last[:: -(-len(last) // DAYS)])]
    result: dict[str, Any] = {
        "what": "PM10: CRPS, log-likelihood and coverage on withheld days, before and after fine-tuning",
        "command": f"python benchmarks/stations.py --data DIR --minutes {args.minutes:g}",
        "note": args.note,
        "seed": SEED,
        "commit": commit(),
        "machine": machine(),
        "stations": {"all": len(stations), "withheld": len(new)},
        "days": {"all": len(days), "withheld": len(last), "scored": test.day.nunique()},
    }
    for name, minutes in (("before", 0.0), ("after", args.minutes)):
        model = Regressor(seed=SEED).fit(
            train[["x", "y"]], train.pm10, groups=train.day.astype(str), station=train.station, minutes=minutes
        )
        result[name] = {"report": model.report(), **score(model, test, new, np.random.default_rng(SEED))}
        print(name, model.report(), {k: v for k, v in result[name].items() if k != "report"}, sep="\n", flush=True)
    write_json(args.out, result)


if __name__ == "__main__":
    main()
