"""Which of our own modules a stage runs, and one hash over them: what a rule reruns for.

Snakemake sees a rule's command and not what it imports. Rules therefore take `code_hash` of their stage as a parameter.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from gemmrepro.core import trees

PACKAGE = Path(__file__).resolve().parents[1]

IRRELEVANT = frozenset({"gemmrepro.errors"})
"""Modules that no result depends on: they say how a job fails."""


def file_of(module: str) -> Path | None:
    """The file of ``gemmrepro.core.files`` or of the package ``gemmrepro.core``; None if there is no such module."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    if path.with_suffix(".py").is_file():
        return path.with_suffix(".py")
    return path / "__init__.py" if (path / "__init__.py").is_file() else None


@cache
def imports(module: str) -> frozenset[str]:
    """Our modules that `module` imports, at any depth of its code.

    ``from gemmrepro.core import files`` imports the module, ``from gemmrepro.registry import Kernel`` the package.
    """
    path = file_of(module)
    named: set[str] = set()
    for node in ast.walk(trees.parse(path)) if path else ():
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            named |= {name if _is_ours(name) else node.module for name in inner}
    return frozenset(name for name in named if _is_ours(name)) - {module}


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == PACKAGE.name and file_of(module) is not None


@cache
def closure(*modules: str, without: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """`modules` and all of ours that they import, sorted; nothing of the packages and modules named by `without`."""

    def left_out(name: str) -> bool:
        return any(name == package or name.startswith(f"{package}.") for package in without | IRRELEVANT)

    reached: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in reached and not left_out(name):
            reached.add(name)
            waiting += imports(name)
    return tuple(sorted(reached))


def code_hash(*modules: str, without: frozenset[str] = frozenset()) -> str:
    """16 hex digits that change with the behaviour of `modules` or of anything of ours that they import.

    Raises:
        ValueError: there is no such module.
    """
    for module in modules:
        if file_of(module) is None:
            raise ValueError(f"there is no module {module}")
    hashes = {name: trees.file_hash(path) for name in closure(*modules, without=without) if (path := file_of(name))}
    return trees.digest(repr(sorted(hashes.items())))
