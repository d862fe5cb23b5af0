"""Checks that cuTile kernels compiled just in time write the same bits as the binaries compiled ahead of time."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gemmrepro import timing
from gemmrepro.build import cutile
from gemmrepro.build.record import read_build
from gemmrepro.core.architectures import pick_arch
from gemmrepro.errors import UserError
from gemmrepro.gpu import device, lock
from gemmrepro.measure.compilations import Speed, TwoCompilations, difference, relative_speed, shapes_for
from gemmrepro.operands import Operands, random
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel, LibraryStep

TOOLKIT = "cuda13"
"""The toolkit whose image holds cuTile."""

SEED = 7


@dataclass(frozen=True)
class Verdict:
    """The result of the check of one kernel.

    Attributes:
        status: "passed", "failed" or "skipped".
        reason: why it did not pass; empty if it did.
        same_code: whether both compilations made the same machine code; None unless it passed.
        speed: set if it was timed.
    """

    status: str
    reason: str = ""
    same_code: bool | None = None
    speed: Speed | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __str__(self) -> str:
        text = self.reason or ("the same machine code" if self.same_code else "different machine code")
        if self.speed:
            ratio = f"{self.speed.ratio:.3f} [{self.speed.low:.3f}, {self.speed.high:.3f}]"
            text += f", {ratio} times as fast at {self.speed.n}"
        return f"{self.status:8} {text}"


def require_compiler() -> None:
    """Raises UserError if cuTile or its compiler is not installed."""
    for name in cutile.PACKAGES:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            raise UserError(f"{name} is not installed (the CUDA 13 image has it)") from None


def check(session: device.Session, kernel: Kernel, build: Path, size: int) -> Verdict:
    """Compare both compilations of `kernel` on this GPU; time a matrix product at M = N = K = `size` unless it is 0."""
    if kernel.run.program is not None:
        return Verdict("skipped", "the host chooses between its launches as it goes")
    if any(isinstance(step, LibraryStep) for shape in shapes_for(kernel) for step in kernel.steps_at(shape)):
        return Verdict("skipped", "a library does some of its steps")
    archs = list(read_build(kernel, build, TOOLKIT).archs)
    if pick_arch(archs, session.gpu.compute_capability) is None:
        return Verdict("skipped", f"the binary has no code for {session.gpu.arch}")
    both = TwoCompilations(session, kernel, build, TOOLKIT)
    codes: dict[str, bytes] = {}
    for shape in shapes_for(kernel):
        operands = _operands(kernel, shape)
        workspace = both.loaded.workspace(shape)
        if reason := difference(both.bind(operands), session.sync, operands.output, workspace):
            return Verdict("failed", f"at {shape} {reason}")
        codes |= both.codes(operands)
    binary = (build / TOOLKIT / f"{kernel.id}.fatbin").read_bytes()
    speed = None
    if size and kernel.problem.operation.matrix_product:
        runs = both.bind(_operands(kernel, Shape.cube(size)))
        speed = relative_speed(timing.Timer(session), runs, size)
    return Verdict("passed", same_code=all(code in binary for code in codes.values()), speed=speed)


Check = Callable[[device.Session, Kernel, Path, int], Verdict]


def check_all(kernels: Sequence[Kernel], build: Path, size: int = 0, check: Check = check) -> dict[str, Verdict]:
    """A verdict per kernel. A kernel whose check raises has failed; the others are still checked.

    Raises:
        UserError: a binary or its record is missing or corrupt.
    """
    try:
        require_compiler()
        session = device.open_gpu()
    except UserError as error:
        return {kernel.id: Verdict("skipped", str(error)) for kernel in kernels}
    for name in cutile.TOOLKIT_VARIABLES:
        os.environ.pop(name, None)
    verdicts = {}
    with lock.exclusive(session) if size else lock.shared(session):
        for kernel in kernels:
            try:
                verdicts[kernel.id] = check(session, kernel, build, size)
            except UserError:
                raise
            except Exception as error:  # whatever the compiler or the driver reports
                verdicts[kernel.id] = Verdict("failed", f"{type(error).__name__}: {error}"[:500])
    return verdicts


def _operands(kernel: Kernel, shape: Shape) -> Operands:
    return Operands.of(kernel, shape, *random(kernel.problem, shape, SEED))
