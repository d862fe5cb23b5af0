"""Launches match the source and the GPU: block shapes, launch bounds, and a grid that covers the output once."""

from __future__ import annotations

import math

from gemmrepro.check.cuda_source import constants, launch_bounds, text_of, value_of
from gemmrepro.check.findings import Findings
from gemmrepro.operations import Shape, shape_of
from gemmrepro.registry import LARGE_SHAPE, Kernel, Launch, Step, card

GRID = (2**31 - 1, 65535, 65535)
THREADS = 1024
SIZES = (512, 4096)
"""Configured sizes whose launches are checked."""

PERSISTENT = 2 * card.REFERENCE.sms
"""Maximum grid of a persistent kernel: two blocks on each SM."""


def check(kernel: Kernel, findings: Findings) -> None:
    for size in SIZES:
        shape = shape_of(kernel.compute.op, size)
        if kernel.takes(shape):
            for name, launch in _launched(kernel, shape):
                _check_limits(kernel, f"{name} on {shape}", launch, findings)
    if kernel.code.compiler == "nvcc" and kernel.source_path.is_file():
        _check_bounds(kernel, findings)
    if kernel.problem.operation.matrix_product and not kernel.run.steps:
        _check_cover(kernel, findings)


def _launched(kernel: Kernel, shape: Shape) -> list[tuple[str, Launch]]:
    """The entry points of a run on `shape`, and their launches."""
    part = kernel.at(shape)
    steps = [step for step in part.steps_at(shape) if isinstance(step, Step)]
    return [(step.entry, step.launch(shape)) for step in steps] or [(part.code.entry, part.launch(shape))]


def _check_limits(kernel: Kernel, what: str, launch: Launch, findings: Findings) -> None:
    sizes = all(1 <= blocks <= most for blocks, most in zip(launch.grid, GRID, strict=True))
    findings.require(sizes, kernel.id, f"the grid {launch.grid} of {what} is beyond {GRID}, or empty.")
    threads = math.prod(launch.block)
    findings.require(
        1 <= threads <= THREADS, kernel.id, f"{threads} threads per block ({what}); 1 to {THREADS} can be."
    )
    cluster = launch.cluster or (1, 1, 1)
    whole = all(blocks % size == 0 for blocks, size in zip(launch.grid, cluster, strict=True))
    findings.require(whole, kernel.id, f"the grid {launch.grid} of {what} is no multiple of its cluster {cluster}.")


def _check_bounds(kernel: Kernel, findings: Findings) -> None:
    """The launch bounds of every entry point equal its block size, the largest if that depends on the shape."""
    text = text_of(kernel)
    for code in kernel.codes:
        bound = launch_bounds(text, code.code.entry)
        findings.require(
            bound is not None, kernel.id, f"{code.code.entry} has no __launch_bounds__; write its threads per block."
        )
        threads = value_of(bound, constants(text, code.code.defines)) if bound else None
        blocks = {math.prod(block) for block in code.blocks}
        if threads is not None:
            if max(blocks) < threads and kernel.problem.operation.matrix_product and kernel.takes(LARGE_SHAPE):
                blocks.add(math.prod(code.launch(LARGE_SHAPE).block))
            findings.require(
                max(blocks) == threads,
                kernel.id,
                f"{code.code.entry} is compiled for {threads} threads per block and launched with {sorted(blocks)}.",
            )


def _check_cover(kernel: Kernel, findings: Findings) -> None:
    """The grid has one block per tile of C; a persistent kernel launches one block (or cluster) for a single tile."""
    tiny = Shape(1, 8, 8)
    if kernel.takes(LARGE_SHAPE) and kernel.takes(tiny) and math.prod(kernel.launch(LARGE_SHAPE).grid) <= PERSISTENT:
        small = kernel.launch(tiny)
        findings.require(
            math.prod(small.grid) == math.prod(small.cluster or (1,)),
            kernel.id,
            f"its blocks stay on the GPU, and a single tile takes {math.prod(small.grid)} of them instead of one.",
        )
        return
    step = kernel.accepts.multiple_of
    shape = Shape(3 * step.get("m", 43), 5 * step.get("n", 29), step.get("k", 7))
    part = kernel.at(shape)
    rows, columns = (part.code.params.get(name, part.code.params.get("tile")) for name in ("bm", "bn"))
    if not rows or not columns:
        findings.require(False, kernel.id, "Code.params lacks bm and bn, the tile of C that a block computes.")
        return
    tiles = -(-shape.m // rows) * -(-shape.n // columns)
    grid = kernel.launch(shape).grid
    findings.require(
        math.prod(grid) == tiles,
        kernel.id,
        f"C of {shape} has {tiles} tiles of {rows} x {columns}; the launch has a grid of {grid}.",
    )
