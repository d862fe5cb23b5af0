"""Arithmetic that claims.yaml may hold: numbers, names, ``+ - * / **`` and parentheses, and nothing else."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping

_ALLOWED = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Name, ast.Load, ast.Constant)
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.UAdd, ast.USub)
_LONGEST = 400


def names_in(expression: str) -> set[str]:
    """The names that an expression uses. Raises ValueError if it is not arithmetic."""
    return {node.id for node in ast.walk(_parse(expression)) if isinstance(node, ast.Name)}


def evaluate(expression: str, values: Mapping[str, float]) -> float:
    """The value of an expression in 64-bit floating point, so that no power of integers can grow without limit.
    Raises ValueError for what is no arithmetic, an unknown name, a division by zero, or a result that is not finite."""
    tree = _parse(expression)
    if strange := sorted(names_in(expression) - set(values)):
        raise ValueError(f"there is no '{strange[0]}' among {', '.join(sorted(values)) or 'no names at all'}")
    try:
        known = {name: float(value) for name, value in values.items()}
        result = eval(compile(tree, "", "eval"), {"__builtins__": {}}, known)
    except ZeroDivisionError:
        raise ValueError(f"'{expression}' divides by zero") from None
    except OverflowError:
        raise ValueError(f"'{expression}' is too large") from None
    if isinstance(result, complex) or not math.isfinite(result):
        raise ValueError(f"'{expression}' is no finite number")
    return float(result)


def _parse(expression: str) -> ast.Expression:
    """The expression's tree, of which every node is allowed and every number a float. Raises ValueError."""
    if len(expression) > _LONGEST:
        raise ValueError(f"an expression has at most {_LONGEST} characters")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError(f"'{expression}' is not arithmetic") from None
    for node in ast.walk(tree):
        number = not isinstance(node, ast.Constant) or type(node.value) in (int, float)
        if not isinstance(node, (*_ALLOWED, *_OPERATORS)) or not number:
            named = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
            raise ValueError(f"'{expression}' holds '{named}'; only numbers, names, + - * / ** and parentheses may")
        if isinstance(node, ast.Constant):
            node.value = float(node.value)  # type: ignore[arg-type]
    return tree
