"""Limits that no linter of ours checks."""

import ast

from support import ROOT

LINES = 60
"""A function fits one screen."""


def test_no_function_is_long() -> None:
    kernels = [path for name in ("family.py", "experiments.py") for path in (ROOT / "kernels").glob(f"*/{name}")]
    library = (ROOT / "workflow" / "gemmrepro").rglob("*.py")
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sorted([*library, ROOT / "workflow" / "scripts" / "record", *kernels])
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= LINES
    ]
    assert long == []
