"""A record's function as text: its code, the values that it refers to and the functions that it calls.

A record's `error` or `program` cannot be evaluated without a GPU, so it counts by its source and whatever of ours that
reaches: a constant, a helper, a function of `gemmrepro.ozaki`. Code of other packages counts by its name alone.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from gemmrepro.core import paths, trees
from gemmrepro.core.dependencies import IRRELEVANT, PACKAGE


def described(function: Callable[..., Any] | None) -> str:
    """A text that changes when what `function` does may have changed."""
    if function is None:
        return "None"
    reached: dict[str, str] = {}
    first = _value(function, reached)
    return repr((first, sorted(reached.items())))


def _value(value: Any, reached: dict[str, str]) -> str:
    """A value as text. Code of ours is entered in `reached`, by name, and what is returned is that name."""
    if isinstance(value, partial):
        return (
            f"partial({_value(value.func, reached)}, {_value(value.args, reached)}, {_value(value.keywords, reached)})"
        )
    value = inspect.unwrap(value) if callable(value) else value  # functools.cache wraps a function
    if isinstance(value, types.MethodType):
        return f"{_value(value.__self__, reached)}.{_code(value.__func__, reached)}"
    if isinstance(value, types.FunctionType | type):
        return _code(value, reached)
    if isinstance(value, types.ModuleType):
        return "module of ours" if _is_ours(value) else value.__name__
    if is_dataclass(value):
        contents = [f"{field.name}={_value(getattr(value, field.name), reached)}" for field in fields(value)]
        return f"{type(value).__name__}({', '.join(contents)})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_value(k, reached)}: {_value(v, reached)}' for k, v in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item, reached) for item in value)}]"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(_value(item, reached) for item in value))}}}"
    if isinstance(value, str | bytes | int | float | complex | Path | None):
        return repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _code(function: Any, reached: dict[str, str]) -> str:
    """The name under which a function or class is entered: its own, and a hash of its text. A move changes neither."""
    path = _own_file(function)
    if path is None or function.__module__ in IRRELEVANT:
        return f"{function.__module__}.{function.__qualname__}"
    nodes = _definitions(function, path)
    code = "".join(trees.text(node) for node in nodes)
    scope = _scope(function, nodes)
    name = f"{function.__name__} {trees.digest(code)}"
    if name not in reached:
        reached[name] = code  # before what it refers to, which may refer to it
        reached[name] = f"{code} {sorted(set(_references(nodes, scope, reached)))}"
    return name


@cache
def _own_file(function: Any) -> Path | None:
    """The file of a function or class of this project, else None."""
    try:
        path = Path(inspect.getfile(function)).resolve()
    except (TypeError, OSError):
        return None
    return path if path.is_relative_to(PACKAGE) or path.is_relative_to(paths.KERNELS_DIR.resolve()) else None


def _definitions(function: Any, path: Path) -> tuple[ast.AST, ...]:
    """Where a function or class is defined; of several lambdas in one line all, as Python does not tell them apart."""
    line = 0 if isinstance(function, type) else function.__code__.co_firstlineno
    return trees.definitions(path)[function.__name__, line]


def _references(
    nodes: tuple[ast.AST, ...], scope: Mapping[str, Any], reached: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """Meanings of the code's free names: ``name`` or ``module.name``, and its value as text."""
    for node in (inner for outer in nodes for inner in trees.walk(outer)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = scope.get(node.value.id)
            if isinstance(owner, types.ModuleType) and _is_ours(owner) and hasattr(owner, node.attr):
                yield f"{node.value.id}.{node.attr}", _value(getattr(owner, node.attr), reached)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in scope:
            yield node.id, _value(scope[node.id], reached)


def _scope(function: Any, nodes: tuple[ast.AST, ...]) -> dict[str, Any]:
    """Global names, captured variables, and what the code imports for itself."""
    scope = dict(vars(sys.modules[function.__module__]) if isinstance(function, type) else function.__globals__)
    code = getattr(function, "__code__", None)
    for name, cell in zip(code.co_freevars if code else (), getattr(function, "__closure__", None) or (), strict=True):
        scope[name] = cell.cell_contents
    for node in (inner for outer in nodes for inner in trees.walk(outer)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE.name:
            for alias in node.names:
                scope[alias.asname or alias.name] = _imported(str(node.module), alias.name)
    return scope


def _imported(module: str, name: str) -> Any:
    owner = importlib.import_module(module)
    return getattr(owner, name) if hasattr(owner, name) else importlib.import_module(f"{module}.{name}")


def _is_ours(module: types.ModuleType) -> bool:
    return module.__name__.split(".")[0] == PACKAGE.name or module.__name__.startswith("gemmrepro_family_")
