"""Run keys, and what each stage reads of a record: texts and hashes that change when it does.

A **run key** says what a measurement ran: the binary (its build key) and everything else that reaches the GPU: launch
shapes, arguments, TMA descriptors, scalars, workspace, the host program, and how it is timed. Launch shapes count by
what they are for the shape at hand; `error` and `program`, which cannot be evaluated
without a GPU, by their source and whatever of ours that reaches (`described`), code of other packages by its name.

Rules rerun by the declared parts of a record: `compiled` (build), `judged` (gates), `run` (rows), `drawn` (figures and
verdicts), `told` (report).
"""

import ast
import importlib
import inspect
import json
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from gemmrepro.core import paths, trees
from gemmrepro.core.dependencies import IRRELEVANT, PACKAGE
from gemmrepro.core.trees import digest
from gemmrepro.operations import Shape
from gemmrepro.registry.card import ANOTHER, REFERENCE, PerCard, of
from gemmrepro.registry.families import family as family_record
from gemmrepro.registry.families import kernels
from gemmrepro.registry.groups import LibraryStep, Step
from gemmrepro.registry.records import USUAL_SHAPES, Kernel


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


PROSE = frozenset({"idea", "evidence"})
"""Fields that only the report's text reads."""

NAMES = frozenset({"rung", "title", "article", "published_system", "gain_over"})
"""Fields that only verdicts, figures and the report read."""

CHECKS = frozenset(
    {"expects", "spills", "refusals", "chosen_for", "tuned_sms", "gate_shapes", "error_copies", "spoils"}
)
"""Fields that only gates and the report read."""

TIMING_METHOD = 1
"""The method by which `gemmrepro.timing` times a launch; a higher number makes all rows measured before stale."""


def run_key(kernel: Kernel, build_key: str, shape: Shape | None = None, *, timed: bool = True) -> str:
    """The key of a measurement of `kernel` on `shape`: 16 hex digits. Without a shape: on the usual ones.
    `timed`: whether the way of timing counts, as it does for all but a gate's verdict."""
    shapes = usual_shapes(kernel) if shape is None else [shape]
    # The first method is left out: recordings made by it have no number.
    method = [TIMING_METHOD] if timed and TIMING_METHOD > 1 else []
    return digest(json.dumps([build_key, launched(kernel, shapes), *method], sort_keys=True))


def usual_shapes(kernel: Kernel) -> list[Shape]:
    """Shapes that stand for all that `kernel` runs: a few common ones, and those on which its gate sees it do more."""
    smallest = Shape(*(kernel.accepts.multiple_of.get(axis, 1) for axis in "mnk"))
    return [shape for shape in (*USUAL_SHAPES, *kernel.promises.gate_shapes) if kernel.takes(shape)] or [smallest]


def launched(kernel: Kernel, shapes: Iterable[Shape]) -> list[Any]:
    """All that a run on each of `shapes` gives the GPU beside the binary, as JSON; None for one that it cannot run."""
    return [_run(kernel, shape) if kernel.takes(shape) else None for shape in shapes]


def compiled(kernel: Kernel) -> str:
    """The build's part of a record beside its source files, which in CUDA C++ say what they are launched with."""
    parts = [_record(code.code, frozenset({"params"})) for code in kernel.codes]
    record: list[Any] = [parts, kernel.platform.min_capability, kernel.platform.targets]
    if kernel.compiler_traits.reads_record:
        calls = [[code.call.arguments, code.blocks, _plain(code.call.tensor_maps)] for code in kernel.codes]
        arrays = {name: [array.dtype, array.multiples] for name, array in kernel.run.workspace.items()}
        refusals = [[refusal.archs, refusal.message] for refusal in kernel.promises.refusals]
        record += [calls, arrays, refusals, _plain(kernel.compute), sorted(kernel.accepts.multiple_of.items())]
    return digest(json.dumps(record))


def judged(kernel: Kernel) -> str:
    """The gates' part of a record."""
    return digest(json.dumps([_record(kernel, PROSE | NAMES), described(kernel.promises.error), _usual_runs([kernel])]))


def run(family: str) -> str:
    """The part that runs on the GPU, of all kernels of a family."""
    return digest(json.dumps(_usual_runs(kernels(family))))


def drawn(family: str) -> str:
    """The part of figures and verdicts in a family and its records, beside what these run."""
    records = [_record(kernel, PROSE | CHECKS) for kernel in kernels(family)]
    return digest(json.dumps([family_record(family).figures, records]))


def told(family: str) -> str:
    """The report's part of a family and its records, beside what these run: all of it."""
    records = [_record(kernel, frozenset()) for kernel in kernels(family)]
    errors = [described(kernel.promises.error) for kernel in kernels(family)]
    return digest(json.dumps([_plain(family_record(family)), records, errors]))


def _usual_runs(some: Sequence[Kernel]) -> list[Any]:
    runs = []
    for card in (REFERENCE, ANOTHER):  # on which launches differ wherever they depend on the card
        with of(card):
            runs += [launched(kernel, usual_shapes(kernel)) for kernel in some]
    return runs


def _run(kernel: Kernel, shape: Shape) -> dict[str, Any]:
    part = kernel.at(shape)
    steps = part.steps_at(shape) or (part,)
    return {
        "problem": str(part.problem) + part.problem.dtype_out + part.problem.layout,
        "launches": [_launch(step, part, shape) for step in steps],
        "scalars": sorted(part.call.scalars.items()),
        "iterations": part.params.get("iterations"),
        "workspace": {
            name: [array.dtype, *array.lengths(shape), *(["zeroed"] if array.zeroed else [])]
            for name, array in part.run.workspace.items()
        },
        "program": described(part.run.program),
    }


def _launch(step: Step | LibraryStep | Kernel, kernel: Kernel, shape: Shape) -> list[Any]:
    if isinstance(step, LibraryStep):
        return [str(step.problem), str(step.shape(shape)), step.arrays, step.strides(shape), step.count]
    record = kernel.part(step) if isinstance(step, Step) else step
    maps = {operand: [tensor_map.box, tensor_map.swizzle] for operand, tensor_map in record.call.tensor_maps.items()}
    launch = step.launch(shape)
    geometry = [launch.grid, launch.block, launch.cluster, launch.shared_bytes, *(["early"] if launch.early else [])]
    return [record.code.entry, record.call.arguments, geometry, maps]


def _record(record: Any, without: frozenset[str]) -> dict[str, Any]:
    """The fields of a record by name, groups opened; functions are left out, since they count by what they answer."""
    return {name: _plain(value) for name, value in sorted(_leaves(record)) if name not in without}


def _leaves(record: Any) -> Iterator[tuple[str, Any]]:
    for field in fields(record):
        value = getattr(record, field.name)
        if is_dataclass(value) and not isinstance(value, type):
            yield from _leaves(value)
        elif not callable(value):
            yield field.name, value


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return [type(value).__name__, *([name, _plain(inner)] for name, inner in _leaves(value))]
    if isinstance(value, Mapping):
        return sorted([str(key), _plain(inner)] for key, inner in value.items())
    if isinstance(value, list | tuple | set | frozenset | PerCard):
        return [_plain(inner) for inner in value]
    return None if callable(value) else value
