"""A kernel's gate as the page shows it: static checks over architectures, numerical cases with their bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gemmrepro.gates.allowed import allowed
from gemmrepro.paper.text import BY
from gemmrepro.registry import Kernel

NOT_COMPILED = "not compiled"
"""The static gate of a kernel that this run did not compile with a toolkit."""

_STATIC = {True: "passed", False: "failed", None: NOT_COMPILED}


@dataclass(frozen=True)
class FoundView:
    """The finding of a check, and the architectures that share it."""

    text: str
    archs: str


@dataclass(frozen=True)
class CheckView:
    """One static check over every architecture."""

    check: str
    why: str
    expected: str
    found: tuple[FoundView, ...]
    passed: bool


@dataclass(frozen=True)
class CaseView:
    """One numerical case: its largest error and what is allowed, in units of |A||B| and the output's roundoff.

    `allowed` is None where the gate judges by a bound of another kind.
    """

    name: str
    shape: str
    inputs: str
    alpha: str
    beta: str
    seed: str
    error: float | None
    allowed: float | None
    passed: bool
    message: str


@dataclass(frozen=True)
class ToolkitGateView:
    """A kernel's verdicts in one toolkit.

    `static` is ``passed``, ``failed``, or ``not compiled``; `numeric` ``passed``, ``failed``, ``stale``, ``not run``,
    or ``not measured``.
    """

    name: str
    static: str
    numeric: str
    source: str
    gpu: str | None
    reason: str | None
    worst: CaseView | None
    cases: tuple[CaseView, ...]

    @property
    def failed(self) -> tuple[CaseView, ...]:
        """The cases that failed."""
        return tuple(case for case in self.cases if not case.passed)

    @property
    def compiled(self) -> bool:
        """Whether this run compiled the kernel with the toolkit."""
        return self.static != NOT_COMPILED

    @property
    def judged(self) -> bool:
        """Whether the numerical gate came to a verdict on this binary."""
        return self.numeric in ("passed", "failed")

    @property
    def measured(self) -> bool:
        """Whether the run measures this binary; one that it does not is not judged on the GPU."""
        return self.numeric != "not measured"


@dataclass(frozen=True)
class CaseRowView:
    """A numerical case of every toolkit that ran it: its largest error by toolkit, None where it did not run."""

    case: CaseView
    errors: tuple[float | None, ...]
    passed: bool


@dataclass(frozen=True)
class GateView:
    """A kernel's gate: ``passed`` if nothing failed; `open` names the statuses of numerical gates without a verdict.

    `checks` and `cases` are those of all toolkits.
    """

    status: str = "not run"
    toolkits: tuple[ToolkitGateView, ...] = field(default=())
    open: str = ""
    checks: tuple[CheckView, ...] = field(default=())

    @property
    def cases(self) -> tuple[CaseRowView, ...]:
        """The numerical cases; toolkits that ran the same case share its row."""
        rows: dict[tuple[object, ...], dict[str, CaseView]] = {}
        for toolkit in self.toolkits:
            seen: Counter[tuple[object, ...]] = Counter()
            for case in toolkit.cases:
                key = (case.name, case.shape, case.inputs, case.alpha, case.beta, case.seed, case.allowed)
                rows.setdefault((*key, seen[key]), {})[toolkit.name] = case
                seen[key] += 1
        return tuple(
            CaseRowView(
                case=next(iter(found.values())),
                errors=tuple(found[each.name].error if each.name in found else None for each in self.toolkits),
                passed=all(case.passed for case in found.values()),
            )
            for found in rows.values()
        )

    @property
    def static_passed(self) -> bool:
        """Whether the static gate passed in every toolkit that compiled the kernel."""
        verdicts = {toolkit.static for toolkit in self.toolkits if toolkit.compiled}
        return verdicts == {"passed"}

    @property
    def numeric_passed(self) -> bool:
        """Whether the numerical gate passed in every toolkit that has it, and whose binary is measured."""
        measured = [toolkit.numeric for toolkit in self.toolkits if toolkit.measured]
        return set(measured) == {"passed"}


def gather_checks(checks: Sequence[Mapping[str, Any]]) -> tuple[CheckView, ...]:
    """Static checks, one view per check, with the findings of every architecture, by every ``toolkit`` if they say so.

    The n-th check of a name on one architecture is the same as the n-th on another, though its bound may differ.
    """
    gathered: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for check in checks:
        name, target = str(check.get("check", "")), _target(check)
        gathered.setdefault((name, seen[target, name]), []).append(check)
        seen[target, name] += 1
    return tuple(_one_check(name, same) for (name, _), same in gathered.items())


def _target(check: Mapping[str, Any]) -> str:
    """The architecture of a check, after its toolkit if it names one."""
    return " ".join(str(check[key]) for key in ("toolkit", "arch") if check.get(key))


def _one_check(name: str, checks: Sequence[Mapping[str, Any]]) -> CheckView:
    archs: dict[str, list[str]] = {}
    for check in checks:
        text = str(check.get("found", "")) + ("" if check.get("passed") else " (fails)")
        archs.setdefault(text, []).append(_target(check))
    return CheckView(
        check=name,
        why="; ".join(dict.fromkeys(str(check.get("why", "")) for check in checks)),
        expected=" or ".join(dict.fromkeys(str(check.get("expected", "")) for check in checks)),
        found=tuple(
            FoundView(text, "every target" if len(archs) == 1 else ", ".join(where)) for text, where in archs.items()
        ),
        passed=all(check.get("passed") for check in checks),
    )


def case_view(case: Mapping[str, Any], kernel: Kernel) -> CaseView:
    """A case of a kernel; a gate with another kind of bound writes gamma 0 with an error."""
    gamma = case.get("gamma")
    by_another = gamma == 0 and bool(case.get("err_scaled_max")) and case.get("passed", True)
    shape = case.get("shape", "")
    return CaseView(
        name=str(case.get("case") or ""),
        shape=shape if isinstance(shape, str) else BY.join(map(str, shape)),
        inputs=str(case.get("inputs", "")),
        alpha=str(case.get("alpha", "")),
        beta=str(case.get("beta", "")),
        seed=str(case.get("seed", "")),
        error=case.get("err_scaled_max"),
        allowed=None if by_another else allowed(kernel, gamma),
        passed=bool(case.get("passed")),
        message=str(case.get("message", "")),
    )


def gate_view(gate: Mapping[str, Any] | None, kernel: Kernel) -> GateView:
    """The gate of a kernel; None if it was not run."""
    if gate is None:
        return GateView()
    toolkits = tuple(
        _toolkit_view(name, verdict, kernel) for name, verdict in sorted((gate.get("toolkits") or {}).items())
    )
    # A gate passes as long as nothing failed, so what was not run must be named as well.
    still_open = sorted({toolkit.numeric for toolkit in toolkits if toolkit.measured and not toolkit.judged})
    checks = gather_checks(
        [
            {**check, "toolkit": name if len(toolkits) > 1 else None}
            for name, verdict in sorted((gate.get("toolkits") or {}).items())
            for check in (verdict.get("static") or {}).get("checks") or []
        ]
    )
    return GateView("passed" if gate.get("passed") else "failed", toolkits, " or ".join(still_open), checks)


def _toolkit_view(name: str, verdict: Mapping[str, Any], kernel: Kernel) -> ToolkitGateView:
    static = verdict.get("static") or {}
    numeric = verdict.get("numeric") or {}
    worst = numeric.get("worst")
    return ToolkitGateView(
        name=name,
        static=_STATIC[static.get("passed")],
        numeric=numeric.get("status") or "not run",
        source=numeric.get("source") or "none",
        gpu=numeric.get("gpu"),
        reason=numeric.get("reason"),
        worst=case_view(worst, kernel) if isinstance(worst, Mapping) else None,
        cases=tuple(case_view(case, kernel) for case in numeric.get("cases") or []),
    )


def gate_tally(families: Iterable[Any]) -> dict[str, int]:
    """How many kernels some `FamilyView`s have, and how many of them pass either gate, or fail one."""
    gates = [kernel.gate for family in families for kernel in family.kernels]
    return {
        "kernels": len(gates),
        "static": sum(gate.static_passed for gate in gates),
        "numeric": sum(gate.numeric_passed for gate in gates),
        "failed": sum(gate.status == "failed" for gate in gates),
    }
