"""Judge a kernel before it may be measured: its machine code here, its numbers as measured or recorded.

    python -m gemmrepro.gates --kernel ladder.naive --build results/build --toolkits cuda12,cuda13 \\
        (--numeric results/gates/numeric/ladder.naive.json | --recorded reports/recorded/h200) \\
        --out results/gates/ladder.naive.json
    python -m gemmrepro.gates --check results/gates/*.json

The static gate reads the build records and needs no GPU: what the article says of the machine code is there, nothing
spills, and a block's registers and shared memory fit the architecture. It counts opcodes, so it can show *that* loads
are 128 bits wide or that barriers exist, and not whether addresses coalesce or barriers stand in the right place;
coalescing shows in counters and times, the rest in the numerical gate, whose verdict is taken over by build key.

A failed gate is a verdict, not an error: it is written, and the exit code is 0. Only ``--check`` exits with 1.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.errors import UserError, run_stage
from gemmrepro.files import read_json, write_json

REGISTERS_PER_SM = 65536
"""32-bit registers of a multiprocessor (CUDA C++ Programming Guide, compute capabilities 8.0 to 12.0)."""

STATIC_SHARED_LIMIT = 48 * 1024
"""Bytes a block may declare statically, on every architecture; more needs dynamic shared memory."""

# Bytes of shared memory a block may have when it opts in (same source): capability to KiB.
_SHARED_LIMIT_KIB = {80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99}

_REBUILD = "run the target 'build' again"


def allocated_registers(registers: int, threads: int) -> int:
    """Registers that a block of `threads` takes: they are given out to warps in units of 256, that is 8 a thread."""
    return -(-registers // 8) * 8 * 32 * -(-threads // 32)


def built_of(kernel: registry.Kernel, code: registry.Kernel, record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the build record of `kernel` says of one of its `codes`, by architecture ("sm_90")."""
    return record["variants"][code.entry] if len(kernel.codes) > 1 else record["archs"]


def static_checks(kernel: registry.Kernel, arch: str, built: dict[str, Any]) -> list[dict[str, Any]]:
    """Check one architecture's entry of a build record against the registry.

    Args:
        arch: "sm_90".
        built: the record's ``archs[arch]``.

    Returns: a list of {arch, check, why, expected, found, passed}.

    Raises:
        KeyError: the entry lacks a field.
    """
    checks: list[dict[str, Any]] = []

    def add(check: str, why: str, expected: str, found: int | str, passed: bool) -> None:
        checks.append(
            {"arch": arch, "check": check, "why": why, "expected": expected, "found": str(found), "passed": passed}
        )

    launch = kernel.launch(_smallest_shape(kernel))
    # A compiler that chooses the threads writes down how many.
    threads = built.get("threads") or launch.block[0] * launch.block[1] * launch.block[2]
    add("threads a block", "the hardware's limit", "at most 1024", threads, threads <= 1024)

    spilled = built["spill_store_bytes"] + built["spill_load_bytes"]
    stack = built["stack_bytes"]
    local = _count(r"(LDL|STL)(\..*)?", built["instructions"])
    if arch.removeprefix("sm_") in kernel.spills:
        why = "the record declares that the compiler runs out of registers here, which a better one may end"
        add("spilled bytes", why, "at least 1", spilled, spilled > 0)
    elif kernel.chosen_for in ("", arch.removeprefix("sm_")):
        add("spilled bytes", "no register goes to memory and back", "0", spilled, spilled == 0)
        # A spill or an indexed local array would show here even if the compiler's log did not say so.
        add("stack bytes", "no array of registers fell into local memory", "0", stack, stack == 0)
        add("local loads and stores", "the machine code agrees: it never touches local memory", "0", local, local == 0)

    registers = built["registers"]
    allocated = allocated_registers(registers, threads)
    add(
        "registers a block",
        f"{registers} a thread, {threads} threads: the block fits the register file",
        f"at most {REGISTERS_PER_SM}",
        allocated,
        registers <= 255 and allocated <= REGISTERS_PER_SM,
    )
    shared = built["shared_bytes"]
    if kernel.compiler != "cutile":  # whose code asks the driver for more by itself
        add(
            "static shared bytes",
            "the limit of static shared memory",
            f"at most {STATIC_SHARED_LIMIT}",
            shared,
            shared <= STATIC_SHARED_LIMIT,
        )
    limit = _shared_limit(arch)
    total = shared + launch.shared_bytes
    add("shared bytes a block", f"static and dynamic together fit {arch}", f"at most {limit}", total, total <= limit)

    for expect in kernel.expects:
        if expect.archs and arch.removeprefix("sm_") not in expect.archs:
            continue
        found = _count(expect.opcode, built["instructions"])
        most = expect.most
        if most is None:
            expected = f"at least {expect.least}"
        elif most == expect.least:
            expected = str(most)
        else:
            expected = f"{expect.least} to {most}"
        passed = found >= expect.least and (most is None or found <= most)
        add(expect.opcode, expect.why, expected, found, passed)
    return checks


def refusal_checks(kernel: registry.Kernel, refused: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """Check what the compiler said for the architectures that `kernel` expects it to refuse.

    Args:
        refused: the build record's ``refused``: messages by architecture, None where it compiled after all.

    Returns: as `static_checks`; an architecture that was not tried has no check.
    """
    checks = []
    for arch, said in sorted(refused.items()):
        expected = [one for one in kernel.refusals if arch.removeprefix("sm_") in one.archs]
        first = said.splitlines()[0] if said else "it compiles; take the refusal out of the record"
        checks.append(
            {
                "arch": arch,
                "check": "the compiler refuses",
                "why": "; ".join(one.why for one in expected) or "the record expects no refusal here",
                "expected": "; ".join(one.message for one in expected) or "none",
                "found": first,
                "passed": bool(said and expected and all(re.search(one.message, said) for one in expected)),
            }
        )
    return checks


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
        if toolkit not in registry.TOOLKITS:
            raise UserError(f"there is no toolkit '{toolkit}'; known toolkits: {', '.join(registry.TOOLKITS)}.")
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


def _smallest_shape(kernel: registry.Kernel) -> registry.Shape:
    """The smallest problem the kernel takes: enough to ask for its block, which does not depend on the size."""
    return registry.Shape(*(kernel.multiple_of.get(axis, 1) for axis in ("m", "n", "k")))


def _advisory_check(advisories: list[str]) -> dict[str, Any]:
    """Whether ptxas said that it ignored a request, such as register reallocation, or serialized wgmma."""
    return {
        "arch": "every target",
        "check": "compiler advisories",
        "why": "what the source asks of the assembler is done",
        "expected": "none",
        "found": "; ".join(advisories) or "none",
        "passed": not advisories,
    }


def _shared_limit(arch: str) -> int:
    """Bytes of shared memory a block may have on `arch`; the least of all for one that is not in the table."""
    capability = int(re.sub(r"\D", "", arch))
    return 1024 * _SHARED_LIMIT_KIB.get(capability, min(_SHARED_LIMIT_KIB.values()))


def _count(pattern: str, instructions: dict[str, int]) -> int:
    """How many instructions have an opcode that matches `pattern` as a whole."""
    return sum(count for opcode, count in instructions.items() if re.fullmatch(pattern, opcode))


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
    parser.add_argument("--toolkits", default=",".join(registry.TOOLKITS), help="comma-separated (default all)")
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
