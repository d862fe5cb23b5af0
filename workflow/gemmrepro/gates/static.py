"""The static gate: registers, spills, shared memory and expected SASS opcodes, from the build record."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gemmrepro import registry
from gemmrepro.build.record import Build, MachineCode
from gemmrepro.build.sass import allocated_registers
from gemmrepro.core.architectures import KNOWN, is_among, number, shared_limit
from gemmrepro.registry.keys import usual_shapes

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
