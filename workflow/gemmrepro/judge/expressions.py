"""Arithmetic that claims.yaml may hold: numbers, names, ``+ - * / **`` and parentheses, and nothing else."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping

_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_SIGNS: Mapping[type[ast.unaryop], float] = {ast.UAdd: 1.0, ast.USub: -1.0}
_LONGEST = 400


def names_in(expression: str) -> set[str]:
    """The names that an expression uses. Raises ValueError if it is not arithmetic."""
    return {node.id for node in ast.walk(_parse(expression)) if isinstance(node, ast.Name)}


def evaluate(expression: str, values: Mapping[str, float]) -> float:
    """The value of an expression in 64-bit floating point, so that no power of integers can grow without limit.

    Raises:
        ValueError: it is not arithmetic, uses a name that `values` lacks, divides by zero, or is no finite number.
    """
    try:
        result = _value(_parse(expression), values)
    except ZeroDivisionError:
        raise ValueError(f"'{expression}' divides by zero") from None
    except OverflowError:
        raise ValueError(f"'{expression}' is too large") from None
    if isinstance(result, complex) or not math.isfinite(result):
        raise ValueError(f"'{expression}' is no finite number")
    return result


def _parse(expression: str) -> ast.expr:
    """The expression's tree, of which every node is allowed. Raises ValueError."""
    if len(expression) > _LONGEST:
        raise ValueError(f"an expression has at most {_LONGEST} characters")
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError(f"'{expression}' is not arithmetic") from None
    for node in ast.walk(tree):
        if not _allowed(node):
            named = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
            raise ValueError(f"'{expression}' holds '{named}'; only numbers, names, + - * / ** and parentheses may")
    return tree


def _allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    kinds = (ast.BinOp, ast.UnaryOp, ast.Name, ast.Load, *_OPERATORS, *_SIGNS)
    return isinstance(node, kinds)


def _value(node: ast.expr, values: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            if name not in values:
                raise ValueError(f"there is no '{name}' among {', '.join(sorted(values)) or 'no names at all'}")
            return float(values[name])
        case ast.UnaryOp(op=sign, operand=operand):
            return _SIGNS[type(sign)] * _value(operand, values)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, values), _value(right, values))
    raise ValueError(f"'{ast.unparse(node)}' is not arithmetic")
