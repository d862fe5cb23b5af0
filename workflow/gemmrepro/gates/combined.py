"""A kernel's whole gate: per toolkit, the static gate computed here and the numerical gate's verdict from a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
"""The name of the source of verdicts that were given on this GPU."""

UNUSED = "this run measures nothing with this binary (gates.binaries)"
"""Why a binary that runs here was not judged."""


@dataclass(frozen=True)
class NumericSource:
    """A kernel's numerical gate and its origin.

    Attributes:
        verdict: the kernel's object in a numerical gate; None if there is none.
        name: "live", "recorded" or "none".
        missing: why there is no verdict, if that is known.
        path, remedy: for error messages: the file or folder, and what to do if it is corrupt.
    """

    verdict: dict[str, Any] | None
    name: str
    missing: str = ""
    path: Path | None = None
    remedy: str = "restore the recording"


@dataclass(frozen=True)
class NumericVerdict:
    """The numerical gate's verdict on one toolkit's binary.

    `status` is "passed", "failed", "stale" (of another run or another version of the gate), "not run", or "not
    measured", of a binary that was not judged since the run measures nothing with it.
    """

    status: str
    source: str
    reason: str
    gpu: str | None = None
    build_key: str | None = None
    gate_key: str | None = None
    cases: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The verdict as in the gate's file."""
        return {
            "status": self.status,
            "source": self.source,
            "reason": self.reason,
            "gpu": self.gpu,
            "build_key": self.build_key,
            "gate_key": self.gate_key,
            "worst": _worst(self.cases),
            "cases": list(self.cases),
        }


def numeric_verdict(kernel: registry.Kernel, toolkit: str, build_key: str, source: NumericSource) -> NumericVerdict:
    """The numerical gate's verdict on one toolkit's binary; stale unless the current gate judged this very run."""
    if source.verdict is None:
        return NumericVerdict("not run", "none", source.missing)
    judged = source.verdict.get("toolkits", {}).get(toolkit)
    if judged is None:
        if source.name == LIVE:
            return NumericVerdict("not measured", LIVE, source.missing or UNUSED)
        return NumericVerdict("not run", source.name, f"no verdict for {toolkit}")
    status, reason = judged["status"], judged.get("reason") or ""
    build, gate = judged.get("build_key"), judged.get("gate_key")
    if status != "not run" and build != build_key:
        status, reason = "stale", f"build {build} was judged, today's is {build_key}"
    elif status != "not run" and gate != (today := key_on(source.verdict, kernel, build_key)):
        status, reason = "stale", f"its launch or its gate has changed since (gate key {gate}, today's is {today})"
    cases = tuple(judged.get("cases", []))
    return NumericVerdict(status, source.name, reason, source.verdict.get("gpu"), build, gate, cases)


def gate(
    kernel: registry.Kernel,
    builds: Path,
    toolkits: list[str],
    numeric: Path | None,
    recorded: Path | None,
    unjudged: str = "",
) -> dict[str, Any]:
    """Both gates of `kernel`, for each of `toolkits` that builds it.

    Args:
        builds: folder with ``<toolkit>/<kernel id>.json``.
        numeric: a live numerical gate, or None.
        recorded: folder of a GPU's recordings, which contains ``<family>/gates.json``, or None.
        unjudged: why the GPU that measures does not judge the kernel's numbers, if it does not.

    Raises:
        UserError: an unknown toolkit, or a file that is missing or corrupt.
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
    source = NumericSource({}, LIVE, unjudged) if unjudged else _numeric_source(kernel, numeric, recorded)
    judged = {toolkit: _of_toolkit(kernel, builds, toolkit, source) for toolkit in chosen}
    static = [gates["static"]["passed"] for gates in judged.values()]
    if all(verdict is None for verdict in static):
        raise UserError(f"no toolkit compiled {kernel.id}, so there is no machine code to judge; {_REBUILD}.")
    passed = False not in static and all(gates["numeric"]["status"] != "failed" for gates in judged.values())
    return {"kernel": kernel.id, "toolkits": judged, "passed": passed}


def _of_toolkit(kernel: registry.Kernel, builds: Path, toolkit: str, source: NumericSource) -> dict[str, Any]:
    """Both gates of one toolkit's binary."""
    key, checks = _static_gate(kernel, builds / toolkit / f"{kernel.id}.json", toolkit)
    try:
        numeric = numeric_verdict(kernel, toolkit, key, source).to_json()
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"the numerical gate of {kernel.id} ({source.path}) is corrupt (no {error}); {source.remedy}."
        ) from None
    return {
        "build_key": key,
        # None: this run did not compile it with this toolkit.
        "static": {
            "passed": all(check.passed for check in checks) if checks else None,
            "checks": [check.to_json() for check in checks],
        },
        "numeric": numeric,
    }


def _static_gate(kernel: registry.Kernel, path: Path, toolkit: str) -> tuple[str, list[Check]]:
    """The build key of a build record, and its checks; none if the kernel was not compiled."""
    build = Build.from_json(read_json(path, "the build record", _REBUILD), path)
    if build.kernel != kernel.id or build.toolkit != toolkit:
        raise UserError(f"the build record {path} is of another kernel or toolkit; {_REBUILD}.")
    try:
        checks = checks_of(kernel, build)
    except KeyError as error:
        raise UserError(f"the build record {path} is corrupt (no {error}); {_REBUILD}.") from None
    return build.build_key, checks


def summary_line(result: dict[str, Any]) -> str:
    """A gate's result in one aligned line; a failed one says what failed."""
    parts = [f"{result['kernel']:24} {'passed' if result['passed'] else 'FAILED'}"]
    for toolkit, gates in result["toolkits"].items():
        checks = gates["static"]["checks"]
        good = sum(check["passed"] for check in checks)
        numeric = gates["numeric"]
        text = numeric["status"]
        if numeric["status"] in ("passed", "failed"):
            text += f" {numeric['source']} {numeric['gpu'] or ''}".rstrip()
        static = f"static {good:>3}/{len(checks):<3}" if checks else "not compiled  "
        parts.append(f"{toolkit} {static} numeric {text:28}")
    for toolkit, gates in result["toolkits"].items():
        bad = [check for check in gates["static"]["checks"] if not check["passed"]]
        if bad:
            parts.append(
                f"{toolkit} {bad[0]['arch']}: {bad[0]['check']} is {bad[0]['found']}, expected {bad[0]['expected']}"
                f" ({bad[0]['why']})" + (f" and {len(bad) - 1} more" if len(bad) > 1 else "")
            )
        if gates["numeric"]["status"] == "failed":
            failed = [case for case in gates["numeric"]["cases"] if not case.get("passed", True)]
            first = failed[0].get("message") if failed else gates["numeric"]["reason"]
            parts.append(f"{toolkit} numbers: {first or 'no reason given'}")
    return "  ".join(parts).rstrip()


def _numeric_source(kernel: registry.Kernel, numeric: Path | None, recorded: Path | None) -> NumericSource:
    if numeric is not None:
        verdict = read_json(numeric, "the numerical gate", "run the target 'gates' on a GPU again")
        return NumericSource(verdict, LIVE, path=numeric, remedy="run the target gates again")
    if recorded is None:
        return NumericSource(None, "none", "no GPU here and no recording named")
    path = recorded / kernel.family / "gates.json"
    if not path.is_file():
        return NumericSource(None, "recorded", f"no recorded gates of family {kernel.family} on {recorded.name}")
    known = read_json(path, "the recorded gates", "restore the file from the repository")
    if not isinstance(known, dict):
        raise UserError(f"the recorded gates {path} are corrupt (no object); restore the file from the repository.")
    missing = f"{kernel.id} is not among the recorded gates on {recorded.name}"
    return NumericSource(known.get(kernel.id), "recorded", missing, path=recorded)


def _worst(cases: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The case with the largest error relative to its bound; failed cases first."""

    def nearness(case: dict[str, Any]) -> tuple[bool, float]:
        error, gamma = case.get("err_scaled_max"), case.get("gamma")
        return not case.get("passed", True), error / gamma if error is not None and gamma else 0.0

    if not cases:
        return None
    case = max(cases, key=nearness)
    name = " ".join(
        [str(case.get("shape")), *(f"{key}={case.get(key)}" for key in ("alpha", "beta", "inputs", "seed"))]
    )
    return {"err_scaled_max": case.get("err_scaled_max"), "gamma": case.get("gamma"), "case": name}
