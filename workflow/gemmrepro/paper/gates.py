"""A kernel's gate as its page shows it: static checks, numerical cases with their bounds, compute-sanitizer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from gemmrepro.gates.operations import allowed
from gemmrepro.measure.recording import CLEAN, SANITIZERS, TOOLS, check_manifest, read_sanitizers
from gemmrepro.paper.text import BY
from gemmrepro.registry import Kernel

NOT_COMPILED = "not compiled"
"""The static gate of a kernel that this run did not compile with a toolkit."""

NOT_RUN = "not run on today's binary"

_STATIC = {True: "passed", False: "failed", None: NOT_COMPILED}


class CheckView(NamedTuple):
    """One static check over every architecture; `found` pairs each finding with the architectures that share it."""

    check: str
    why: str
    expected: str
    found: Sequence[tuple[str, str]]
    passed: bool


@dataclass(frozen=True)
class ToolkitGateView:
    """A kernel's verdicts in one toolkit.

    `static` is ``passed``, ``failed``, or ``not compiled``; `numeric` ``passed``, ``failed``, ``stale``, ``not run``,
    or ``not measured``. `cases` are numerical cases as `case_view` shows them, `worst` the one with the largest error.
    """

    name: str
    static: str
    numeric: str
    source: str
    gpu: str | None
    reason: str | None
    worst: Mapping[str, Any] | None
    cases: Sequence[Mapping[str, Any]]

    @property
    def failed(self) -> list[Mapping[str, Any]]:
        """The cases that failed."""
        return [case for case in self.cases if not case["passed"]]

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
class GateView:
    """A kernel's gate: ``passed`` if nothing failed; `checks` are those of all toolkits."""

    status: str = "not run"
    toolkits: Sequence[ToolkitGateView] = ()
    checks: Sequence[CheckView] = field(default=())

    @property
    def open(self) -> str:
        """The statuses of numerical gates without a verdict: a gate passes as long as nothing failed."""
        return " or ".join(sorted({each.numeric for each in self.toolkits if each.measured and not each.judged}))

    @property
    def cases(self) -> Iterator[tuple[Mapping[str, Any], Sequence[float | None], bool]]:
        """The numerical cases, each with its error by toolkit, None where it did not run, and whether it passed.

        Toolkits that ran the same case share its row.
        """
        rows: dict[tuple[object, ...], dict[str, Mapping[str, Any]]] = {}
        for toolkit in self.toolkits:
            seen: Counter[tuple[object, ...]] = Counter()
            for case in toolkit.cases:
                key = tuple(case.get(name) for name in ("shape", "inputs", "alpha", "beta", "seed", "allowed"))
                rows.setdefault((*key, seen[key]), {})[toolkit.name] = case
                seen[key] += 1
        for by_toolkit in rows.values():
            errors = [by_toolkit.get(each.name, {}).get("err_scaled_max") for each in self.toolkits]
            yield next(iter(by_toolkit.values())), errors, all(case["passed"] for case in by_toolkit.values())

    @property
    def static_passed(self) -> bool:
        """Whether the static gate passed in every toolkit that compiled the kernel."""
        return {toolkit.static for toolkit in self.toolkits if toolkit.compiled} == {"passed"}

    @property
    def numeric_passed(self) -> bool:
        """Whether the numerical gate passed in every toolkit that has it, and whose binary is measured."""
        return {toolkit.numeric for toolkit in self.toolkits if toolkit.measured} == {"passed"}


def gate_view(gate: Mapping[str, Any] | None, kernel: Kernel) -> GateView:
    """The gate of a kernel; None if it was not run."""
    if gate is None:
        return GateView()
    verdicts = sorted((gate.get("toolkits") or {}).items())
    checks = [
        {**check, "toolkit": name if len(verdicts) > 1 else None}
        for name, verdict in verdicts
        for check in (verdict.get("static") or {}).get("checks") or []
    ]
    toolkits = [_toolkit_view(name, verdict, kernel) for name, verdict in verdicts]
    return GateView("passed" if gate.get("passed") else "failed", toolkits, gather_checks(checks))


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
        cases=[case_view(case, kernel) for case in numeric.get("cases") or []],
    )


def case_view(case: Mapping[str, Any], kernel: Kernel) -> Mapping[str, Any]:
    """A numerical case with its error and what is `allowed`, in units of |A||B| and the output's roundoff.

    `allowed` is None where the gate judges by a bound of another kind: it writes gamma 0 with an error.
    """
    gamma, shape = case.get("gamma"), case.get("shape", "")
    by_another = gamma == 0 and case.get("err_scaled_max") and case.get("passed", True)
    return {
        **case,
        "shape": shape if isinstance(shape, str) else BY.join(map(str, shape)),
        "allowed": None if by_another else allowed(kernel, gamma),
        "passed": bool(case.get("passed")),
    }


def gather_checks(checks: Sequence[Mapping[str, Any]]) -> list[CheckView]:
    """Static checks, one view per check, with the findings of every architecture, by every ``toolkit`` if they say so.

    The n-th check of a name on one architecture is the same as the n-th on another, though its bound may differ.
    """
    gathered: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for check in checks:
        name, target = check["check"], _target(check)
        gathered.setdefault((name, seen[target, name]), []).append(check)
        seen[target, name] += 1
    return [_gathered(name, same) for (name, _), same in gathered.items()]


def _target(check: Mapping[str, Any]) -> str:
    """The architecture of a check, after its toolkit if it names one."""
    return " ".join(str(check[key]) for key in ("toolkit", "arch") if check.get(key))


def _gathered(name: str, checks: Sequence[Mapping[str, Any]]) -> CheckView:
    """One check of every target."""
    targets: dict[str, list[str]] = {}
    for check in checks:
        text = f"{check['found']}{'' if check['passed'] else ' (fails)'}"
        targets.setdefault(text, []).append(_target(check))
    return CheckView(
        check=name,
        why="; ".join(dict.fromkeys(str(check["why"]) for check in checks)),
        expected=" or ".join(dict.fromkeys(str(check["expected"]) for check in checks)),
        found=[(text, "every target" if len(targets) == 1 else ", ".join(where)) for text, where in targets.items()],
        passed=all(check["passed"] for check in checks),
    )


class SanitizerView(NamedTuple):
    """What the tools said of the binaries of some toolkits: ``memcheck, racecheck: clean``, or NOT_RUN.

    `found` is everything that they printed where they were not clean; `source` the GPU and the day.
    """

    toolkits: str
    text: str
    found: str
    source: str


def load_sanitizers(recorded: Path | None, families: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The outcomes in a GPU's recordings, by kernel; none without recordings, or for families that have none.

    Raises:
        UserError: a file of them is corrupt.
    """
    outcomes: dict[str, Mapping[str, Any]] = {}
    for family in families if recorded else ():
        folder = Path(recorded or "") / family
        check_manifest(folder, SANITIZERS)
        outcomes |= read_sanitizers(folder / SANITIZERS)
    return outcomes


def sanitizer_views(outcome: Mapping[str, Any] | None, build_keys: Mapping[str, str]) -> tuple[SanitizerView, ...]:
    """What was said of today's binaries, by toolkit; toolkits of which the same was said are together.

    Args:
        outcome: the kernel's recorded outcome, if there is one.
        build_keys: today's build keys by toolkit.
    """
    by_toolkit = outcome["toolkits"] if outcome else {}
    together: dict[tuple[str, str, str], list[str]] = {}
    for toolkit, key in sorted(build_keys.items()):
        said = by_toolkit.get(toolkit)
        shown = NOT_RUN, "", ""
        if outcome and said and said["build_key"] == key:
            shown = *_outcomes(said["tools"]), f"{outcome['gpu']}, {said['date']}"
        together.setdefault(shown, []).append(toolkit)
    return tuple(SanitizerView(", ".join(names), *shown) for shown, names in together.items())


def _outcomes(said: Mapping[str, Any]) -> tuple[str, str]:
    """The outcome of each tool in a line, and everything that those printed which were not clean."""
    clean = [tool for tool in TOOLS if said.get(tool) == CLEAN]
    found = {tool: said[tool] for tool in TOOLS if said.get(tool, CLEAN) != CLEAN}
    parts = [f"{', '.join(clean)}: clean"] if clean else []
    # A tool ends with its summary.
    parts += [f"{tool}: {lines[-1].rpartition('SUMMARY: ')[2]}" for tool, lines in found.items()]
    if missing := [tool for tool in TOOLS if tool not in said]:
        parts.append(f"{', '.join(missing)}: not run")
    return "; ".join(parts), "\n".join(line for lines in found.values() for line in lines)


def gate_tally(families: Iterable[Any]) -> dict[str, int]:
    """How many kernels some `FamilyView`s have, and how many of them pass either gate, or fail one."""
    gates = [kernel.gate for family in families for kernel in family.kernels]
    return {
        "kernels": len(gates),
        "static": sum(gate.static_passed for gate in gates),
        "numeric": sum(gate.numeric_passed for gate in gates),
        "failed": sum(gate.status == "failed" for gate in gates),
    }
