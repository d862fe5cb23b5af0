"""Judge a kernel before it may be measured: its machine code here, its numbers as measured or recorded.

    python -m gemmrepro.gates.stage --kernel ladder.naive --build results/build --toolkits cuda12,cuda13 \\
        (--numeric results/gates/numeric/ladder.naive.json | --recorded reports/recorded/h200) \\
        --out results/gates/ladder.naive.json
    python -m gemmrepro.gates.stage --check results/gates/*.json

The static gate reads the build records and needs no GPU: what the article says of the machine code is there, nothing
spills, and a block's registers and shared memory fit the architecture. It counts opcodes, so it can show *that* loads
are 128 bits wide or that barriers exist, and not whether addresses coalesce or barriers stand in the right place;
coalescing shows in counters and times, the rest in the numerical gate, whose verdict is taken over by build key.

A failed gate is a verdict, not an error: it is written, and the exit code is 0. Only ``--check`` exits with 1.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.build.record import built_of
from gemmrepro.core import names
from gemmrepro.core.files import read_json, write_json
from gemmrepro.errors import UserError, run_stage
from gemmrepro.gates.static import _advisory_check, refusal_checks, static_checks

_REBUILD = "run the target 'build' again"


def numeric_verdict(
    toolkit: str, build_key: str, verdict: dict[str, Any] | None, source: str, missing: str
) -> dict[str, Any]:
    """The numerical gate's verdict on one toolkit's binary, taken over only if it judged this very binary.

    Args:
        verdict: one kernel's object of a numerical gate, live or recorded; None if there is none.
        source: "live" or "recorded".
        missing: the reason to give where `verdict` is None.

    Returns: {status, source, gpu, build_key, reason, worst, cases}; status is "passed", "failed", "stale" (another
    binary was judged) or "not run".
    """
    nothing = {"gpu": None, "build_key": None, "worst": None, "cases": []}
    if verdict is None:
        return {"status": "not run", "source": "none", "reason": missing, **nothing}
    judged = verdict.get("toolkits", {}).get(toolkit)
    if judged is None:
        return {"status": "not run", "source": source, "reason": f"no verdict for {toolkit}", **nothing}
    cases = judged.get("cases", [])
    status, reason = judged["status"], judged.get("reason") or ""
    if status != "not run" and judged.get("build_key") != build_key:
        status = "stale"
        reason = f"build {judged.get('build_key')} was judged, today's is {build_key}"
    return {
        "status": status,
        "source": source,
        "reason": reason,
        "gpu": verdict.get("gpu"),
        "build_key": judged.get("build_key"),
        "worst": _worst(cases),
        "cases": cases,
    }


def gate(
    kernel: registry.Kernel, builds: Path, toolkits: list[str], numeric: Path | None, recorded: Path | None
) -> dict[str, Any]:
    """Both gates of `kernel`, for each of `toolkits` that builds it.

    Args:
        builds: folder with ``<toolkit>/<kernel id>.json``.
        numeric: a live numerical gate, or None.
        recorded: folder of a GPU's recordings, ``<family>/gates.json`` in it, or None.

    Raises:
        UserError: an unknown toolkit, or a file that is missing or corrupt.
    """
    for toolkit in toolkits:
        if toolkit not in names.TOOLKITS:
            raise UserError(f"there is no toolkit '{toolkit}'; known toolkits: {', '.join(names.TOOLKITS)}.")
    chosen = [toolkit for toolkit in toolkits if toolkit in kernel.toolkits]
    if not chosen:
        raise UserError(
            f"{kernel.id} is built by {', '.join(kernel.toolkits)} and by none of {', '.join(toolkits)}; "
            "name one of its toolkits."
        )
    verdict, source, missing = _numeric_source(kernel, numeric, recorded)
    result: dict[str, Any] = {"kernel": kernel.id, "toolkits": {}}
    for toolkit in chosen:
        path = builds / toolkit / f"{kernel.id}.json"
        record = read_json(path, "the build record", _REBUILD)
        try:
            checks = [
                {**check, "check": f"{code.entry}: {check['check']}"} if len(kernel.codes) > 1 else check
                for code in kernel.codes
                for arch, built in sorted(built_of(kernel, code, record).items())
                for check in static_checks(code, arch, built)
            ]
            if checks:
                checks += refusal_checks(kernel, record.get("refused", {}))
                checks.append(_advisory_check(record["advisories"]))
            key = record["build_key"]
            other = record["kernel"] != kernel.id or record["toolkit"] != toolkit
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"the build record {path} is corrupt (no {error}); {_REBUILD}.") from None
        if other:
            raise UserError(f"the build record {path} is of another kernel or toolkit; {_REBUILD}.")
        if not checks:
            raise UserError(f"the build record {path} holds no architecture; {_REBUILD}.")
        try:
            judged = numeric_verdict(toolkit, key, verdict, source, missing)
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"the numerical gate of {kernel.id} ({numeric or recorded}) is corrupt (no {error}); "
                f"{'run the target gates again' if numeric else 'restore the recording'}."
            ) from None
        result["toolkits"][toolkit] = {
            "build_key": key,
            "static": {"passed": all(check["passed"] for check in checks), "checks": checks},
            "numeric": judged,
        }
    result["passed"] = all(
        gates["static"]["passed"] and gates["numeric"]["status"] != "failed" for gates in result["toolkits"].values()
    )
    return result


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
        parts.append(f"{toolkit} static {good:>3}/{len(checks):<3} numeric {text:28}")
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


def check(paths: list[Path]) -> int:
    """Print a line a gate, in the order given; return 1 if any failed, else 0.

    Raises:
        UserError: a file is missing, corrupt or no gate.
    """
    failed = 0
    for path in paths:
        result = read_json(path, "the gate", "run the target 'gates' again")
        try:
            print(summary_line(result))
            failed += not result["passed"]
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"the gate {path} is corrupt (no {error}); run the target 'gates' again.") from None
    if failed:
        print(f"{failed} of {len(paths)} kernels failed their gate and will not be measured.")
    return 1 if failed else 0


def _numeric_source(
    kernel: registry.Kernel, numeric: Path | None, recorded: Path | None
) -> tuple[dict[str, Any] | None, str, str]:
    """The kernel's numerical gate, where it comes from, and the reason to give if there is none."""
    if numeric is not None:
        return read_json(numeric, "the numerical gate", "run the target 'gates' on a GPU again"), "live", ""
    if recorded is None:
        return None, "none", "no GPU here and no recording named"
    path = recorded / kernel.family / "gates.json"
    if not path.is_file():
        return None, "recorded", f"no recorded gates of family {kernel.family} on {recorded.name}"
    known = read_json(path, "the recorded gates", "restore the file from the repository")
    if not isinstance(known, dict):
        raise UserError(f"the recorded gates {path} are corrupt (no object); restore the file from the repository.")
    return known.get(kernel.id), "recorded", f"{kernel.id} is not among the recorded gates on {recorded.name}"


def _worst(cases: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The case that came nearest to its bound or went farthest beyond it."""

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


def main() -> int:
    """Command line; writes one gate, or checks many."""
    parser = argparse.ArgumentParser(prog="gemmrepro.gates", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", nargs="+", type=Path, metavar="GATE", help="print these gates; exit 1 if any failed")
    parser.add_argument("--kernel", help="kernel id, such as ladder.naive")
    parser.add_argument("--build", type=Path, help="folder of the builds, results/build")
    parser.add_argument("--toolkits", default=",".join(names.TOOLKITS), help="comma-separated (default all)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--numeric", type=Path, help="the numerical gate measured here")
    which.add_argument("--recorded", type=Path, help="folder of a GPU's recordings")
    parser.add_argument("--out", type=Path, help="where to write the gate")
    args = parser.parse_args()
    if args.check:
        return check(args.check)
    if not (args.kernel and args.build and args.out):
        parser.error("--kernel, --build and --out go together (or give --check)")
    toolkits = [toolkit.strip() for toolkit in args.toolkits.split(",") if toolkit.strip()]
    result = gate(registry.kernel(args.kernel), args.build, toolkits, args.numeric, args.recorded)
    write_json(args.out, result)
    print(summary_line(result))
    return 0


if __name__ == "__main__":
    run_stage(main)
