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

import numpy as np
import torch
from torch import Tensor

import shiftnp
from shiftnp._io import aside
from shiftnp._optional import import_optional
from shiftnp.export import INPUTS, OUTPUTS, export_model
from shiftnp.likelihoods import components_of
from shiftnp.models import NeuralProcess
from shiftnp.regressor.weights import load, pretrained
from shiftnp.runs.run import Run

TOLERANCE = 1e-4
"""Largest difference from torch, relative to 1 plus the size of a number."""
HALVED = 256
"""Smallest number of weights in a tensor that is stored in half precision, if none changes by it."""
SIZES = ((1, 7, 5), (2, 1, 1), (1, 4, 9))
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


def name_outputs(graph: Any) -> None:
    """Renames the outputs of a graph to `OUTPUTS`; what has such a name inside of the graph gets another one."""
    names = {name: f"{name}_inside" for name in OUTPUTS}
    names.update((old.name, new) for old, new in zip(graph.output, OUTPUTS, strict=False))
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for value in (*graph.output, *graph.value_info, *graph.initializer):
        value.name = names.get(value.name, value.name)


def flatten_layers(onnx: Any, graph: Any) -> None:
    """Applies linear layers to all tokens of all tasks as the rows of one matrix. Runtimes then add the bias and apply
    the ReLU in the same pass as the product, which they do not for a product of three dimensions."""
    shapes = {v.name: dims(v) for v in graph.value_info}
    tokens = {tuple(dims(v)[:2]): v.name for v in graph.input if v.name in ("xc", "xt")}
    weights = {t.name: tuple(t.dims) for t in graph.initializer}
    users: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    ends = {v.name for v in graph.output}

    def only_user(name: str, kind: str) -> Any:
        found = users.get(name, [])
        return found[0] if len(found) == 1 and found[0].op_type == kind and name not in ends else None

    first, replaced, sizes = [], {}, {}
    for node in graph.node:
        if node.op_type != "MatMul" or len(weights.get(node.input[1], ())) != 2:
            continue
        x, weight = node.input
        source = tokens.get(tuple(shapes.get(x, [])[:2])) if len(shapes.get(x, [])) == 3 else None
        add = only_user(node.output[0], "Add")
        bias = None if add is None else next((name for name in add.input if len(weights.get(name, ())) == 1), None)
        if source is None or bias is None:
            continue
        inside, outside = weights[weight]
        for name, size in ((f"rows_{inside}", [-1, inside]), (f"width_{outside}", [outside])):
            if name not in sizes:
                sizes[name] = onnx.numpy_helper.from_array(np.array(size, dtype=np.int64), name)
        shape = f"{source}_by_{outside}"
        if shape not in sizes:
            sizes[shape] = None
            first += [
                onnx.helper.make_node("Shape", [source], [f"{shape}_lead"], start=0, end=2),
                onnx.helper.make_node("Concat", [f"{shape}_lead", f"width_{outside}"], [shape], axis=0),
            ]
        relu, flat = only_user(add.output[0], "Relu"), f"{add.output[0]}_rows"
        last = add if relu is None else relu
        new = [
            onnx.helper.make_node("Reshape", [x, f"rows_{inside}"], [f"{flat}_in"]),
            onnx.helper.make_node("Gemm", [f"{flat}_in", weight, bias], [flat]),
        ]
        if relu is not None:
            new.append(onnx.helper.make_node("Relu", [flat], [f"{flat}_relu"]))
        new.append(onnx.helper.make_node("Reshape", [new[-1].output[0], shape], [last.output[0]]))
        replaced.update({node.output[0]: [], add.output[0]: [], last.output[0]: new})
    nodes = [*first, *(new for node in graph.node for new in replaced.get(node.output[0], [node]))]
    graph.initializer.extend(t for t in sizes.values() if t is not None)
    del graph.node[:]
    graph.node.extend(nodes)


def dims(value: Any) -> list[Any]:
    """The sizes of an input or output: numbers, or names of those that are dynamic."""
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


def name_sizes(graph: Any) -> None:
    """Names the dynamic sizes of inputs and outputs; those of other tensors are left out, as runtimes find them."""
    del graph.value_info[:]
    xc, xt = (next(dims(v) for v in graph.input if v.name == name) for name in ("xc", "xt"))
    names = {xc[0]: "tasks", xc[1]: "context", xt[1]: "targets"}
    for value in (*graph.input, *graph.output):
        for d in value.type.tensor_type.shape.dim:
            if d.dim_param:
                d.dim_param = names.get(d.dim_param, d.dim_param)


def halve(onnx: Any, graph: Any) -> None:
    """Stores weights in half precision where that changes none of them, as for the pretrained ones, which are shipped
    in half precision; a runtime converts them once, when it loads the file."""
    casts = []
    for tensor in graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT or np.prod(tensor.dims, dtype=int) < HALVED:
            continue
        values = onnx.numpy_helper.to_array(tensor)
        with np.errstate(over="ignore"):
            half = values.astype(np.float16)
        if not np.array_equal(half.astype(np.float32), values):
            continue
        name = tensor.name
        tensor.CopyFrom(onnx.numpy_helper.from_array(half, f"{name}_half"))
        casts.append(onnx.helper.make_node("Cast", [f"{name}_half"], [name], to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def compare(model: NeuralProcess, path: Path) -> float:
    """The largest difference between the predictions of a file and of torch, over some random data sets, also one
    whose context is masked out."""
    session = open_session(path)
    generator, worst = torch.Generator().manual_seed(0), 0.0
    for tasks, context, targets in SIZES:
        xc, xt = (torch.rand(tasks, n, model.dx, generator=generator) for n in (context, targets))
        yc = torch.randn(tasks, context, model.dy, generator=generator)
        for mask in (torch.ones(tasks, context, dtype=torch.bool), torch.zeros(tasks, context, dtype=torch.bool)):
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
