"""Input and result of a function of kernels/<family>/calculations.py, and the reader of that module.

Such a function evaluates a printed formula, counts in the machine code of the build records, for which no GPU is
needed, or makes something of the hardware counters of a launch:

    def tensor_floor(given: Inputs) -> Calculated:
        (code,) = given.codes
        ...
        return Calculated(microseconds, working="128 HMMA of 32 cycles for each of 4 x 128 tensor cores")
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from gemmrepro.build.record import MachineCode
from gemmrepro.core import paths
from gemmrepro.core.files import load_module
from gemmrepro.errors import UserError
from gemmrepro.judge.evidence import Evidence, NotMeasured
from gemmrepro.registry import Kernel
from gemmrepro.registry.chips import Chip

FILE = "calculations.py"


@dataclass(frozen=True)
class Calculated:
    """A calculated value, in the unit of the published figure, or of `compute.unit` where there is none.
    `working` says in a few words how it came about, with its numbers; the report shows it."""

    value: float
    working: str = ""


@dataclass(frozen=True)
class Inputs:
    """The data that a calculation may read.

    Attributes:
        kernels: the kernels that the claim names, in its order; may be empty.
        codes: their machine code for `arch`, of the main entry point, in the same order.
        arch, toolkit: ``sm_89``, ``cuda13``; empty without kernels.
        n, d: the size and slices that the claim names, or those of its published row; None without.
        chip: the GPU of the article by its data sheet; None where chips.yaml lacks it.
        evidence: the counters, which may have been read for one toolkit only; `sources` collects what was read.
    """

    kernels: tuple[Kernel, ...] = ()
    codes: tuple[MachineCode, ...] = ()
    arch: str = ""
    toolkit: str = ""
    n: int | None = None
    d: int | None = None
    chip: Chip | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    evidence: Evidence | None = None
    sources: list[str] = field(default_factory=list)

    def counter(self, name: str, unit: str = "", index: int = 0) -> float:
        """A hardware counter of a launch of the kernel of this index at size `n`. Raises NotMeasured."""
        if self.evidence is None or self.n is None:
            raise NotMeasured(f"there are no counters to read {name} from")
        value = self.evidence.counter(self.kernels[index].id, self.n, name, self.toolkit, unit)
        self.sources.extend(value.sources)
        return value.value

    def rate(self, name: str) -> float:
        """A rate of the article's GPU, in the unit of chips.RATES. Raises UserError if no document prints it."""
        rate = self.chip.rate(name) if self.chip else None
        if rate is None:
            chip = self.chip.name if self.chip else "the article's GPU"
            raise UserError(f"chips.yaml has no rate '{name}' of {chip}.")
        return rate.value

    def option(self, name: str, default: float | None = None) -> float:
        """A number of `compute.options`. Raises UserError if it is missing and has no default."""
        value = self.options.get(name, default)
        if not isinstance(value, int | float):
            raise UserError(f"compute.options has no number '{name}'.")
        return float(value)


Calculation = Callable[[Inputs], Calculated]


def calculation(family: str, name: str) -> Calculation:
    """A public function of a family's calculations.py.
    Raises UserError if there is no such file, it cannot be imported, or it has no such function of its own."""
    module = _module(family, paths.KERNELS_DIR / family / FILE)
    function = vars(module).get(name)
    if name.startswith("_") or not inspect.isfunction(function) or function.__module__ != module.__name__:
        public = [
            known
            for known, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__ and not known.startswith("_")
        ]
        raise UserError(f"kernels/{family}/{FILE} has no function '{name}'; it has {', '.join(public) or 'none'}.")
    return function


@cache
def _module(family: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(f"kernels/{family}/{FILE} is missing.")
    try:
        return load_module(f"gemmrepro_calculations_{family}", path)
    except Exception as error:
        raise UserError(f"kernels/{family}/{FILE} cannot be imported: {type(error).__name__}: {error}.") from None
