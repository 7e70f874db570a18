"""The import graph: packages depend on each other in one direction, also through imports inside functions."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import shiftnp

ROOT = Path(shiftnp.__file__).parent


def package(module: str) -> str:
    """The part of shiftnp that a module belongs to: a package or a module at the top."""
    return module.split(".")[1] if "." in module else module


def graph() -> dict[str, set[str]]:
    modules = {}
    for path in ROOT.rglob("*.py"):
        name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        modules[name.removesuffix(".__init__")] = path
    edges = defaultdict(set)
    for name, path in modules.items():
        if name == "shiftnp":  # hands names on to users; parts of it import its version only
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shiftnp"):
                full = [f"{node.module}.{alias.name}" for alias in node.names]
                targets = [target if target in modules else node.module for target in full]
            elif isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names if alias.name.startswith("shiftnp.")]
            else:
                continue
            edges[package(name)] |= {package(target) for target in targets} - {package(name), "shiftnp"}
    return edges


def test_no_cycles_between_packages():
    edges = graph()
    assert edges["models"] >= {"kernels", "nn"}  # so the graph is read at all

    def reachable(start: str) -> set[str]:
        found, todo = set(), [start]
        while todo:
            new = edges.get(todo.pop(), set()) - found
            found |= new
            todo += new
        return found

    cycles = {name: sorted(other for other in edges[name] if name in reachable(other)) for name in list(edges)}
    assert {name: others for name, others in cycles.items() if others} == {}


def test_layers_know_nothing_of_those_above():
    edges = graph()
    assert edges["attention"] <= {"geometry", "_cpu"}
    assert edges["nn"] <= {"attention", "geometry"}
    assert edges["kernels"] <= {"nn", "attention", "geometry", "_registry"}
    assert not edges["models"] & {"tasks", "runs", "plots", "cli", "experiments", "report"}
    assert not edges["tasks"] & {"models", "runs", "cli", "experiments", "report"}
