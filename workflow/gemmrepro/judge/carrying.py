"""Carries a published value over to the GPU at hand by rates of the two chips: `transfer.kind` ``share`` and ``model``.

``share`` expects the article's share of the rate `of`: a throughput grows with the rate, a time shrinks with it.
``model`` expects a ratio to change as the quotient of two rates does. The article's chip has the rates of its data
sheet, or of the published rows in `there`; the GPU at hand those of the ceilings, which the family ``ceilings``
measures, else of its own data sheet.
"""

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from gemmrepro import registry
from gemmrepro.core.text import convert, format_number
from gemmrepro.errors import UserError
from gemmrepro.judge.claim import Claim, Problem
from gemmrepro.judge.evidence import Evidence, NotMeasured
from gemmrepro.measure.rows import Measurements, is_current, row_key
from gemmrepro.operations import operation
from gemmrepro.recordings.limits import bounds
from gemmrepro.registry import chips
from gemmrepro.registry.articles import ARTICLE, chip_of
from gemmrepro.registry.chips import RATES, Rate, same_gpu

CEILING_FAMILY = "ceilings"
"""The family whose micro-kernels measure ceilings."""

_UNITS = {"tflops": "TFLOP/s", "gbps": "GB/s"}


@dataclass(frozen=True)
class Ceiling:
    """A measured ceiling: the best current row of one micro-kernel, or of its library baseline.
    `key` names the row; `clock_mhz` and `power_w` are its conditions."""

    kernel: str
    label: str
    value: float
    unit: str
    key: str
    clock_mhz: float | None
    power_w: float | None

    @property
    def conditions(self) -> str:
        """``1,980 MHz, 460 W``; what is unknown is left out."""
        parts = [
            f"{self.clock_mhz:,.0f} MHz" if self.clock_mhz else "",
            f"{self.power_w:,.0f} W" if self.power_w else "",
        ]
        return ", ".join(filter(None, parts))


def _number(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)


def of_operation(measured: Measurements, op: str, dtype: str | None = None) -> list[Ceiling]:
    """The measured ceilings of an operation, one per micro-kernel, the highest first.
    `op`: ``ceiling_flops`` (TFLOP/s, of kernels of `dtype`) or ``ceiling_bytes`` (GB/s, of any type)."""
    column = operation(op).ceiling
    unit = _UNITS[column]
    ceilings = []
    for kernel in registry.kernels(CEILING_FAMILY):
        if kernel.compute.op != op or (dtype and kernel.compute.dtype_in != dtype):
            continue
        rows = measured.summary
        rows = rows[rows["kernel"].isin([kernel.id, kernel.timing.baseline]) & is_current(rows) & rows[column].notna()]
        if rows.empty:
            continue
        row = rows.loc[rows[column].idxmax()]
        conditions = _number(row["clock_mhz"]), _number(row["power_w"])
        ceilings.append(Ceiling(kernel.id, kernel.rung, float(row[column]), unit, row_key(row), *conditions))
    return sorted(ceilings, key=lambda ceiling: -ceiling.value)


def measured_ceiling(measured: Measurements, kernel_id: str) -> Ceiling | None:
    """The ceiling that one micro-kernel measures, or None where it has no current row.
    Raises UserError if there is no such micro-kernel."""
    kernel = registry.kernel(kernel_id)
    if not operation(kernel.compute.op).ceiling:
        raise UserError(f"{kernel_id} measures no ceiling.")
    found = of_operation(measured, kernel.compute.op, kernel.compute.dtype_in)
    return next((ceiling for ceiling in found if ceiling.kernel == kernel_id), None)


_ALLOWED = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Name, ast.Load, ast.Constant)
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.UAdd, ast.USub)
_LONGEST = 400


def names_in(expression: str) -> set[str]:
    """The names that an expression uses. Raises ValueError if it is not arithmetic."""
    return {node.id for node in ast.walk(_parse(expression)) if isinstance(node, ast.Name)}


def evaluate(expression: str, values: Mapping[str, float]) -> float:
    """The value of an expression in 64-bit floating point, so that no power of integers can grow without limit.
    Raises ValueError for what is no arithmetic, an unknown name, a division by zero, or a result that is not finite."""
    tree = _parse(expression)
    if strange := sorted(names_in(expression) - set(values)):
        raise ValueError(f"there is no '{strange[0]}' among {', '.join(sorted(values)) or 'no names at all'}")
    try:
        known = {name: float(value) for name, value in values.items()}
        result = eval(compile(tree, "", "eval"), {"__builtins__": {}}, known)
    except ZeroDivisionError:
        raise ValueError(f"'{expression}' divides by zero") from None
    except OverflowError:
        raise ValueError(f"'{expression}' is too large") from None
    if isinstance(result, complex) or not math.isfinite(result):
        raise ValueError(f"'{expression}' is no finite number")
    return float(result)


def _parse(expression: str) -> ast.Expression:
    """The expression's tree, of which every node is allowed and every number a float. Raises ValueError."""
    if len(expression) > _LONGEST:
        raise ValueError(f"an expression has at most {_LONGEST} characters")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError(f"'{expression}' is not arithmetic") from None
    for node in ast.walk(tree):
        number = not isinstance(node, ast.Constant) or type(node.value) in (int, float)
        if not isinstance(node, (*_ALLOWED, *_OPERATORS)) or not number:
            named = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
            raise ValueError(f"'{expression}' holds '{named}'; only numbers, names, + - * / ** and parentheses may")
        if isinstance(node, ast.Constant):
            node.value = float(node.value)  # type: ignore[arg-type]
    return tree


SHARE, MODEL = "share", "model"
KINDS = (SHARE, MODEL)

CEILINGS: Mapping[str, tuple[str, ...]] = {
    "fp32": ("ceilings.ffma",),
    "bf16": ("ceilings.wgmma", "ceilings.mma_f16"),
    "fp16_acc32": ("ceilings.wgmma", "ceilings.mma_f16"),
    "dram": ("ceilings.dram_copy",),
}
"""The micro-kernels that measure a rate, of which the fastest counts unless a claim names one."""

_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_RATES = {"TFLOP/s": 1e12, "GFLOP/s": 1e9, "TB/s": 1e12, "GB/s": 1e9, "MHz": 1e6, "Gcycle/s": 1e9}
_AMOUNTS = {"TFLOP/s": "FLOP", "GB/s": "B", "MHz": "cycles", "Gcycle/s": "SM cycles"}
_SIZES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1.0, ""))


def unit_factor(unit: str, to: str) -> float:
    """The factor from a published unit to a measured one; 1 where they are no units of the same quantity."""
    return convert(1.0, unit, to) or 1.0


@dataclass(frozen=True)
class Carried:
    """The rates by which a claim's published values carry over: `there` of the article's chip, `here` of that at hand.
    Of a share there is one rate each, of a model the numerator and the denominator."""

    kind: str
    there: tuple[Rate, ...]
    here: tuple[Rate, ...]

    def factor(self, unit: str) -> float:
        """Factor of a published value in `unit`: the value expected here is the product."""
        grown = _quotient(self.here) / _quotient(self.there)
        return 1 / grown if self.kind == SHARE and unit in _SECONDS else grown

    def sentence(self, claim: Claim, value: float) -> str:
        """Published and measured share, or the model's prediction, as a sentence without its full stop."""
        if self.kind == MODEL:
            words = " over ".join(rate.name for rate in self.there)
            return f"{words} was {_quotient_in_words(self.there)} there and is {_quotient_in_words(self.here)} here"
        unit, published = str(claim.published[0]["unit"]), float(claim.value or 0.0)
        there, here = _share(published, unit, self.there[0], claim), _share(value, unit, self.here[0], claim)
        return f"there {there}, here {here}"


def of(claim: Claim, evidence: Evidence, machine: str | None) -> Carried | None:
    """The rates by which the claim's published values carry over to `machine`; None where its transfer needs none.
    Raises NotMeasured if the GPU at hand has no such rate."""
    if claim.transfer["kind"] not in KINDS:
        return None
    names = rate_names(claim.transfer)
    there = tuple(_there(claim, part, name) for part, name in names.items())
    here = tuple(_at_hand(name, claim.transfer, evidence, machine) for name in names.values())
    return Carried(str(claim.transfer["kind"]), there, here)


def rate_names(transfer: Mapping[str, Any]) -> dict[str, str]:
    """The names of the rates of a ``share`` (`of`) or of a ``model`` (`numerator`, `denominator`), by their part."""
    if transfer["kind"] == SHARE:
        return {"of": transfer["of"]}
    return {part: transfer["by"][part] for part in ("numerator", "denominator")}


def problems(claim: Claim) -> list[Problem]:
    """Faults of a claim's ``share`` or ``model`` that no schema can tell."""
    transfer = claim.transfer
    if transfer["kind"] not in KINDS:
        return []
    if not claim.published:
        return [("published", "only a published value carries over by rates")]
    found, names, units = [], rate_names(transfer), {str(row["unit"]) for row in claim.published}
    if transfer["kind"] == SHARE and not units <= {*_SECONDS, *_RATES}:
        found.append(("transfer", f"a share is of a rate or a time, not of a value in '{', '.join(sorted(units))}'"))
    elif transfer["kind"] == SHARE and claim.of_two:
        found.append(("transfer", "a quotient of two rows has no share of one rate; use the kind model"))
    elif transfer["kind"] == SHARE and claim.same_side:
        found.append(("same_side_of", "has no meaning for a share"))
    for part, name in names.items():
        try:
            _there(claim, part, name)
        except UserError as error:
            found.append(("transfer", str(error)))
    ceiling = transfer.get("ceiling")
    if ceiling is not None and ceiling not in {kernel.id for kernel in registry.kernels(CEILING_FAMILY)}:
        found.append(("transfer.ceiling", f"there is no kernel '{ceiling}' in family {CEILING_FAMILY}"))
    if "work" in transfer:
        try:
            _work(transfer["work"], claim.published[0])
        except ValueError as error:
            found.append(("transfer.work", str(error)))
    return found


def _there(claim: Claim, part: str, name: str) -> Rate:
    """A rate of the article's chip: that of a published row where the transfer names one, else of its data sheet.
    Raises UserError, with what to name instead, if there is no such rate, or the chip is not known."""
    if name not in RATES:
        raise UserError(f"there is no rate '{name}'; there are {', '.join(RATES)}")
    row, named = claim.transfer.get("there", {}).get(part), claim.transfer.get("chip")
    if row is not None:
        value = convert(float(row["value"]), str(row["unit"]), RATES[name])
        if value is None:
            raise UserError(f"a value in '{row['unit']}' is no rate in {RATES[name]}")
        return Rate(name, value, RATES[name], f"as the article measured, {row['system']}")
    chip = chips.chips().get(named) if named else chip_of(claim.article, claim.hardware)
    if chip is None:
        raise UserError(
            f"{chips.FILE} has no chip '{named}'"
            if named
            else f"{ARTICLE} names no chip for the hardware '{claim.hardware}'"
        )
    rate = chip.rate(name)
    if rate is None:
        raise UserError(f"{chips.FILE} has no rate '{name}' of {chip.name}; name another chip with the key 'chip'")
    return rate


def _at_hand(name: str, transfer: Mapping[str, Any], evidence: Evidence, machine: str | None) -> Rate:
    """A rate of the GPU at hand: measured where there is a ceiling, else from the driver's facts or its data sheet."""
    if transfer.get("here") != "data sheet" and (measured := _measured(name, transfer, evidence, machine)):
        return measured
    gpu = evidence.measured.run.get("gpu") or {}
    if name in ("clock", "sms", "cycles", "shared") and gpu.get("clock_max_mhz") and gpu.get("sm_count"):
        facts = {"clock": gpu["clock_max_mhz"], "sms": gpu["sm_count"]}
        if name in facts:
            return Rate(name, float(facts[name]), RATES[name], "as the driver says")
        return chips.derived(name, facts["sms"], facts["clock"], "as the driver says")
    chip = chips.at_hand(machine)
    rate = chip.rate(name) if chip else None
    if rate is None:
        raise NotMeasured(
            f"{chips.FILE} has no rate '{name}' of {machine or 'this machine'}, and no ceiling measured it"
        )
    return rate


def widest(name: str, gpu: Mapping[str, Any]) -> tuple[str, ...]:
    """The micro-kernels that measure a rate of a GPU (run.json's facts), of its widest instruction alone."""
    return tuple(each for each in CEILINGS.get(name, ()) if bounds(registry.kernel(each), gpu))


def _measured(name: str, transfer: Mapping[str, Any], evidence: Evidence, machine: str | None) -> Rate | None:
    """The highest measured ceiling of a rate; that of the claim's micro-kernel if it names one."""
    ceilings = evidence.ceilings
    if ceilings is None or not same_gpu(machine or "", ceilings.gpu):
        return None
    gpu = evidence.measured.run.get("gpu") or {}
    ids = (transfer["ceiling"],) if "ceiling" in transfer else widest(name, gpu)
    found = [ceiling for each in ids if (ceiling := measured_ceiling(ceilings, each))]
    best = max(found, key=lambda ceiling: ceiling.value, default=None)
    if best is None:
        return None
    return Rate(name, best.value, best.unit, f"measured by {best.kernel}")


def _quotient(rates: tuple[Rate, ...]) -> float:
    return rates[0].value if len(rates) == 1 else rates[0].value / rates[1].value


def _quotient_in_words(rates: tuple[Rate, ...]) -> str:
    """The quotient of two rates, the rates and where they come from."""
    values = " over ".join(f"{format_number(rate.value, 4)}" for rate in rates) + f" {rates[-1].unit}"
    sources = dict.fromkeys(rate.source for rate in rates)
    return f"{format_number(_quotient(rates))} ({values}, {' and '.join(sources)})"


def _share(value: float, unit: str, rate: Rate, claim: Claim) -> str:
    """A value's share of a rate; of a time without stated work, what the rate amounts to in that time."""
    of_rate = f"{format_number(rate.value, 4)} {rate.unit} of {rate.name} ({rate.source})"
    if unit in _SECONDS:
        amount = value * _SECONDS[unit] * rate.value * _RATES.get(rate.unit, 1.0)
        if "work" in claim.transfer:
            return f"{format_number(_work(claim.transfer['work'], claim.published[0]) / amount)} of the {of_rate}"
        return f"the time of {_in_prefix(amount)}{_AMOUNTS.get(rate.unit, rate.unit)} at {of_rate}"
    if _AMOUNTS.get(rate.unit) == _AMOUNTS.get({"GFLOP/s": "TFLOP/s", "TB/s": "GB/s"}.get(unit, unit)):
        share = value * _RATES[unit] / (rate.value * _RATES[rate.unit])
        return f"{format_number(share)} of the {of_rate}"
    return f"{format_number(value / rate.value)} {unit} for each {rate.unit} of {of_rate}"


def _work(expression: str, row: Mapping[str, Any]) -> float:
    """Operations or bytes behind a published time. Raises ValueError."""
    return evaluate(str(expression), {name: float(row[name]) for name in ("n", "d") if row.get(name)})


def _in_prefix(amount: float) -> str:
    size, prefix = next((size, prefix) for size, prefix in _SIZES if amount >= size or size == 1.0)
    return f"{format_number(amount / size)} {prefix}"
