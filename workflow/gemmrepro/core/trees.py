"""Hashes of code that change when its behaviour may, and not when a comment does.

CUDA C++ counts by its tokens. Python is parsed and written down again node by node, in a form that is the same under
every Python from 3.11 on (``ast.dump`` is not). Left out: docstrings, annotations, and what a raised `UserError` says,
since a failing job has no result; `exact_text` keeps the last two. Local variables count by their order of appearance.
"""

import ast
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from gemmrepro.core.paths import shown
from gemmrepro.errors import UserError

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SKIPPED_ALWAYS = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_SKIPPED_FIELDS = _SKIPPED_ALWAYS | {"type_params", "annotation", "returns"}


@cache
def parse(path: Path) -> ast.Module:
    """The file, parsed once per process."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def digest(content: str) -> str:
    """16 hex digits of a text."""
    return hashlib.sha256(content.encode()).hexdigest()[:16]


@cache
def text(node: ast.AST) -> str:
    """`node` in canonical form."""
    return "".join(_write(node, {}))


def exact_text(node: ast.AST) -> str:
    """`node` with annotations, names of locals and messages of errors, which a compiler of Python may read."""
    return "".join(_write(node, None))


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """`node` and all nodes in it, annotations left out."""
    yield node
    for field, value in ast.iter_fields(node):
        if field not in _SKIPPED_FIELDS:
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, ast.AST):
                    yield from walk(inner)


@cache
def definitions(path: Path) -> Mapping[tuple[str, int], tuple[ast.AST, ...]]:
    """Functions, classes and lambdas of a file, by name and line: of its decorators too, and 0 for a class."""
    places = defaultdict[tuple[str, int], list[ast.AST]](list)
    for node in ast.walk(parse(path)):
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            lines = {node.lineno, *(decorator.lineno for decorator in node.decorator_list)}
            for line in (*lines, *([0] if isinstance(node, ast.ClassDef) else [])):
                places[node.name, line].append(node)
        elif isinstance(node, ast.Lambda):
            places["<lambda>", node.lineno].append(node)
    return {place: tuple(nodes) for place, nodes in places.items()}


def is_docstring(node: ast.AST) -> bool:
    """Whether a statement is a string by itself, as docstrings and attribute docstrings are."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _write(node: object, names: dict[str, str] | None) -> Iterator[str]:
    """Pieces of the canonical form; `names` are those of local variables, None in the exact form."""
    if isinstance(node, list):
        yield "["
        for item in node:
            if not (isinstance(item, ast.AST) and is_docstring(item)):
                yield from _write(item, names)
                yield ","
        yield "]"
    elif isinstance(node, ast.AST):
        yield from _write_node(node, names)
    else:
        yield repr(node)


def _write_node(node: ast.AST, names: dict[str, str] | None) -> Iterator[str]:
    if isinstance(node, ast.JoinedStr):
        node = _joined(node)
    if names is not None:
        if isinstance(node, (*_FUNCTIONS, ast.Lambda)):
            depth = f"{names.get('', '')}>"  # no name is empty
            names = names | {"": depth} | {name: f"{depth}{i}" for i, name in enumerate(_locals_of(node))}
        if isinstance(node, ast.Raise) and _raises_user_error(node):
            yield "(Raise UserError)"
            return
    yield f"({type(node).__name__}"
    for field, value in ast.iter_fields(node):
        if field in (_SKIPPED_ALWAYS if names is None else _SKIPPED_FIELDS) or value is None or value == []:
            continue
        yield f" {field}="
        if names and isinstance(value, str) and field in ("id", "arg") and not isinstance(node, ast.keyword):
            yield names.get(value, value)
        else:
            yield from _write(value, names)
    yield ")"


def _raises_user_error(node: ast.Raise) -> bool:
    called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return isinstance(called, ast.Name) and called.id == "UserError"


def _joined(node: ast.JoinedStr) -> ast.JoinedStr:
    """An f-string with neighbouring constants joined: where they are cut differs between versions of Python."""
    values: list[ast.expr] = []
    for value in node.values:
        last = values[-1] if values else None
        if isinstance(value, ast.Constant) and isinstance(last, ast.Constant):
            values[-1] = ast.Constant(str(last.value) + str(value.value))
        else:
            values.append(value)
    return ast.JoinedStr([value for value in values if not (isinstance(value, ast.Constant) and value.value == "")])


def _locals_of(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[str]:
    """Names that a function binds, in order of appearance, but for parameters that a caller may name."""
    if isinstance(function, ast.Lambda):
        return []
    bound: dict[str, None] = {}
    kept = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop(0)
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            bound.setdefault(node.name)  # what it binds is its own
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.Global | ast.Nonlocal):
            kept |= set(node.names)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.setdefault(node.id)
        pending[:0] = list(ast.iter_child_nodes(node))
    return [name for name in bound if name not in kept]


_SPLICE = r"\\[ \t]*\r?\n"
_TOKEN = re.compile(
    rf"""
    (?P<comment>//(?:{_SPLICE}|[^\n])* | /\*.*?\*(?:{_SPLICE})*/)
    | (?P<gap>{_SPLICE} | [ \t\v\f\r]+)
    | (?P<line>\n)
    | (?P<token>
        (?:u8|[uUL])?R"(?P<fence>[^\s()\\"]{{0,16}})\(.*?\)(?P=fence)"  # a raw string, whatever it holds
      | (?:u8|[uUL])?"(?:\\\r?\n|\\.|[^"\\\n])*"
      | (?:u8|[uUL])?'(?:\\.|[^'\\\n])*'
      | \.?[0-9](?:[eEpP][+-]|'?[\w.])*                               # a number: 1e-5f, 0x1p-3, 1'000
      | [^\W\d][\w$]*
      | <<<|>>>|<<=|>>=|<=>|->\*|\.\.\.                               # of operators the longest, as the compiler does
      | \+\+|--|<<|>>|[-+*/%&|^<>=!]=|&&|\|\||->|::|\#\#|\.\*|<[:%]|[:%]>|%:
      | .
    )
    """,
    re.DOTALL | re.VERBOSE,
)


def cuda_tokens(text: str) -> Iterator[str]:
    """Tokens of CUDA C++. White space counts inside literals, at a directive's end ("\\n"), and before the parenthesis
    that may follow the name of a macro. (It would also count in the operand of #, which none of the kernels' needs.)"""
    directive: list[str] = []
    spaced, starts = True, True
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "line":
            if directive:
                yield "\n"
            directive, starts, spaced = [], True, True
        elif match["token"] is None:
            spaced = True
        else:
            token = match["token"]
            if directive or (starts and token in ("#", "%:")):
                directive.append(token)
                if directive[1:2] == ["define"] and len(directive) == 4 and token == "(" and spaced:
                    token = " ("
            yield token
            starts, spaced = False, False
    if directive:
        yield "\n"


def without_comments(text: str) -> str:
    """CUDA C++ with a space in place of every comment."""
    return _TOKEN.sub(lambda match: " " if match["comment"] else match[0], text)


def source_hash(path: Path) -> str:
    """The SHA-256 of what a compiler reads of a source, in hexadecimal. Raises UserError if the file is missing."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{shown(path)} is missing; restore it, or correct the record in family.py.") from None
    return _hash(text, path.suffix == ".py")


@cache
def _hash(text: str, python: bool) -> str:
    read = exact_text(ast.parse(text)) if python else "\0".join(cuda_tokens(text))
    return hashlib.sha256(read.encode()).hexdigest()
