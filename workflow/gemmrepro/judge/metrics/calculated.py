"""Counts of instructions in machine code, and values that functions of kernels/<family>/calculations.py give.

Such a function evaluates a printed formula, counts in the machine code of the build records, for which no GPU is
needed, or makes something of the hardware counters of a launch:

    def tensor_floor(given: Inputs) -> Calculated:
        (code,) = given.codes
        ...
        return Calculated(microseconds, working="128 HMMA of 32 cycles for each of 4 x 128 tensor cores")
"""

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from gemmrepro import registry
from gemmrepro.build.record import MachineCode
from gemmrepro.core import paths
from gemmrepro.core.files import load_module
from gemmrepro.core.text import as_published, format_number
from gemmrepro.errors import UserError
from gemmrepro.judge.claim import Claim, Problem
from gemmrepro.judge.evidence import Evidence, NotMeasured, Value
from gemmrepro.judge.metrics.base import FigureMetric, Reading, Readings, exhibit, published, unknown_kernels
from gemmrepro.judge.rules import Verdict, difference, judge_bounds, judge_counts
from gemmrepro.judge.wording import opcodes, sentence
from gemmrepro.registry import Kernel
from gemmrepro.registry.articles import chip_of
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


@dataclass(frozen=True)
class CalculatedFigure(FigureMetric):
    """The value of a function of calculations.py, against the published figure, or within `least` and `most`.
    Of kernels without `arch` it reads hardware counters."""

    way = "count"
    any_toolkit = True

    def check(self, claim: Claim) -> list[Problem]:
        try:
            calculation(claim.family, claim.compute["function"])
        except UserError as error:
            return [*unknown_kernels(claim), ("compute.function", str(error).rstrip("."))]
        return unknown_kernels(claim)

    def machine(self, claim: Claim, evidence: Evidence) -> str | None:
        return evidence.measured.gpu if counted(claim) else None

    def read(self, claim: Claim, evidence: Evidence) -> Readings:
        if "kernels" in claim.compute:
            return super().read(claim, evidence)
        return Readings(self.measure(claim, evidence, ""))

    def measure(self, claim: Claim, evidence: Evidence, toolkit: str) -> Reading:
        compute = claim.compute
        kernels = tuple(registry.kernel(name) for name in compute.get("kernels", ()))
        arch = compute.get("arch", "")
        first = claim.published[0] if claim.published else {}
        given = Inputs(
            kernels=kernels,
            codes=tuple(_code(evidence, kernel.id, toolkit, arch) for kernel in kernels if arch),
            arch=arch,
            toolkit=toolkit,
            n=compute.get("n", first.get("n")),
            d=compute.get("d", first.get("d")),
            chip=chip_of(claim.article, claim.hardware),
            options=compute.get("options", {}),
            evidence=evidence,
        )
        result = _call(claim, given)
        unit = compute.get("unit", "") or claim.unit
        at = [arch or f"{given.n}", toolkit] if kernels else []
        names = [kernel.id for kernel in kernels]
        where = ", ".join([" over ".join(names), *at] if counted(claim) else [*names, *at])
        label = ": ".join(filter(None, (where, result.working)))
        builds = [f"results/build/{toolkit}/{kernel.id}.json#archs.{arch}" for kernel in kernels if arch]
        sources = (f"kernels/{claim.family}/{FILE}: {compute['function']}", *builds, *given.sources)
        number = float(result.value)
        return Reading(toolkit or None, (Value(label, number, number, number, unit, sources),))

    def judge(self, claim: Claim, readings: Readings) -> Verdict:
        if claim.tolerance is not None:
            return super().judge(claim, readings)
        return judge_bounds(readings.judged.value.value, claim.compute)

    def explain(self, claim: Claim, readings: Readings, verdict: Verdict, evidence: Evidence) -> str:
        if counted(claim):
            return super().explain(claim, readings, verdict, evidence)
        value = readings.judged.value
        shown = value.text()
        if value.value.is_integer():
            shown = shown.replace(format_number(value.value), as_published(value.value), 1)
        text = f"Calculated {shown}" + (f" ({value.label})" if value.label else "")
        if claim.tolerance is not None:
            text += f"; published {claim.figure_with_unit}: {difference(value.value, published(claim))}"
        return f"{text}, {verdict.reason}. No GPU was used."

    def exhibits(self, claim: Claim, readings: Readings, evidence: Evidence) -> list[dict[str, Any]]:
        if counted(claim):
            return super().exhibits(claim, readings, evidence)
        return [exhibit(readings.judged.value, static=True)]


def counted(claim: Claim) -> bool:
    """Whether a calculated claim rests on hardware counters."""
    return claim.metric == "calculated" and "kernels" in claim.compute and "arch" not in claim.compute


def _code(evidence: Evidence, kernel: str, toolkit: str, arch: str) -> MachineCode:
    record = evidence.build(kernel, toolkit)
    if record is None or arch not in record.archs:
        raise NotMeasured(f"there is no build record of {kernel} for {arch} by {toolkit}")
    return record.archs[arch]


def _call(claim: Claim, given: Inputs) -> Calculated:
    """The function's result.
    Raises NotMeasured if the machine code lacks what the function counts, as another compiler's may, UserError, with
    the claim, if the function fails on its own numbers or returns something else."""
    name = f"claim '{claim.id}', key 'compute.function': {claim.compute['function']}"
    try:
        result = calculation(claim.family, claim.compute["function"])(given)
    except NotMeasured:
        raise
    except Exception as error:
        if given.codes and isinstance(error, (ArithmeticError, LookupError, StopIteration, UserError)):
            raise NotMeasured(f"{claim.compute['function']} does not fit this machine code: {error}") from error
        raise UserError(f"{name} failed: {type(error).__name__}: {error}") from error
    if not isinstance(result, Calculated) or not math.isfinite(result.value):
        raise UserError(f"{name} returned {result!r} and no finite Calculated.")
    return result


@dataclass(frozen=True)
class Opcodes(FigureMetric):
    """Instructions whose whole opcode matches `pattern`, counted for each target. Builds by any toolkit count."""

    way = "count"
    any_toolkit = True

    def check(self, claim: Claim) -> list[Problem]:
        # Any family's: a build record needs no measurement.
        try:
            re.compile(claim.compute["pattern"])
        except re.error as error:
            return [*unknown_kernels(claim), ("compute.pattern", str(error))]
        return unknown_kernels(claim)

    def measure(self, claim: Claim, evidence: Evidence, toolkit: str) -> Reading:
        kernel, pattern = claim.compute["kernel"], claim.compute["pattern"]
        evidence.check_gate(kernel)
        record = evidence.build(kernel, toolkit)
        if record is None or not record.archs:
            raise NotMeasured(f"there is no build record of {kernel} by {toolkit}")
        values = []
        for arch, code in sorted(record.archs.items()):
            count = float(sum(number for opcode, number in code.instructions.items() if re.fullmatch(pattern, opcode)))
            source = (f"results/build/{toolkit}/{kernel}.json#archs.{arch}.instructions",)
            values.append(Value(f"{kernel}, {toolkit}, {arch}", count, count, count, self.unit, source))
        return Reading(toolkit, tuple(values))

    def judge(self, claim: Claim, readings: Readings) -> Verdict:
        counts = [value for reading in (readings.judged, *readings.others) for value in reading.values]
        compute = claim.compute
        return judge_counts(counts, opcodes(compute["pattern"]), compute.get("least", 1), compute.get("most"))

    def explain(self, claim: Claim, readings: Readings, verdict: Verdict, evidence: Evidence) -> str:
        return f"{sentence(verdict.reason)}."

    def exhibits(self, claim: Claim, readings: Readings, evidence: Evidence) -> list[dict[str, Any]]:
        """One count stands for all targets: that of the GPU at hand, or else the smallest."""
        values = readings.judged.values
        at_hand = [value for value in values if value.label.endswith(str(evidence.measured.arch))]
        return [exhibit(at_hand[0] if at_hand else min(values, key=lambda value: value.value))]
