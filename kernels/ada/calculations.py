"""What the machine code of the article's kernels says without any GPU: mma, barriers, and numbers in opcodes."""

from __future__ import annotations

import math
import re

from gemmrepro.errors import UserError
from gemmrepro.judge.metrics.calculated import Calculated, Inputs
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel

PRODUCTS = 16 * 8 * 16
"""Multiply-adds of an mma.sync m16n8k16."""

TENSOR_CORES = 4
"""Of an SM, one for each of its schedulers."""


def _count(given: Inputs, index: int, pattern: str) -> int:
    """Instructions in the code of the kernel of this index whose opcode matches `pattern` as a whole."""
    opcodes = given.codes[index].instructions
    return sum(count for opcode, count in opcodes.items() if re.fullmatch(pattern, opcode))


def _mma_of_a_step(kernel: Kernel) -> int:
    """mma that a warp makes in a K step."""
    p = kernel.params
    return p["mma_m"] * p["mma_n"] * p["bk"] // 16


def _steps_in_code(given: Inputs, index: int, pattern: str) -> int:
    """K steps that the compiler's loop holds: its mma over those of a step.

    Raises:
        UserError: it is no whole number, so that code was left out or made twice.
    """
    kernel, counted = given.kernels[index], _count(given, index, pattern)
    steps, rest = divmod(counted, _mma_of_a_step(kernel))
    if rest or not steps:
        raise UserError(f"{kernel.id} has {counted} mma for {given.arch}, no multiple of {_mma_of_a_step(kernel)}.")
    return steps


def _executed(kernel: Kernel, n: int) -> int:
    """mma that a product of n x n matrices executes."""
    launch, steps = kernel.launch(Shape.cube(n)), n // kernel.params["bk"]
    warps = math.prod(launch.grid) * math.prod(launch.block) // 32
    return warps * steps * _mma_of_a_step(kernel)


def share_of_floor(given: Inputs) -> Calculated:
    """The time that the tensor cores of the article's chip need for the mma in the code, over the published time.

    `options.microseconds`: the published time. An mma takes its multiply-adds over the chip's rate: 32 cycles on an RTX
    4090, whose data sheet has 165.2 TFLOP/s at 2520 MHz.
    """
    (kernel,) = given.kernels
    _steps_in_code(given, 0, r"HMMA\.16816\.F32")
    clock, cores = given.rate("clock") * 1e6, given.rate("sms") * TENSOR_CORES
    cycles = 2 * PRODUCTS * cores * clock / (given.rate("fp16_acc32") * 1e12)
    executed = _executed(kernel, given.n or 0)
    floor = 1e6 * executed * cycles / cores / clock
    working = f"{executed} mma of {cycles:.1f} cycles on {cores:g} tensor cores at {clock / 1e6:g} MHz: {floor:.0f} µs"
    return Calculated(floor / float(given.options["microseconds"]), working)


def fewer_barriers(given: Inputs) -> Calculated:
    """How many times as many mma the first kernel makes between two barriers as the second."""
    between = []
    for index, kernel in enumerate(given.kernels):
        steps = _steps_in_code(given, index, r"HMMA\.16816\.F32")
        barriers = _count(given, index, r"BAR\.SYNC(\..*)?") / steps
        between.append(math.prod(kernel.launch(Shape.cube(4096)).block) // 32 * _mma_of_a_step(kernel) / barriers)
    return Calculated(between[0] / between[1], f"{between[0]:g} and {between[1]:g} mma of a block")


def number_in_opcode(given: Inputs) -> Calculated:
    """A number that an opcode of the code holds: the first group of `options.pattern`, the same wherever it matches."""
    (code,) = given.codes
    found = {
        match[1]: opcode for opcode in code.instructions if (match := re.fullmatch(given.options["pattern"], opcode))
    }
    if len(found) != 1:
        raise UserError(f"{given.kernels[0].id} has {len(found)} different numbers in opcodes, not one.")
    ((number, opcode),) = found.items()
    return Calculated(float(number), opcode)


def tiles_of_a_warp(given: Inputs) -> Calculated:
    """mma tiles of a warp each way: the root of its mma in 16 of K."""
    (kernel,) = given.kernels
    _steps_in_code(given, 0, r"HMMA\.16816\.F32")
    tiles = _mma_of_a_step(kernel) * 16 // kernel.params["bk"]
    return Calculated(math.sqrt(tiles), f"{tiles} mma for each 16 of K")


def fetched_for_used(given: Inputs) -> Calculated:
    """Bytes that loads fetch from global memory for each that a warp's tiles use, 16 x 16 of A and 16 x 8 of B."""
    sectors = given.counter("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "sector")
    used = (given.n or 0) ** 3 / 8
    return Calculated(32 * sectors / used, f"{sectors:,.0f} sectors of 32 bytes")


def conflicts(given: Inputs) -> Calculated:
    """Bank conflicts of loads from shared memory for each access of it."""
    count = given.counter("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum")
    accesses = given.counter("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    return Calculated(count / accesses, f"{count:,.0f} conflicts, {accesses:,.0f} accesses")
