"""The static gate: registers, spills, shared memory and expected SASS opcodes, from the build record."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gemmrepro import operations, registry
from gemmrepro.build.sass import allocated_registers

REGISTERS_PER_SM = 65536
"""32-bit registers of a multiprocessor (CUDA C++ Programming Guide, compute capabilities 8.0 to 12.0)."""

STATIC_SHARED_LIMIT = 48 * 1024
"""Bytes a block may declare statically, on every architecture; more needs dynamic shared memory."""

# Bytes of shared memory a block may have when it opts in (same source): capability to KiB.
_SHARED_LIMIT_KIB = {80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99}


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


def _smallest_shape(kernel: registry.Kernel) -> operations.Shape:
    """The smallest problem the kernel takes: enough to ask for its block, which does not depend on the size."""
    return operations.Shape(*(kernel.multiple_of.get(axis, 1) for axis in ("m", "n", "k")))


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
