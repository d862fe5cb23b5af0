"""A kernel's gate as its page shows it: static checks, numerical cases with their bounds, compute-sanitizer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmrepro.gates.operations import allowed
from gemmrepro.measure.recording import CLEAN, SANITIZERS, TOOLS, check_manifest, read_sanitizers
from gemmrepro.paper.text import BY, View
from gemmrepro.registry import Kernel

NOT_COMPILED = "not compiled"
"""The static gate of a kernel that this run did not compile with a toolkit."""

NOT_RUN = "not run on today's binary"

_STATIC = {True: "passed", False: "failed", None: NOT_COMPILED}


def gate_view(gate: Mapping[str, Any] | None, kernel: Kernel) -> View:
    """The gate of a kernel, ``passed`` if nothing failed; ``not run`` if it is None.

    `checks` are those of all toolkits; `open` are the statuses of numerical gates without a verdict, since a gate
    passes as long as nothing failed. `static_passed` says that the static gate passed in every toolkit that compiled
    the kernel, `numeric_passed` that the numerical one did in every toolkit that has it, and whose binary is measured.
    """
    verdicts = sorted(((gate or {}).get("toolkits") or {}).items())
    checks = [
        {**check, "toolkit": name if len(verdicts) > 1 else None}
        for name, verdict in verdicts
        for check in (verdict.get("static") or {}).get("checks") or []
    ]
    toolkits = [_toolkit_view(name, verdict, kernel) for name, verdict in verdicts]
    return View(
        status="not run" if gate is None else "passed" if gate.get("passed") else "failed",
        toolkits=toolkits,
        checks=gather_checks(checks),
        cases=[*_cases(toolkits)],
        open=" or ".join(sorted({each.numeric for each in toolkits if each.measured and not each.judged})),
        static_passed={each.static for each in toolkits if each.compiled} == {"passed"},
        numeric_passed={each.numeric for each in toolkits if each.measured} == {"passed"},
    )


def _cases(toolkits: Sequence[View]) -> Iterator[tuple[Mapping[str, Any], Sequence[float | None], bool]]:
    """The numerical cases, each with its error by toolkit, None where it did not run, and whether it passed.

    Toolkits that ran the same case share its row.
    """
    rows: dict[tuple[object, ...], dict[str, Mapping[str, Any]]] = {}
    for toolkit in toolkits:
        seen: Counter[tuple[object, ...]] = Counter()
        for case in toolkit.cases:
            key = tuple(case.get(name) for name in ("shape", "inputs", "alpha", "beta", "seed", "allowed"))
            rows.setdefault((*key, seen[key]), {})[toolkit.name] = case
            seen[key] += 1
    for by_toolkit in rows.values():
        errors = [by_toolkit.get(each.name, {}).get("err_scaled_max") for each in toolkits]
        yield next(iter(by_toolkit.values())), errors, all(case["passed"] for case in by_toolkit.values())


def _toolkit_view(name: str, verdict: Mapping[str, Any], kernel: Kernel) -> View:
    """A kernel's verdicts in one toolkit.

    `static` is ``passed``, ``failed``, or ``not compiled``; `numeric` ``passed``, ``failed``, ``stale``, ``not run``,
    or ``not measured``, of a binary that the run does not measure. `cases` are numerical cases as `case_view` shows
    them, `worst` the one with the largest error.
    """
    numeric = verdict.get("numeric") or {}
    static = _STATIC[(verdict.get("static") or {}).get("passed")]
    status = numeric.get("status") or "not run"
    worst = numeric.get("worst")
    cases = [case_view(case, kernel) for case in numeric.get("cases") or []]
    return View(
        name=name,
        static=static,
        compiled=static != NOT_COMPILED,
        numeric=status,
        judged=status in ("passed", "failed"),
        measured=status != "not measured",
        source=numeric.get("source") or "none",
        gpu=numeric.get("gpu"),
        reason=numeric.get("reason"),
        worst=case_view(worst, kernel) if isinstance(worst, Mapping) else None,
        cases=cases,
        failed=[case for case in cases if not case["passed"]],
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


def gather_checks(checks: Sequence[Mapping[str, Any]]) -> list[View]:
    """Static checks over every architecture, and every ``toolkit`` if they say so.

    `found` pairs each finding with the architectures that share it. The n-th check of a name on one architecture is the
    same as the n-th on another, though its bound may differ.
    """
    gathered: dict[tuple[str, int], list[tuple[str, Mapping[str, Any]]]] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for check in checks:
        name, target = check["check"], " ".join(check[key] for key in ("toolkit", "arch") if check.get(key))
        gathered.setdefault((name, seen[target, name]), []).append((target, check))
        seen[target, name] += 1
    views = []
    for (name, _), same in gathered.items():
        targets: dict[str, list[str]] = {}
        for target, check in same:
            targets.setdefault(f"{check['found']}{'' if check['passed'] else ' (fails)'}", []).append(target)
        views.append(
            View(
                check=name,
                why="; ".join(dict.fromkeys(str(check["why"]) for _, check in same)),
                expected=" or ".join(dict.fromkeys(str(check["expected"]) for _, check in same)),
                found=[(text, "every target" if len(targets) == 1 else ", ".join(of)) for text, of in targets.items()],
                passed=all(check["passed"] for _, check in same),
            )
        )
    return views


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


def sanitizer_views(outcome: Mapping[str, Any] | None, build_keys: Mapping[str, str]) -> list[View]:
    """What the tools said of today's binaries, by toolkit: ``memcheck, racecheck: clean``, or NOT_RUN.

    Toolkits of which the same was said are together. `found` is everything that the tools printed where they were not
    clean; `source` the GPU and the day.

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
    return [
        View(toolkits=", ".join(names), text=text, found=found, source=source)
        for (text, found, source), names in together.items()
    ]


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
