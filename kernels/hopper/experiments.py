"""Which layouts of its operands in shared memory wgmma reads right.

`layouts` writes tiles of A and B in four layouts, has the instruction of the article's sketch read them through every
descriptor of a list, and counts wrong elements of C. Operands are small integers, so that C is exact in fp16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from gemmrepro.experiments import Column, Experiment

KERNEL = "hopper.layouts"
LAYOUTS = ("128-byte swizzle", "row-major", "column-major", "8 x 8 blocks")
"""By the number that the kernel takes for each."""
MODES = {"none": 0, "128 bytes": 1, "64 bytes": 2, "32 bytes": 3}
"""Swizzles that a descriptor can name (bits 62-63)."""
LARGEST = 2
"""Operands are integers from -LARGEST to LARGEST."""


def operands(size: int, seed: int, xp: Any) -> tuple[Any, Any, Any]:
    """A stored [k, m], B stored [k, n] and the exact C[m, n], fp16, of cubes of `size`; `xp` is NumPy or CuPy."""
    rng = xp.random.default_rng(seed)
    a, b = (rng.integers(-LARGEST, LARGEST + 1, (size, size)).astype(xp.float32) for _ in "ab")
    return a.astype(xp.float16), b.astype(xp.float16), (a.T @ b).astype(xp.float16)


def _measure(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    import cupy

    from gemmrepro.operands import Operands
    from gemmrepro.operations import Shape

    size, distances = context.parameters["size"], context.parameters["distances"]
    a, b, exact = operands(size, context.parameters["seed"], cupy)
    norm = float(cupy.linalg.norm(exact.astype(cupy.float64)))
    for subject in context.subjects:
        kernel, loaded = context.kernel(subject), context.loaded(subject)
        c = cupy.empty((size, size), cupy.float16)
        launched = Operands(kernel.problem, Shape.cube(size), (a, b), c)
        for mode, bits in MODES.items():
            tried = []
            for leading, stride in product(distances, distances):
                c[...] = cupy.nan  # shows outputs that are not written
                described = (LAYOUTS.index(point["layout"]), bits, leading, stride)
                plain = tuple(name for name in kernel.call.arguments if isinstance(name, str))
                loaded.bind(launched, kernel.with_call(arguments=(*plain, *described)))()
                wrong = float((c != exact).mean())
                error = float(cupy.linalg.norm((c - exact).astype(cupy.float64))) / norm
                tried.append((wrong, error, leading, stride))
            wrong, error, leading, stride = min(tried)
            yield context.row(
                subject,
                layout=point["layout"],
                mode=mode,
                tried=len(tried),
                right=sum(not found[0] for found in tried),
                leading=leading,
                stride=stride,
                wrong=wrong,
                error=error,
            )


EXPERIMENTS = (
    Experiment(
        name="layouts",
        title="Layouts that wgmma reads",
        question="Does wgmma need a swizzled layout in shared memory, and what comes of a plain one?",
        kernels=(KERNEL,),
        parameters={
            "size": 128,
            "seed": 1,
            "layouts": list(LAYOUTS),
            "distances": [16, 32, 64, 128, 256, 512, 1024, 2048],
        },
        columns=(
            Column("layout", "how the tiles of A and B lie in shared memory", kind="text"),
            Column("mode", "the swizzle that the descriptors name", kind="text"),
            Column("tried", "pairs of distances (leading, stride) that were tried", kind="integer"),
            Column("right", "pairs with which every element of C is exact", kind="integer"),
            Column("leading", "the best pair's leading distance", "B", kind="integer"),
            Column("stride", "the best pair's stride", "B", kind="integer"),
            Column("wrong", "share of C's elements that are wrong with the best pair"),
            Column("error", "Frobenius norm of C - C* over that of C* with the best pair"),
        ),
        points=lambda parameters: [{"layout": layout} for layout in parameters["layouts"]],
        measure=_measure,
    ),
)
