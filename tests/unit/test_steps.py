"""Kernels of several launches: their records, what a launch is passed, and their binaries."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from gemmrepro import build, build_cutile, comparison, gates, gpu, registry, sweep
from gemmrepro.errors import UserError
from gemmrepro.operands import Operands
from gemmrepro.registry import Array, Shape

FUSED = registry.kernel("ozaki.fused_bf16_d9")
NAIVE = registry.kernel("ozaki.naive_fp16")
SHAPE = Shape(48, 32, 16)
VERSIONS = {"cuda-tile": "1.7.0", "nvidia-cuda-tileiras": "13.4.92"}


class Memory:
    def __init__(self, pointer, shape=()):
        self.data, self.shape = type("Memory", (), {"ptr": pointer}), shape


def workspace(kernel):
    return {
        name: Memory(1000 * (place + 1), one.lengths(SHAPE))
        for place, (name, one) in enumerate(kernel.workspace.items())
    }


def test_parts_are_the_steps_each_with_its_own_record():
    assert [part.entry for part in FUSED.parts] == [
        *("maxima_a", "maxima_b", "exponents"),
        *("split_a", "split_b", "product"),
    ]
    part = FUSED.parts[0]
    assert (part.function, part.parts, part.program, part.several) == ("maxima", (part,), None, False)
    assert part.workspace == FUSED.workspace and part.spills == () and FUSED.several
    twice = replace(FUSED, steps=(*FUSED.steps, FUSED.steps[0]))
    assert [one.entry for one in twice.parts] == [one.entry for one in FUSED.parts]
    with pytest.raises(UserError, match="its entry must be one of its steps"):
        replace(FUSED, entry="something")


def test_a_launch_is_passed_pointers_lengths_and_strides_of_any_rank():
    room = workspace(FUSED)
    given = Operands(FUSED.problem, SHAPE, (Memory(1), Memory(2)), Memory(3), workspace=room)
    split = next(part for part in FUSED.parts if part.entry == "split_b")
    slices = room["slices_b"].data.ptr
    assert given.arguments(split) == (
        *(2, 16, 32, 32, 1),
        *(room["c_b"].data.ptr, 1, 1),
        *(slices, 7, 32, 16, 512, 16, 1),
    )
    other = Memory(77, (1, 48, 16))
    extract = next(part for part in NAIVE.parts if part.entry == "extract_a")
    room = {**workspace(NAIVE), "a": Memory(5, (48, 16)), "slices_a": other}
    passed = replace(given, workspace=room).arguments(extract)
    assert passed[:5] == (5, 48, 16, 16, 1) and passed[-7:] == (77, 1, 48, 16, 768, 16, 1)


def test_the_compiler_is_promised_what_the_workspace_holds():
    product = FUSED.parts[-1]
    assert build_cutile.flags(product)[:5] == (
        *("slices_a:bfloat16/1x1x8", "slices_b:bfloat16/1x1x8", "c_a:int32/1", "c_b:int32/1"),
        "c:float64/1x2",
    )
    flags = build_cutile.flags(FUSED)
    assert "product:num_worker_warps=8" in flags and "maxima_a:maxima" in flags
    # A promise changes the machine code, and so the key under which measurements are filed.
    promised = {**FUSED.workspace, "slices_a": Array("bf16", lambda shape: (7, shape.m, shape.k))}
    weaker = replace(FUSED, workspace=promised)
    hinted = [replace(step, defines={**step.defines, "HINTS": "occupancy=1"}) for step in FUSED.steps]
    keys = {build.build_key(one, "13.4", VERSIONS) for one in (FUSED, weaker, replace(FUSED, steps=tuple(hinted)))}
    assert len(keys) == 3
    assert len({registry.compiled_from(one) for one in (FUSED, weaker, replace(FUSED, steps=tuple(hinted)))}) == 3
    assert (
        len({registry.fingerprint(one) for one in (FUSED, replace(FUSED, steps=FUSED.steps[:3] + FUSED.steps[5:]))})
        == 2
    )


def test_cutile_is_told_the_strides_behind_each_axis():
    """Of an array of three axes each stride is a multiple of what the lengths behind it are multiples of."""
    buffer = FUSED.workspace["slices_a"]
    lengths = buffer.lengths(Shape(33, 34, 72))
    for axis in range(3):
        assert np.prod(lengths[axis + 1 :], dtype=int) % np.prod(buffer.multiples[axis + 1 :], dtype=int) == 0


def test_workspaces_are_counted():
    size = FUSED.workspace_bytes(Shape.cube(1024))
    assert size == 2 * 7 * 1024 * 1024 * 2 + 2 * 1024 * 8 + 2 * 4
    point = sweep.Point(FUSED.id, "cuda13", FUSED.problem, Shape.cube(1024), "warm", None)
    plain = sweep.needed_bytes(FUSED.problem, Shape.cube(1024), 1 << 20)
    sweep.check_memory([point], plain + size, 1 << 20, "GPU A", lambda problem, shape: size)
    with pytest.raises(UserError, match="take that size out"):
        sweep.check_memory([point], plain + size - 1, 1 << 20, "GPU A", lambda problem, shape: size)


def test_fat_binaries_behind_one_another_are_told_apart():
    def one(content: bytes) -> bytes:
        return struct.pack("<IHHQ", gpu.FATBIN_MAGIC, 1, 16, len(content)) + content

    first, second = one(b"first"), one(b"the second")
    assert gpu.fat_binaries(first + second) == [first, second]
    assert gpu.fat_binaries(first) == [first]
    assert gpu.fat_binaries(b"\x7fELF and so on") == [b"\x7fELF and so on"]
    for wrong in (first[:-1], first + b"more", b"nothing of the kind"):
        with pytest.raises(UserError, match="build stage"):
            gpu.fat_binaries(wrong)


def test_every_step_passes_the_static_gate_by_name():
    built = {"registers": 100, "stack_bytes": 0, "spill_store_bytes": 0, "spill_load_bytes": 0, "shared_bytes": 1024}
    record = {**built, "threads": 256, "instructions": {"HGMMA.64x128x16.F32.BF16": 8, "UTMALDG.3D": 2, "DFMA": 64}}
    checks = gates.static_checks(FUSED.parts[-1], "sm_90", record)
    assert checks and all(check["passed"] for check in checks)
    without = {**record, "instructions": {"HGMMA.64x128x16.F32.BF16": 8, "UTMALDG.3D": 2}}
    failed = [check["check"] for check in gates.static_checks(FUSED.parts[-1], "sm_90", without) if not check["passed"]]
    assert failed == [r"DFMA(\..*)?"]


def test_what_a_scheme_errs_by_is_allowed_and_not_hidden():
    reference, scale = np.full((4, 3), 2.0), np.full((4, 3), 2.0)
    result = reference + 1e-6
    refused = comparison.compare(result, reference, scale, 1e-15, dtype="fp64", rows=2)
    allowed = comparison.compare(result, reference, scale, 1e-15, dtype="fp64", own=np.full((4, 3), 2e-6), rows=2)
    by_row = np.array([[2e-6], [2e-6], [0.0], [2e-6]]) * np.ones((4, 3))
    third = comparison.compare(result, reference, scale, 1e-15, dtype="fp64", own=by_row, rows=2)
    assert (refused.passed, allowed.passed, third.passed) == (False, True, False)
    assert "C[2,0]" in third.message
    assert allowed.err_scaled_max == pytest.approx(5e-7 * 2.0**53)
