"""Changes of an ONNX graph: names, and forms of operations that runtimes compute faster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shiftnp.export import OUTPUTS

HALVED = 256
"""Smallest number of weights in a tensor that is stored in half precision, if none changes by it."""
COSINE = (0.99999995, -4.93479280, 4.05841079, -1.33187297, 0.21968242)
SINE = (3.14159264, -5.16771008, 2.55007739, -0.59829041, 0.07765591)
"""Coefficients of `cos(pi g)` and `sin(pi g) / g` as polynomials of `g^2`, for `g` from -1/2 to 1/2 (interpolation at
Chebyshev points; errors below 5e-8)."""


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


def expand_sines(onnx: Any, graph: Any) -> None:
    """Computes the cosine and the sine of the same angles by polynomials. Runtimes call a function for each number,
    which in WebAssembly takes several times as long as the sums and products here, of four numbers at once."""
    found: dict[str, dict[str, str]] = {}
    for node in graph.node:
        if node.op_type in ("Cos", "Sin"):
            found.setdefault(node.input[0], {})[node.op_type] = node.output[0]
    both = {angle: (named["Cos"], named["Sin"]) for angle, named in found.items() if len(named) == 2}
    constants: dict[str, Any] = {}

    def constant(value: float) -> str:
        name = f"constant_{value:.9g}"
        constants[name] = onnx.numpy_helper.from_array(np.array(value, dtype=np.float32), name)
        return name

    def expand(angle: str, cosine: str, sine: str) -> list[Any]:
        new: list[Any] = []

        def add(kind: str, *inputs: str, output: str = "") -> str:
            new.append(onnx.helper.make_node(kind, inputs, [output or f"{angle}_turn_{len(new)}"]))
            return new[-1].output[0]

        def polynomial(x: str, coefficients: Sequence[float]) -> str:
            *rest, total = coefficients
            value = constant(total)
            for c in reversed(rest):
                value = add("Add", add("Mul", value, x), constant(c))
            return value

        # With g the angle in turns, from -1/2 to 1/2 around half a turn: cos(a) = 1 - 2 cos(pi g)^2 and
        # sin(a) = -2 sin(pi g) cos(pi g).
        turns = add("Mul", angle, constant(0.5 / math.pi))
        g = add("Sub", add("Sub", turns, add("Floor", turns)), constant(0.5))
        square = add("Mul", g, g)
        c = polynomial(square, [math.sqrt(2) * value for value in COSINE])
        s = polynomial(square, [-math.sqrt(2) * value for value in SINE])
        add("Sub", constant(1.0), add("Mul", c, c), output=cosine)
        add("Mul", add("Mul", s, g), c, output=sine)
        return new

    nodes: list[Any] = []
    for node in graph.node:
        if node.op_type not in ("Cos", "Sin") or node.input[0] not in both:
            nodes.append(node)
        elif node.output[0] == next(iter(found[node.input[0]].values())):  # the first of the two
            nodes += expand(node.input[0], *both[node.input[0]])
    graph.initializer.extend(constants.values())
    del graph.node[:]
    graph.node.extend(nodes)
