"""Judge kernels before they may be measured: their machine code here, their numbers as measured or recorded.

    python -m gemmrepro gates --kernels ladder.naive=cuda12,cuda13 ladder.smem=cuda13 --build results/build \\
        (--numeric results/gates/numeric | --recorded reports/recorded/h200) --out results/gates
    python -m gemmrepro gates --check results/gates/*.json

The static gate reads build records, without a GPU: the machine code is as the article says, nothing spills, and a
block's resources fit the architecture. It shows *that* loads are 128 bits wide or barriers exist, not whether addresses
coalesce (counters and times do) or barriers are in the right place (the numerical gate, taken over by gate key).

A failed gate is a verdict, not an error: it is written, and the exit code is 0. Only ``--check`` exits with 1.
"""

import math
import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.build.listings import allocated_registers
from gemmrepro.build.record import Build, MachineCode
from gemmrepro.core import names
from gemmrepro.core.architectures import KNOWN, is_among, number, parsed, shared_limit
from gemmrepro.core.files import read_json, write_json
from gemmrepro.errors import UserError
from gemmrepro.gates.operations import key_on
from gemmrepro.registry.keys import usual_shapes
from gemmrepro.registry.requirements import requirement

REGISTERS_PER_SM = 65536
"""32-bit registers of an SM (CUDA C++ Programming Guide, compute capabilities 8.0 to 12.0)."""

STATIC_SHARED_LIMIT = 48 * 1024
"""Bytes a block may declare statically, on every architecture; more needs dynamic shared memory."""


@dataclass(frozen=True)
class Check:
    """One requirement of the static gate on the code for one architecture ("sm_90"), with expected and actual value."""

    arch: str
    check: str
    why: str
    expected: str
    found: str
    passed: bool


def _at_most(arch: str, check: str, why: str, limit: int, found: int) -> Check:
    return Check(arch, check, why, f"at most {limit}", str(found), found <= limit)


def static_checks(kernel: registry.Kernel, arch: str, built: MachineCode, toolkit: str = "") -> list[Check]:
    """Check the machine code of one entry point for `arch`, such as "sm_90", by `toolkit`, against the registry."""
    # Among these shapes a launch has its largest block and its most shared memory.
    large = [registry.LARGE_SHAPE] if kernel.takes(registry.LARGE_SHAPE) else []
    launches = [kernel.launch(shape) for shape in (*usual_shapes(kernel), *large)]
    # If the compiler chose the block size, the build record states it.
    threads = built.threads or max(math.prod(launch.block) for launch in launches)
    dynamic_shared = max(launch.shared_bytes for launch in launches)
    return [
        _at_most(arch, "threads per block", "the hardware's limit", 1024, threads),
        *_spill_checks(kernel, arch, built, toolkit),
        *_resource_checks(kernel, arch, built, threads, dynamic_shared),
        *_opcode_checks(kernel, arch, built.instructions),
    ]


def _spill_checks(kernel: registry.Kernel, arch: str, built: MachineCode, toolkit: str) -> list[Check]:
    """Checks that nothing spills, except for constants tuned on another target."""
    target = arch.removeprefix("sm_")
    spilled = built.spill_bytes
    local = _count(r"(LDL|STL)(\..*)?", built.instructions)
    of_toolkit = {name.removeprefix(f"{toolkit}:") for name in kernel.promises.spills}
    if is_among(target, of_toolkit):
        why = "the record declares that the compiler runs out of registers here, which a better one may end"
        return [Check(arch, "spilled bytes", why, "at least 1", str(spilled), spilled > 0)]
    if kernel.platform.chosen_for not in ("", target):
        return []
    none = (
        ("spilled bytes", "no register goes to memory and back", spilled),
        # It also detects spills and indexed local arrays that the compiler's log does not report.
        ("stack bytes", "no array of registers fell into local memory", built.stack_bytes),
        ("local loads and stores", "the machine code agrees: it never touches local memory", local),
    )
    return [Check(arch, check, why, "0", str(found), found == 0) for check, why, found in none]


def _resource_checks(
    kernel: registry.Kernel, arch: str, built: MachineCode, threads: int, dynamic_shared: int
) -> list[Check]:
    """Checks that a block's registers and shared memory fit the architecture."""
    registers, shared = built.registers, built.shared_bytes
    allocated = allocated_registers(registers, threads)
    checks = [
        Check(
            arch,
            "registers per block",
            f"{registers} a thread, {threads} threads: the block fits the register file",
            f"at most {REGISTERS_PER_SM}",
            str(allocated),
            registers <= 255 and allocated <= REGISTERS_PER_SM,
        )
    ]
    if not kernel.compiler_traits.chooses_block:
        why = "the limit of static shared memory"
        checks.append(_at_most(arch, "static shared bytes", why, STATIC_SHARED_LIMIT, shared))
    why = f"static and dynamic together fit {arch}"
    checks.append(_at_most(arch, "shared bytes per block", why, shared_limit(arch), shared + dynamic_shared))
    return checks


def _opcode_checks(kernel: registry.Kernel, arch: str, instructions: Mapping[str, int]) -> list[Check]:
    """Checks of opcodes that the article's idea implies (`Promises.expects`)."""
    checks = []
    for expect in kernel.promises.expects:
        if expect.archs and not is_among(arch, expect.archs):
            continue
        count, most = _count(expect.opcode, instructions), expect.most
        if most is None:
            expected = f"at least {expect.least}"
        elif most == expect.least:
            expected = str(most)
        else:
            expected = f"{expect.least} to {most}"
        passed = count >= expect.least and (most is None or count <= most)
        checks.append(Check(arch, expect.opcode, expect.why, expected, str(count), passed))
    return checks


def refusal_checks(kernel: registry.Kernel, refused: Mapping[str, str | None]) -> list[Check]:
    """One check per architecture that was tried; `refused` are messages by architecture, None if it compiled."""
    checks = []
    for arch, message in sorted(refused.items()):
        expected = kernel.promises.refuses(arch)
        if not expected and number(arch) not in KNOWN:
            continue  # no record speaks of it
        checks.append(
            Check(
                arch,
                "the compiler refuses",
                "; ".join(refusal.why for refusal in expected) or "the record expects no refusal here",
                "; ".join(refusal.message for refusal in expected) or "none",
                message.splitlines()[0] if message else "it compiles; take the refusal out of the record",
                bool(message and expected and all(re.search(refusal.message, message) for refusal in expected)),
            )
        )
    return checks


def checks_of(kernel: registry.Kernel, build: Build) -> list[Check]:
    """Every check of a build record of `kernel`; none if the record holds no architecture.
    Raises KeyError if the record lacks an entry point."""
    checks = []
    for part in kernel.codes:
        prefix = f"{part.code.entry}: " if len(kernel.codes) > 1 else ""
        for arch, built in sorted(build.codes(part.code.entry).items()):
            checks += [
                replace(check, check=prefix + check.check) for check in static_checks(part, arch, built, build.toolkit)
            ]
    # ptxas ignores no request, such as register reallocation, and does not serialize wgmma.
    why, ignored = "what the source asks of the assembler is done", "; ".join(build.advisories) or "none"
    advisories = Check("every target", "compiler advisories", why, "none", ignored, not build.advisories)
    return [*checks, *refusal_checks(kernel, build.refused), advisories] if checks else []


def _count(pattern: str, instructions: Mapping[str, int]) -> int:
    """Number of instructions with an opcode that matches `pattern` as a whole."""
    return sum(count for opcode, count in instructions.items() if re.fullmatch(pattern, opcode))


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
    does not. Raises UserError for an unknown toolkit, or a file that is missing or corrupt."""
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
    verdicts = _recorded(path, path.stat().st_mtime_ns)
    if not isinstance(verdicts, dict):
        raise UserError(f"the recorded gates {path} are corrupt (no object); restore the file from the repository.")
    return verdicts.get(kernel.id), "recorded", f"{kernel.id} is not among the recorded gates on {recorded.name}"


@lru_cache(maxsize=1)
def _recorded(path: Path, changed: int) -> Any:
    """A family's recorded gates, which are read once for all its kernels."""
    return read_json(path, "the recorded gates", "restore the file from the repository")


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


def check(paths: list[Path]) -> int:
    """Print one line per gate, in order; return 1 if any failed, else 0. Raises UserError for a corrupt file."""
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


def gates_step(options: Namespace) -> int:
    if options.check:
        return check(options.check)
    if not (options.kernels and options.out):
        raise UserError("--kernels and --out go together; or give --check.")
    capability = parsed(options.gpu) if options.gpu else None
    for each in options.kernels:
        name, _, listed = each.partition("=")
        toolkits = [toolkit.strip() for toolkit in listed.split(",") if toolkit.strip()] or list(names.TOOLKITS)
        kernel = registry.kernel(name)
        needs = requirement(kernel, capability) if capability else ""
        numeric = options.numeric / f"{name}.json" if options.numeric and not needs else None
        unjudged = (f"needs {needs}" if needs else UNUSED) if capability and numeric is None else ""
        result = gate(kernel, options.build, toolkits, numeric, options.recorded, unjudged)
        write_json(options.out / f"{name}.json", result)
        print(summary_line(result))
    return 0
