"""Reads sources as text: constants, launch bounds and includes of CUDA; kernels and constants of Python."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from gemmrepro.core import paths
from gemmrepro.core.trees import without_comments
from gemmrepro.registry import Kernel

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


def text_of(kernel: Kernel) -> str:
    """The text of a kernel's source and of its family's own headers, without comments."""
    own = [path for path in kernel.header_paths if path.parent == kernel.source_path.parent]
    texts = [path.read_text() for path in (kernel.source_path, *own) if path.is_file()]
    return without_comments("\n".join(texts))


def included(path: Path) -> set[str]:
    """Headers under kernels/ that a file includes, directly or indirectly; paths are relative to kernels/."""
    reached: set[str] = set()
    pending = [path]
    while pending:
        file = pending.pop()
        if not file.is_file():
            continue
        for name in re.findall(r'^\s*#include "([^"]+)"', file.read_text(), re.M):
            if name not in reached:
                reached.add(name)
                pending.append(paths.KERNELS_DIR / name)
    return reached


def launch_bounds(text: str, entry: str) -> str | None:
    """The first argument of an entry point's ``__launch_bounds__``, as text; None if it has none."""
    match = re.search(rf"__launch_bounds__\(([^,()]*(?:\([^()]*\)[^,()]*)*)[^;{{]*?\)\s*{entry}\s*\(", text)
    return match[1] if match else None


def constants(text: str, defines: Mapping[str, str]) -> dict[str, str]:
    """Integer constants of a source and their expressions; the record's `defines` override the source's macros."""
    whole = text.replace("\\\n", " ")
    own = re.findall(r"^[ \t]*#define (\w+) ([^\n]+)$", whole, re.M)
    macros = {**dict(own), **defines}
    named = {name: value.strip() for name, value in macros.items() if re.fullmatch(r"[\w\s()*/%+<>-]+", value)}
    for declaration in re.findall(r"\bconstexpr (?:int|unsigned|long long|size_t) ([^;]+);", text):
        if declaration.strip() in macros:  # constexpr int PARAMETERS;
            declaration = macros[declaration.strip()]
        for name, value in _assignments(declaration):
            named.setdefault(name, value)
    return named


def _assignments(declaration: str) -> Iterator[tuple[str, str]]:
    """``A = 1, B = f(2, 3)`` as pairs of name and expression; commas inside parentheses do not separate."""
    depth, start = 0, 0
    for place, character in enumerate(declaration + ","):
        depth += (character in "({[") - (character in ")}]")
        if character == "," and depth == 0:
            name, equals, value = declaration[start:place].partition("=")
            if equals:
                yield name.strip(), value.strip()
            start = place + 1


def value_of(expression: str, named: Mapping[str, str], depth: int = 0) -> int | None:
    """The value of an expression, or None if it is more than integer arithmetic on constants."""
    if depth > 20:  # a constant defined in terms of itself
        return None
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except SyntaxError:
        return None
    return _value(tree, named, depth)


def _value(node: ast.expr, named: Mapping[str, str], depth: int) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name) and node.id in named:
        return value_of(named[node.id], named, depth + 1)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left, named, depth), _value(node.right, named, depth)
        if left is None or right is None or (right == 0 and isinstance(node.op, ast.Div | ast.Mod)):
            return None
        return _OPERATORS[type(node.op)](left, right)
    return None


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
