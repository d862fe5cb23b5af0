"""Limits that no linter of ours checks."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from support import ROOT

LINES = 60
"""A function fits one screen."""

REASON = re.compile(r"\bLong because\b")
"""Begins the sentence of a docstring that says why a function is longer."""


def checked_files() -> list[Path]:
    kernels = [path for name in ("family.py", "experiments.py") for path in (ROOT / "kernels").glob(f"*/{name}")]
    library = (ROOT / "workflow" / "gemmrepro").rglob("*.py")
    return sorted([*library, ROOT / "workflow" / "scripts" / "record", *kernels])


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert function.end_lineno is not None
    return function.end_lineno - function.lineno + 1


def test_no_function_is_long_without_a_reason() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name}: {lines_of(function)} lines"
        for path in checked_files()
        for function in functions(ast.parse(path.read_text()))
        if lines_of(function) > LINES and not REASON.search(ast.get_docstring(function) or "")
    ]
    assert long == []
