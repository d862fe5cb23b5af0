"""Small faults in the code that judges, measures and gates: which there can be, and how a module looks with one."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
OTHERS = {"min": "max", "max": "min", "any": "all", "all": "any"}
COMMAND_LINES = ("main", "_arguments", "_parser", "document", "describe")
"""Functions that are left out: command lines, which tests run as processes, where the mutant is not."""


@dataclass(frozen=True)
class Mutant:
    """One fault: the `number`-th possible one of `path`, on line `line` of `function`."""

    path: Path
    number: int
    line: int
    function: str
    kind: str

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}"


Edit = tuple[ast.AST, ast.AST, str]
"""A node, what takes its place, and the fault in words."""


def _of_expression(node: ast.AST) -> Iterator[Edit]:
    """Faults of an expression."""
    if isinstance(node, ast.Compare):
        for place, kind in enumerate(node.ops):
            new = copy.deepcopy(node)
            new.ops[place] = COMPARISONS[type(kind)]()
            yield node, new, f"{ast.unparse(node)} becomes {ast.unparse(new)}"
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        new = copy.deepcopy(node)
        new.op = ARITHMETIC[type(node.op)]()
        yield node, new, f"{ast.unparse(node)} becomes {ast.unparse(new)}"
    elif isinstance(node, ast.BoolOp):
        new = copy.deepcopy(node)
        new.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        yield node, new, f"{ast.unparse(node)} becomes {ast.unparse(new)}"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        yield node, node.operand, f"{ast.unparse(node)} becomes {ast.unparse(node.operand)}"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        value = not node.value if isinstance(node.value, bool) else node.value + 1
        yield node, ast.Constant(value), f"{node.value} becomes {value}"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in OTHERS:
        new = copy.deepcopy(node)
        new.func = ast.Name(OTHERS[node.func.id], ast.Load())
        yield node, new, f"{ast.unparse(node)} becomes {ast.unparse(new)}"


def _of_statement(node: ast.AST) -> Iterator[Edit]:
    """Faults of a statement or of a condition."""
    if isinstance(node, ast.If | ast.IfExp):
        new = copy.deepcopy(node)
        new.test = ast.UnaryOp(ast.Not(), node.test)
        yield node, new, f"the condition {ast.unparse(node.test)} is turned round"
    elif isinstance(node, ast.comprehension):
        for place, test in enumerate(node.ifs):
            new = copy.deepcopy(node)
            del new.ifs[place]
            yield node, new, f"the filter {ast.unparse(test)} is left out"
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield node, ast.Return(ast.Constant(None)), f"{ast.unparse(node)[:60]} returns None"
    elif isinstance(node, ast.Raise):
        yield node, ast.Pass(), f"{ast.unparse(node)[:60]} is left out"
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.YieldFrom):
        yield node, ast.Pass(), f"{ast.unparse(node)[:60]} is left out"
    elif isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
        new = copy.deepcopy(node)
        new.op = ARITHMETIC[type(node.op)]()
        yield node, new, f"{ast.unparse(node)} becomes {ast.unparse(new)}"
    elif isinstance(node, ast.Continue):
        yield node, ast.Break(), "continue becomes break"
    elif isinstance(node, ast.Break):
        yield node, ast.Continue(), "break becomes continue"


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _inside(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function's body, without annotations, messages of f-strings, and functions inside it."""
    for field, value in ast.iter_fields(function):
        if field in ("annotation", "returns", "args", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr | ast.AnnAssign):
                continue
            yield child
            yield from _inside(child)


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name not in COMMAND_LINES:
            yield node


def _edits(tree: ast.Module) -> Iterator[tuple[str, Edit]]:
    """(function, fault) of everything that can be mutated, in the source's order."""
    seen: set[int] = set()
    for function in _functions(tree):
        for node in _inside(function):
            if id(node) not in seen:
                seen.add(id(node))
                for edit in (*_of_expression(node), *_of_statement(node)):
                    yield function.name, edit


def mutants(path: Path, root: Path) -> list[Mutant]:
    """Every mutant of the module at `root / path`."""
    tree = ast.parse((root / path).read_text())
    return [
        Mutant(path, number, getattr(node, "lineno", None) or _line(node), function, kind)
        for number, (function, (node, _, kind)) in enumerate(_edits(tree))
    ]


def _line(node: ast.AST) -> int:
    """The first line of a node that has none of its own."""
    return min(child.lineno for child in ast.walk(node) if hasattr(child, "lineno"))


def source_of(mutant: Mutant, root: Path) -> str:
    """The module's source with the fault in it."""
    tree = ast.parse((root / mutant.path).read_text())
    old, new, _ = next(edit for number, (_, edit) in enumerate(_edits(tree)) if number == mutant.number)

    class Swap(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return ast.copy_location(new, node) if node is old else self.generic_visit(node)

    return ast.unparse(ast.fix_missing_locations(Swap().visit(tree)))
