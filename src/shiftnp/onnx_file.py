"""Models as ONNX files, for programs without torch: onnxruntime in other languages, or in a browser.

A file takes `xc [tasks, context, dx]`, `yc [tasks, context, dy]`, `xt [tasks, targets, dx]` and `mask [tasks, context]`
(True for points, False for padding) for any number of tasks, context points and targets, in float32, and returns `mean`
and `std`, both `[tasks, targets, dy]`. A mixture likelihood also has the outputs `weight [tasks, targets, k]`, `means`
and `stds [tasks, targets, k, dy]`. A context without points is one that is masked out. NaN in `yc`: not observed.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import shiftnp
from shiftnp._io import aside
from shiftnp._onnx_graph import expand_sines, flatten_layers, halve, name_outputs, name_sizes
from shiftnp._optional import import_optional
from shiftnp.export import INPUTS, export_model
from shiftnp.likelihoods import components_of
from shiftnp.models import NeuralProcess
from shiftnp.regressor.weights import load, pretrained
from shiftnp.runs.run import Run

TOLERANCE = 1e-4
"""Largest difference from torch, relative to 1 plus the size of a number."""
SIZES = ((1, 7, 5), (2, 1, 1), (1, 4, 9), (1, 30, 40))
"""Numbers of tasks, context points and targets with which a new file is compared with torch."""


def write_onnx(
    model: NeuralProcess, path: Path, lattice_cells: int = 1024, notes: Mapping[str, str] | None = None
) -> float:
    """Writes a model as an ONNX file and returns the largest difference between its predictions and torch's.

    Raises a RuntimeError, and writes nothing, if that is more than `TOLERANCE`.

    Args:
        lattice_cells: see `export_model`.
        notes: metadata to store in the file, beside the version of shiftnp and the settings of the model.
    """
    onnx, runtime, _ = (
        import_optional(name, "Export to ONNX", "export") for name in ("onnx", "onnxruntime", "onnxscript")
    )
    model = model.to(device="cpu", dtype=torch.float32).eval()
    program = export_model(model, lattice_cells)
    with quiet():
        exported = torch.onnx.export(program, dynamo=True, optimize=False, verbose=False, input_names=INPUTS)
    assert exported is not None
    with tempfile.TemporaryDirectory() as folder:
        raw, folded = Path(folder) / "raw.onnx", Path(folder) / "folded.onnx"
        exported.save(str(raw), external_data=False)
        # Onnxruntime folds constants and removes what has no effect; operators stay those of the standard.
        options = runtime.SessionOptions()
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(folded)
        options.log_severity_level = 3
        runtime.InferenceSession(str(raw), options, providers=["CPUExecutionProvider"])
        graph = onnx.load(str(folded))
    name_outputs(graph.graph)
    flatten_layers(onnx, graph.graph)
    expand_sines(onnx, graph.graph)
    halve(onnx, graph.graph)
    name_sizes(graph.graph)
    settings = {"shiftnp": shiftnp.__version__, "model": type(model).__name__, "settings": json.dumps(model.config)}
    onnx.helper.set_model_props(graph, {**settings, **(notes or {})})
    with aside(path) as new:
        onnx.save(graph, str(new))
        difference = compare(model, new)
        if not difference <= TOLERANCE:
            raise RuntimeError(
                f"{path} is not written: predictions of onnxruntime differ from torch's by {difference:.1g}; report it "
                "with the versions of torch and onnxruntime."
            )
    return difference


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """A context without the progress messages and the warnings of torch's exporter, none of which concern the user."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def compare(model: NeuralProcess, path: Path) -> float:
    """The largest difference between the predictions of a file and of torch, over some random data sets, also one
    whose context is masked out."""
    session = open_session(path)
    generator, worst = torch.Generator().manual_seed(0), 0.0
    for tasks, context, targets in SIZES:
        xc, xt = (4 * torch.rand(tasks, n, model.dx, generator=generator) - 2 for n in (context, targets))
        noise = torch.randn(tasks, context, model.dy, generator=generator)
        smooth = (3 * xc.sum(-1, keepdim=True)).sin().expand(-1, -1, model.dy)  # has a period, which may be found
        full = torch.ones(tasks, context, dtype=torch.bool)
        for yc, mask in ((noise, full), (smooth, full), (noise, ~full)):
            found = run(session, xc, yc, xt, mask)
            with torch.no_grad():
                dist = model(xc, yc, xt, mask)
            expected = (dist.mean, dist.stddev, *components_of(dist))
            for ours, theirs in zip(found, expected, strict=False):
                worst = max(worst, float(((ours - theirs).abs() / (1 + theirs.abs())).max()))
    return worst


def open_session(path: Path) -> Any:
    """An inference session of onnxruntime on one thread of the CPU."""
    runtime = import_optional("onnxruntime", "Reading an ONNX file", "export")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(session: Any, xc: Tensor, yc: Tensor, xt: Tensor, mask: Tensor) -> list[Tensor]:
    """The outputs of a session, in the order of `OUTPUTS`."""
    feeds = {name: value.numpy() for name, value in zip(INPUTS, (xc, yc, xt, mask), strict=True)}
    return [torch.from_numpy(value) for value in session.run(None, feeds)]


def open_model(name: str | Path) -> tuple[NeuralProcess, dict[str, str]]:
    """A model by its folder, of a run or of pretrained weights, or by the name of weights in the package (1d, 2d, 3d);
    and notes about the units of its inputs and outputs."""
    folder = Path(name)
    if not folder.is_dir() and str(name) in ("1d", "2d", "3d"):
        folder = pretrained(int(str(name)[0]))
    if (folder / "config.json").is_file() and "settings" in json.loads((folder / "config.json").read_text()):
        return load(folder), {"units": "standardised by each context"}
    run = Run.open(folder)
    model = run.model()
    if not isinstance(model, NeuralProcess):
        raise ValueError(
            f"{folder} is a run of {run.config.model}, which is fitted to each data set: there is no network to export."
        )
    return model, {} if run.scaling is None else {"scaling": json.dumps(asdict(run.scaling))}
