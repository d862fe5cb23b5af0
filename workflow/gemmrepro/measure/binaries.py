"""Loads what may be measured: binaries that passed their gate and run on the GPU at hand."""

from __future__ import annotations

from pathlib import Path

from gemmrepro.build.record import read_build
from gemmrepro.errors import UserError
from gemmrepro.gpu.device import Session
from gemmrepro.gpu.loaded import Binary, Loaded
from gemmrepro.measure.plan import not_timeable
from gemmrepro.registry import Kernel
from gemmrepro.registry.requirements import requirement


class NotTimeable(Exception):
    """A binary is left out of a measurement; the message says why. The others are measured."""


def is_built(kernel: Kernel, toolkit: str, build: Path) -> bool:
    """Whether the build stage made a record of this kernel by this toolkit."""
    return (Path(build) / toolkit / f"{kernel.id}.json").is_file()


def load_timeable(session: Session, kernel: Kernel, toolkit: str, build: Path, gates: Path) -> Loaded:
    """Load a binary that may be measured.

    Raises:
        NotTimeable: this GPU or its driver cannot run it, or it did not pass its gate.
        UserError: its build record or its gate's verdict is missing or corrupt.
    """
    # A gate says nothing of a binary that cannot run: that is asked first.
    if needs := requirement(kernel, session.gpu.compute_capability):
        raise NotTimeable(f"needs {needs}")
    if kernel.platform.targets and not is_built(kernel, toolkit, build):
        raise NotTimeable(f"it was not built: build.{toolkit} in the configuration lists none of its targets")
    read_build(kernel, build, toolkit)
    try:
        binary = Binary.built(session.gpu, kernel, build, toolkit)
    except UserError as error:
        raise NotTimeable(str(error)) from None
    if reason := not_timeable(kernel.id, toolkit, binary.build_key, gates):
        raise NotTimeable(reason)
    try:
        return Loaded.built(session, kernel, build, toolkit)
    except UserError as error:
        raise NotTimeable(str(error)) from None
