"""Loads what may be measured: binaries that passed their gate and run on the GPU at hand."""

from __future__ import annotations

from pathlib import Path

from gemmrepro.build.record import read_build
from gemmrepro.errors import UserError
from gemmrepro.gpu.device import Session
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.measure.plan import not_timeable
from gemmrepro.registry import Kernel


class NotTimeable(Exception):
    """A binary is left out of a measurement; the message says why. The others are measured."""


def is_built(kernel: Kernel, toolkit: str, build: Path) -> bool:
    """Whether the build stage made a record of this kernel by this toolkit."""
    return (Path(build) / toolkit / f"{kernel.id}.json").is_file()


def load_timeable(session: Session, kernel: Kernel, toolkit: str, build: Path, gates: Path) -> Loaded:
    """Load a binary that may be measured.

    Raises:
        NotTimeable: it did not pass its gate, or this GPU or its driver cannot run it.
        UserError: its build record or its gate's verdict is missing or corrupt.
    """
    record = read_build(kernel, build, toolkit)
    reason = not_timeable(kernel.id, toolkit, record.build_key, gates)
    if reason is not None:
        raise NotTimeable(reason)
    try:
        return Loaded.built(session, kernel, build, toolkit)
    except UserError as error:
        raise NotTimeable(str(error)) from None
