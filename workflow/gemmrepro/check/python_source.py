"""Reads Python sources (cuTile, CuTe's DSL) without importing them: kernels and their constants."""

from __future__ import annotations

import ast
from pathlib import Path


def kernels_of(path: Path) -> dict[str, tuple[str, ...]]:
    """Names of functions decorated as kernels, each with its constant parameters (annotated ``Constant``)."""
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    return {node.name: _constants(node) for node in functions if any(map(_is_kernel, node.decorator_list))}


def module_constants(path: Path) -> dict[str, int]:
    """Integer constants that a module assigns."""
    integers: dict[str, int] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, int):
            integers |= {target.id: node.value.value for target in node.targets if isinstance(target, ast.Name)}
    return integers


def _is_kernel(decorator: ast.expr) -> bool:
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(node, ast.Attribute) and node.attr == "kernel"


def _constants(function: ast.FunctionDef) -> tuple[str, ...]:
    return tuple(
        argument.arg
        for argument in function.args.args
        if argument.annotation is not None and "Constant" in ast.unparse(argument.annotation)
    )
