"""Code of ours that a stage runs, as one hash: by module for rules, by definition for keys.

Snakemake sees a rule's command and not what it imports, so rules take the `modules_hash` of their stage as a parameter.
Keys of verdicts and of the build cache outlive edits that they do not rest on: their `code_hash` covers the functions,
classes and constants that a definition names, at any depth, in whatever module they stand. ``files.read_json``, a
re-export, an import in a function and a module whose name is a string by itself (``["-m", "gemmrepro.build.cutile"]``)
count. A comment, a docstring (see `trees`) or a move to another module changes nothing.
"""

import ast
import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Any

from gemmrepro.core import trees
from gemmrepro.core.files import write_atomic
from gemmrepro.core.paths import KERNELS_DIR, ROOT

PACKAGE = Path(__file__).resolve().parents[1]

IRRELEVANT = frozenset({"gemmrepro.errors"})
"""Modules that no result depends on: they say how a job fails."""

Definition = tuple[str, str]
"""Module and name; the empty name stands for all of a module."""


@dataclass(frozen=True)
class Contents:
    """A parsed module: statements by the name they bind, those that bind none, and what its imports bind."""

    definitions: Mapping[str, tuple[ast.stmt, ...]]
    effects: tuple[ast.stmt, ...]
    imports: Mapping[str, Definition]


def file_of(module: str) -> Path | None:
    """The file of ``gemmrepro.core.files`` or of the package ``gemmrepro.core``; None if there is no such module."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    if path.with_suffix(".py").is_file():
        return path.with_suffix(".py")
    return path / "__init__.py" if (path / "__init__.py").is_file() else None


@cache
def contents(module: str) -> Contents:
    """The contents of a module of ours. Raises ValueError if there is none of that name."""
    path = file_of(module)
    if path is None:
        raise ValueError(f"there is no module {module}")
    definitions, effects = dict[str, tuple[ast.stmt, ...]](), list[ast.stmt]()
    tree = trees.parse(path)
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom) or trees.is_docstring(statement):
            continue
        names = set(_bound(statement))
        for name in names:
            definitions[name] = (*definitions.get(name, ()), statement)
        effects += [] if names else [statement]
    return Contents(definitions, tuple(effects), dict(_imported(tree)))


def closure(
    *start: str, without: frozenset[str] = frozenset(), within: frozenset[str] = frozenset()
) -> set[Definition]:
    """Every definition that `start` (modules, or ``module:name``) reaches. Raises ValueError if a module is none.
    Code of the packages and modules in `without` does not count; nor, if there are any `within`, that of all others."""
    reached: set[Definition] = set()
    waiting = [_resolved(*place.partition(":")[::2]) for place in start]
    while waiting:
        place = waiting.pop()
        module, _ = place
        if place in reached or _is_in(module, without | IRRELEVANT) or (within and not _is_in(module, within)):
            continue
        reached.add(place)
        waiting += _needed(place)
    return reached


@cache
def code_hash(*start: str, without: frozenset[str] = frozenset(), within: frozenset[str] = frozenset()) -> str:
    """16 hex digits that change with what `start` reaches; see `closure`."""
    code = {
        (name, trees.text(statement))
        for module, name in closure(*start, without=without, within=within)
        for statement in _statements((module, name))
    }
    return trees.digest(repr(sorted(code)))


def modules_hash(*start: str | Path, without: frozenset[str] = frozenset()) -> str:
    """16 hex digits that change with the code of every module of ours that `start` imports, at any depth.

    `start`: modules, or Python files outside the library. Comments, docstrings and layout do not count, nor do modules
    in `without` and what they alone import; annotations do, as some are read. Raises ValueError without such a module.
    """
    hashes: dict[str, str] = {}
    waiting = list(start)
    while waiting:
        place = waiting.pop()
        name = place if isinstance(place, str) else "/".join(place.parts[-2:])
        if name in hashes or _is_in(name, without):
            continue
        path = file_of(place) if isinstance(place, str) else place
        if path is None:
            raise ValueError(f"there is no module {place}")
        hashes[name], imported = _module(path)
        waiting += imported
        if name.count(".") > 1 and isinstance(place, str):
            waiting.append(name.rpartition(".")[0])  # the package, which is imported first
    return trees.digest(repr(sorted(hashes.items())))


@cache
def _module(path: Path) -> tuple[str, frozenset[str]]:
    """A hash of a file's code, and our modules that it imports or names in a string by itself."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))  # of its own, since docstrings leave it
    needed = {module for _, (module, _) in _imported(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_module(node.value):
            needed.add(node.value)
        elif isinstance(body := getattr(node, "body", None), list):
            body[:] = [statement for statement in body if not trees.is_docstring(statement)]
    return trees.digest(ast.dump(tree)), frozenset(needed)


class Memo:
    """Texts that follow from the sources alone, kept in a file as long as no source changes.
    So a start with nothing to do parses none of the library's, families' and articles' files. `told` is what else
    decides, such as a variable of the environment."""

    def __init__(self, path: Path, *told: str) -> None:
        roots = PACKAGE, KERNELS_DIR, ROOT / "articles"
        files = sorted(file for root in roots for file in root.rglob("*") if file.is_file() and file.suffix != ".pyc")
        read = [(str(file), hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]
        self._path, self._state, self._new = path, trees.digest(repr((sys.version, told, read))), False
        try:
            state, self._kept = json.loads(path.read_text())
        except (OSError, ValueError):
            state = ""
        if state != self._state:
            self._kept = {}

    def __call__(self, function: Callable[..., str]) -> Callable[..., str]:
        @wraps(function)
        def remembered(*arguments: Any, **named: Any) -> str:
            key = repr((function.__name__, arguments, sorted(named.items())))
            if key not in self._kept:
                self._kept[key], self._new = function(*arguments, **named), True
            return self._kept[key]

        return remembered

    def save(self) -> None:
        """Keep what was computed; a disk that is full or read-only only costs the next start its time."""
        if self._new:
            with contextlib.suppress(OSError):
                write_atomic(self._path, json.dumps([self._state, self._kept]))


def _statements(place: Definition) -> tuple[ast.stmt, ...]:
    parsed = contents(place[0])
    bound = [parsed.definitions.get(place[1], ())] if place[1] else parsed.definitions.values()
    return (*(statement for statements in bound for statement in statements), *parsed.effects)


@cache
def _needed(place: Definition) -> frozenset[Definition]:
    """Names of our own code in the statements of a definition."""
    parsed = contents(place[0])
    scope = {name: (place[0], name) for name in parsed.definitions} | dict(parsed.imports)
    return frozenset(
        needed for statement in _statements(place) for needed in _named(statement, scope | dict(_imported(statement)))
    )


def _named(statement: ast.stmt, scope: Mapping[str, Definition]) -> Iterator[Definition]:
    """Names in a statement that `scope` binds; a bare string may name a module."""
    owners: set[ast.AST] = set()
    for node in trees.walk(statement):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner, name = scope.get(node.value.id, ("", "unknown"))
            if not name:  # a module, of which one thing is taken
                owners.add(node.value)
                yield _resolved(owner, node.attr)
        elif isinstance(node, ast.Name) and node not in owners and isinstance(node.ctx, ast.Load) and node.id in scope:
            yield _resolved(*scope[node.id])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_module(node.value):
            yield node.value, ""


def _resolved(module: str, name: str) -> Definition:
    """Where a name of a module is defined: there, where it is handed on from, or as a module of its own."""
    if name and _is_ours(f"{module}.{name}"):
        return f"{module}.{name}", ""
    parsed = contents(module)
    if name in parsed.imports and name not in parsed.definitions:
        return _resolved(*parsed.imports[name])
    return module, name


def _imported(tree: ast.AST) -> Iterator[tuple[str, Definition]]:
    """Names that the imports in a tree bind, of our own code, and where they come from: a module, or its name."""
    for node in ast.walk(tree):
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            if isinstance(node, ast.Import):
                if _is_ours(alias.name):
                    yield alias.asname or alias.name, (alias.name, "")
            elif isinstance(node, ast.ImportFrom) and node.module and _is_ours(node.module):
                inner = f"{node.module}.{alias.name}"
                yield alias.asname or alias.name, (inner, "") if _is_ours(inner) else (node.module, alias.name)


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement at the top of a module binds."""
    made = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    for node in [statement] if isinstance(statement, made) else ast.walk(statement):
        if isinstance(node, made):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _is_in(module: str, packages: frozenset[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _is_module(text: str) -> bool:
    return "." in text and _is_ours(text)  # "gemmrepro" by itself is a word


@cache
def _is_ours(module: str) -> bool:
    return module.split(".")[0] == PACKAGE.name and "/" not in module and file_of(module) is not None
