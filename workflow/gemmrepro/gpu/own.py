"""Kernels and baselines of one's own: a Python file that says what it computes, and binds a launch to arrays.

docs/adding.md is the recipe. What a file declares is read from its text, and nothing of it runs, so that a machine
without a GPU and without its packages can plan for it.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from gemmrepro.core import schemas, trees
from gemmrepro.core.files import load_module
from gemmrepro.errors import UserError, at_line, line_in
from gemmrepro.gpu import baselines
from gemmrepro.gpu.device import Session
from gemmrepro.operands import Operands
from gemmrepro.operations import ROW_MAJOR, Shape
from gemmrepro.registry import Accepts, Call, Code, Compute, Kernel, Launch, Platform, Timing

OWN = "own"
"""The family of such kernels, and their toolkit."""

PATIENCE = 300.0
"""Seconds that one launch, or what is done with it, may take."""

SIZES = (1024, 4096, 8192)

TYPES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("fp32", "tf32"), ("fp32",)),
    **{"fp64": ("fp64",), "int8": ("int32",), "fp16": ("fp16", "fp32"), "bf16": ("bf16", "fp32")},
    **dict.fromkeys(("fp8_e4m3", "fp8_e5m2"), ("fp16", "bf16", "fp32")),
}
"""Types of the result by those of the operands; the first is the default."""


@dataclass(frozen=True, kw_only=True)
class OwnKernel(Kernel):
    """The record of such a kernel; `graph` is whether a CUDA graph can hold its launch."""

    graph: bool = True

    @property
    def capturable(self) -> bool:
        return self.graph


@dataclass(frozen=True)
class Own:
    """A file, the lines at which it declares its keys and `bind`, and what it declares.
    `baseline`: the file that it is compared with, if that is one's own."""

    path: Path
    lines: Mapping[str, int]
    kernel: OwnKernel
    sizes: tuple[int, ...]
    baseline: Own | None = None

    def wrong(self, key: str, why: str) -> UserError:
        """An error at the line of a key, or of ``bind``."""
        return at_line(self.path, self.lines.get(key, self.lines["KERNEL"]), why)

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """The file, and what lies beside it and is named in it or imported by it, at any depth."""
        found, waiting = dict[Path, None](), [self.path]
        beside = {entry.name: entry for entry in self.path.parent.iterdir() if entry.is_file()}
        while waiting:
            found[path := waiting.pop()] = None
            words = set(re.findall(r"[\w.+-]+", path.read_text(errors="replace"))) if path.suffix == ".py" else set()
            waiting += {beside[name] for word in words for name in (word, f"{word}.py") if name in beside} - {*found}
        return tuple(sorted(found))

    @property
    def all_files(self) -> tuple[Path, ...]:
        return (*self.files, *(self.baseline.files if self.baseline else ()))

    @cached_property
    def key(self) -> str:
        """16 hex digits that change with the file and what it uses of its folder."""
        return trees.digest(repr([(path.name, path.read_bytes()) for path in self.files]))


def read(path: Path) -> Own:
    """The declarations of a file, and the file that it is compared with.
    Raises UserError, with file, line and remedy, if it is no such file, or one of them declares something wrong."""
    own = _read(Path(os.path.realpath(path)))
    name = str(own.kernel.timing.baseline)
    if not name.endswith(".py"):
        try:
            single = name.startswith("cublas.sgemm") and own.kernel.problem.dtype_in not in ("fp32", "tf32")
            if single or baselines.baseline(name).op != own.kernel.compute.op:
                raise UserError(f"{name} does not compute what KERNEL says; choose another.")
        except UserError as error:
            raise own.wrong("baseline", str(error)) from None
        return own
    if not (beside := own.path.parent / name).is_file():
        raise own.wrong("baseline", f"there is no {name} beside it; name a file there, or a library's call.")
    other = _read(beside)
    if other.kernel.problem != own.kernel.problem or other.kernel.id == own.kernel.id:
        raise own.wrong("baseline", f"{name} must compute the same and have another name; correct its KERNEL.")
    kernel = replace(own.kernel, timing=replace(own.kernel.timing, baseline=other.kernel.id))
    return replace(own, kernel=kernel, baseline=other)


def _read(path: Path) -> Own:
    try:
        tree = ast.parse(schemas.text_at(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = (*error.args, "it is nested too deeply")[0]
        raise at_line(path, line_in(path, error) or 1, f"{why}; correct it.") from None
    bound: dict[str, Any] = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            bound |= {to.id: node.value for to in node.targets if isinstance(to, ast.Name)}
    table, function, declared = bound.get("KERNEL"), bound.get("bind"), None
    with contextlib.suppress(ValueError, TypeError):
        declared = ast.literal_eval(table) if isinstance(table, ast.Dict) else None
    if declared is None or not isinstance(table, ast.Dict):
        why = "write KERNEL = {...}, a dict of constants that says what it computes."
        raise at_line(path, getattr(table, "lineno", 1), why)
    told: Any = function.args if isinstance(function, ast.FunctionDef) else None
    if not told or len(told.posonlyargs + told.args) != 4 or told.vararg or told.kwonlyargs or told.kwarg:
        why = "write def bind(a, b, c, stream), which returns what launches once."
        raise at_line(path, getattr(function, "lineno", table.lineno), why)
    lines = {str(ast.literal_eval(key)): key.lineno for key in table.keys if key is not None}
    if len(lines) < len(table.keys):
        raise at_line(path, table.lineno, "KERNEL has a key twice; leave one.")
    lines |= {"KERNEL": table.lineno, "bind": bound["bind"].lineno}
    return _checked(path, {str(name): value for name, value in declared.items()}, lines)


def _checked(path: Path, declared: Mapping[str, Any], lines: Mapping[str, int]) -> Own:
    """The record, if every value is right."""

    def wrong(key: str, why: str) -> UserError:
        return at_line(path, lines.get(key, lines["KERNEL"]), f"{key}: {why}.")

    for violation in schemas.errors(declared, "own.schema.yaml", whole_numbers=True):
        raise wrong(str(schemas.keys_of(violation)[0]), schemas.told(violation))
    given = {"layout": ROW_MAJOR, "dtype_in": "fp32", "dtype_acc": "fp32", "sizes": SIZES, **declared}
    operand = given["dtype_in"]
    name = given.setdefault("name", re.sub(r"[^a-z0-9_]+", "_", path.stem.lower()))
    if given.setdefault("dtype_out", TYPES[operand][0]) not in TYPES[operand]:
        judged = " or ".join(TYPES[operand])
        raise wrong("dtype_out", f"a product of {operand} is judged in {judged}; write one of these")
    if given["dtype_acc"] == "fp16" and operand != "fp16":
        raise wrong("dtype_acc", f"sums of {operand} are not kept in fp16; leave it out")
    kernel = OwnKernel(
        id=f"{OWN}.{name}",
        rung=given.get("title", name),
        title=given.get("title", name),
        source=str(path),
        code=Code(entry="bind"),
        launch=lambda shape: Launch((1, 1, 1), (1, 1, 1)),
        timing=Timing(baseline=given.get("baseline", "cublas.sgemm" if operand == "fp32" else "cublas.gemm")),
        compute=Compute(
            dtype_in=operand,
            dtype_acc={"fp64": "fp64", "int8": "int32"}.get(operand, given["dtype_acc"]),
            dtype_out=given["dtype_out"],
            layout=given["layout"],
        ),
        call=Call(arguments=("a", "b", "c")),
        platform=Platform(toolkits=(OWN,)),
        accepts=Accepts(given.get("multiple_of", {}), given.get("at_most", {})),
        graph=given.get("graph", True),
    )
    for size in given["sizes"]:
        for objection in kernel.accepts.objections(kernel.problem, Shape.cube(size)):
            raise wrong("sizes", f"{objection}, as it declares itself; choose other sizes")
    return Own(path, lines, kernel, tuple(given["sizes"]))


def named(files: Iterable[Path]) -> dict[str, Own]:
    """The kernels that files declare, by name; a file that another one names as its baseline is none.
    Raises UserError if a file declares something wrong, or two have one name."""
    found: dict[str, Own] = {}
    read_files = [read(path) for path in dict.fromkeys(Path(os.path.realpath(path)) for path in files)]
    compared = {own.baseline.path for own in read_files if own.baseline}
    for own in (own for own in read_files if own.path not in compared):
        if own.kernel.name in found:
            raise own.wrong("name", f"{found[own.kernel.name].path} is {own.kernel.name} too; give one another name.")
        found[own.kernel.name] = own
    return found


def loaded(own: Own) -> Callable[..., Any]:
    """Run a file, and return its `bind`. Raises UserError, with the line or the missing package, if the file fails."""
    sys.path.insert(0, str(own.path.parent))
    try:
        function: Callable[..., Any] = load_module(f"gemmrepro_own_{own.kernel.name}", own.path).bind
    except ModuleNotFoundError as error:
        why = f"the image torch has no package {error.name}; do without it, or put it beside the file."
        raise _raised(own, error, why) from None
    except (Exception, SystemExit) as error:
        raise UserError(failure(own, error)) from None
    return function


def failure(own: Own, error: BaseException) -> str:
    """The failure of a file, in one line with the line of the file."""
    said = " ".join(str(error).split())[:300]
    if isinstance(error, UserError):
        return said
    remedy = "; if no CUDA graph can hold a launch, declare 'graph': False" if "captur" in said.lower() else ""
    return str(_raised(own, error, f"{type(error).__name__}: {said}{remedy}"))


def _raised(own: Own, error: BaseException, why: str) -> UserError:
    return at_line(own.path, line_in(own.path, error) or own.lines["bind"], why)


class Bound:
    """A file's `bind` on an open GPU, in the place of a loaded binary; a launch may take `patience` seconds."""

    def __init__(self, session: Session, own: Own, function: Callable[..., Any], patience: float = PATIENCE) -> None:
        self.kernel, self.build_key, self.arch = own.kernel, own.key, session.gpu.arch
        self._session, self._own, self._function, self._patience = session, own, function, patience

    def bind(self, operands: Operands, part: Kernel | None = None) -> Callable[[], None]:
        """A function that launches once on `operands`. Raises UserError, with file and line."""
        # Python runs no signal handler while the driver waits for a launch; the default one ends the process.
        signal.setitimer(signal.ITIMER_REAL, self._patience)
        self.kernel.check(operands.shape)
        arrays = [array.reshape(operands.lengths(name)) for name, array in operands.arrays().items()]
        try:
            launch: Callable[[], None] = self._function(*arrays, self._session.stream.ptr)
        except (Exception, SystemExit) as error:
            raise UserError(failure(self._own, error)) from error
        if not callable(launch):
            raise self._own.wrong("bind", f"bind returned {launch!r:.60}; return a function that launches once.")
        return launch

    def as_baseline(self) -> baselines.Baseline:
        """The same as what others are compared with."""
        of, version = self.kernel, f"{self._own.path.name} {self.build_key}"
        half_sums = of.compute.dtype_acc == "fp16"
        return baselines.Baseline(
            of.id, of.rung, of.compute.op, lambda _, operands: self.bind(operands), lambda _: version, half_sums
        )
