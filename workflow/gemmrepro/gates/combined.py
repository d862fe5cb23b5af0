"""A kernel's whole gate: per toolkit, the static gate computed here and the numerical gate's verdict from a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.build.record import Build
from gemmrepro.core import names
from gemmrepro.core.files import read_json
from gemmrepro.errors import UserError
from gemmrepro.gates.operations import key_on
from gemmrepro.gates.static import Check, checks_of

_REBUILD = "run the target 'build' again"

LIVE = "live"

UNUSED = "this run measures nothing with this binary (gates.binaries)"
"""Why a binary that runs here was not judged."""

Source = tuple[Mapping[str, Any] | None, str, str]
"""A kernel's object in a numerical gate, None if there is none; "live", "recorded" or "none"; why there is none."""


def numeric_verdict(kernel: registry.Kernel, toolkit: str, build_key: str, source: Source) -> dict[str, Any]:
    """The numerical gate's verdict on one toolkit's binary, as in the gate's file.
    Its status is "passed", "failed", "stale" (of another run or version of the gate), "not run", or "not measured" (the
    run measures nothing with this binary)."""
    verdict, name, missing = source
    judged = None if verdict is None else verdict.get("toolkits", {}).get(toolkit)
    gpu, build, gate, cases = None, None, None, []
    if verdict is None:
        status, name, reason = "not run", "none", missing
    elif judged is None:
        status = "not measured" if name == LIVE else "not run"
        reason = missing or UNUSED if name == LIVE else f"no verdict for {toolkit}"
    else:
        status, reason, gpu = judged["status"], judged.get("reason") or "", verdict.get("gpu")
        build, gate, cases = judged.get("build_key"), judged.get("gate_key"), list(judged.get("cases", []))
        if status != "not run" and build != build_key:
            status, reason = "stale", f"build {build} was judged, today's is {build_key}"
        elif status != "not run" and gate != (today := key_on(verdict, kernel, build_key)):
            status, reason = "stale", f"its launch or its gate has changed since (gate key {gate}, today's is {today})"
    keys = {"gpu": gpu, "build_key": build, "gate_key": gate}
    return {"status": status, "source": name, "reason": reason, **keys, "worst": _worst(cases), "cases": cases}


def gate(
    kernel: registry.Kernel,
    builds: Path,
    toolkits: list[str],
    numeric: Path | None,
    recorded: Path | None,
    unjudged: str = "",
) -> dict[str, Any]:
    """Both gates of `kernel`, for each of `toolkits` that builds it.

    `builds`: folder with ``<toolkit>/<kernel id>.json``. `numeric`: a live numerical gate, or None. `recorded`: folder
    of a GPU's recordings, or None. `unjudged`: why the GPU that measures does not judge the kernel's numbers, if it
    does not. Raises UserError for an unknown toolkit, or a file that is missing or corrupt.
    """
    for toolkit in toolkits:
        if toolkit not in names.TOOLKITS:
            raise UserError(f"there is no toolkit '{toolkit}'; known toolkits: {', '.join(names.TOOLKITS)}.")
    chosen = [toolkit for toolkit in toolkits if toolkit in kernel.platform.toolkits]
    if not chosen:
        raise UserError(
            f"{kernel.id} is built by {', '.join(kernel.platform.toolkits)} and by none of {', '.join(toolkits)}; "
            "name one of its toolkits."
        )
    source: Source = ({}, LIVE, unjudged) if unjudged else numeric_source(kernel, numeric, recorded)
    judged: dict[str, dict[str, Any]] = {}
    for toolkit in chosen:
        key, checks = _static_gate(kernel, builds / toolkit / f"{kernel.id}.json", toolkit)
        try:
            verdict = numeric_verdict(kernel, toolkit, key, source)
        except (KeyError, TypeError, AttributeError) as error:
            path = numeric or recorded
            remedy = "run the target gates again" if numeric else "restore the recording"
            raise UserError(f"the numerical gate of {kernel.id} ({path}) is corrupt (no {error}); {remedy}.") from None
        # None: this run did not compile it with this toolkit.
        passed = all(check.passed for check in checks) if checks else None
        static = {"passed": passed, "checks": [asdict(check) for check in checks]}
        judged[toolkit] = {"build_key": key, "static": static, "numeric": verdict}
    outcomes = [gates["static"]["passed"] for gates in judged.values()]
    if all(passed is None for passed in outcomes):
        raise UserError(f"no toolkit compiled {kernel.id}, so there is no machine code to judge; {_REBUILD}.")
    passed = False not in outcomes and all(gates["numeric"]["status"] != "failed" for gates in judged.values())
    return {"kernel": kernel.id, "toolkits": judged, "passed": passed}


def _static_gate(kernel: registry.Kernel, path: Path, toolkit: str) -> tuple[str, list[Check]]:
    """The build key of a build record, and its checks; none if the kernel was not compiled."""
    build = Build.from_json(read_json(path, "the build record", _REBUILD), path)
    if build.kernel != kernel.id or build.toolkit != toolkit:
        raise UserError(f"the build record {path} is of another kernel or toolkit; {_REBUILD}.")
    try:
        return build.build_key, checks_of(kernel, build)
    except KeyError as error:
        raise UserError(f"the build record {path} is corrupt (no {error}); {_REBUILD}.") from None


def summary_line(result: dict[str, Any]) -> str:
    parts = [f"{result['kernel']:24} {'passed' if result['passed'] else 'FAILED'}"]
    for toolkit, gates in result["toolkits"].items():
        checks, numeric = gates["static"]["checks"], gates["numeric"]
        text = numeric["status"]
        if text in ("passed", "failed"):
            text += f" {numeric['source']} {numeric['gpu'] or ''}".rstrip()
        good = sum(check["passed"] for check in checks)
        static = f"static {good:>3}/{len(checks):<3}" if checks else "not compiled  "
        parts.append(f"{toolkit} {static} numeric {text:28}")
    for toolkit, gates in result["toolkits"].items():
        bad, numeric = [check for check in gates["static"]["checks"] if not check["passed"]], gates["numeric"]
        if bad:
            parts.append(
                f"{toolkit} {bad[0]['arch']}: {bad[0]['check']} is {bad[0]['found']}, expected {bad[0]['expected']}"
                f" ({bad[0]['why']})" + (f" and {len(bad) - 1} more" if len(bad) > 1 else "")
            )
        if numeric["status"] == "failed":
            failed = [case["message"] for case in numeric["cases"] if not case.get("passed", True)]
            parts.append(f"{toolkit} numbers: {(failed[0] if failed else numeric['reason']) or 'no reason given'}")
    return "  ".join(parts).rstrip()


def numeric_source(kernel: registry.Kernel, numeric: Path | None, recorded: Path | None) -> Source:
    """A kernel's numerical gate, live or recorded. Raises UserError if its file is corrupt."""
    if numeric is not None:
        return read_json(numeric, "the numerical gate", "run the target 'gates' on a GPU again"), LIVE, ""
    if recorded is None:
        return None, "none", "no GPU here and no recording named"
    path = recorded / kernel.family / "gates.json"
    if not path.is_file():
        return None, "recorded", f"no recorded gates of family {kernel.family} on {recorded.name}"
    verdicts = read_json(path, "the recorded gates", "restore the file from the repository")
    if not isinstance(verdicts, dict):
        raise UserError(f"the recorded gates {path} are corrupt (no object); restore the file from the repository.")
    return verdicts.get(kernel.id), "recorded", f"{kernel.id} is not among the recorded gates on {recorded.name}"


def _worst(cases: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The case with the largest error relative to its bound; failed cases first."""

    def nearness(case: dict[str, Any]) -> tuple[bool, float]:
        error, gamma = case.get("err_scaled_max"), case.get("gamma")
        return not case.get("passed", True), error / gamma if error is not None and gamma else 0.0

    if not cases:
        return None
    case = max(cases, key=nearness)
    drawn = (f"{key}={case.get(key)}" for key in ("alpha", "beta", "inputs", "seed"))
    name = " ".join([str(case.get("shape")), *drawn])
    return {"err_scaled_max": case.get("err_scaled_max"), "gamma": case.get("gamma"), "case": name}
