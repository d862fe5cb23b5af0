"""FP32 products from tensor cores, against cuBLAS's SGEMM.

Two ways. *Slices* (S1 to S4): an element is cut into one or two TF32 or three bf16 numbers, products of slices are
summed in fp32. *Remainders* (S5): lines are scaled and rounded to integers, multiplied modulo 7 or 8 numbers by INT8
tensor cores, as in the family crt. All scale rows of A and columns of B by powers of two, so zero, subnormal and huge
numbers need no case of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gemmrepro.gates.bounds import tensor_core_gamma
from gemmrepro.operations import Shape
from gemmrepro.ozaki import residues
from gemmrepro.registry import (
    Accepts,
    Buffer,
    Call,
    Code,
    Compute,
    Expect,
    Family,
    Kernel,
    Launch,
    Platform,
    Promises,
    Run,
    Step,
    Story,
    TensorMap,
    Timing,
    card,
)

FAMILY = Family(
    name="sgemm",
    title="FP32 from tensor cores",
    article=None,
    summary="C = alpha A B + beta C in FP32, row-major, from slices in TF32 or bf16 or INT8 residues, against SGEMM.",
    figures=("ratio",),
)

CHUNK, DEPTH = 256, 128
"""Elements of a column that one block looks at, and transposes (lines.cuh)."""
BM = 128
"""Rows of a product's tile."""
SLICES_N, REMAINDERS_N = 128, 192
"""Columns of it."""
ALIGNED = 128
"""Lines of residues begin at multiples of so many bytes (remainders.cuh)."""
SLOTS, STAGES = 6, 5
"""Of the rings in shared memory: slots of one slice (products.cuh), stages of 128 residues (crt/listed.cuh)."""
LONGEST_K = {"slices": 2**22, "remainders": 2**16}
"""Blocks along K are counted in a grid's second dimension; unsigned sums of residues must fit 32 bits."""
GATE_SHAPES = (Shape(700, 1030, 600), Shape(140, 200, 4112))
"""Of the remainders: several tiles; a K of 16 times an odd number, whose lines are padded by 112 bytes."""
MARGIN = 1 + 2.0**-10
"""Slack of the remainders' bound: the device's radius is 2^-22 below the reference's."""
SMALL_SUMS = 1 + 2.0**-5
"""What truncation of the sums of small products adds to that of the largest: they are 2^-8 of them and fewer."""
BELOW = 2.0**-100
"""What scaled slices may lose where they are subnormal, relative to the largest elements of two lines."""


@dataclass(frozen=True)
class _Slicing:
    """How an element is cut, and which products of slices are made.

    Attributes:
        dtype: the type of a slice, `stored` as this one, `k` of them in a step of 128 bytes.
        count: slices of an element.
        products: products of slices.
        lost: bound on what is left out, relative to |a||b|: rounding to slices, and products that are not made.
    """

    dtype: str
    stored: str
    k: int
    count: int
    products: int
    lost: float


# Two operands rounded to 11 bits, and the product of both errors.
_ONE = _Slicing("tf32", "fp32", 32, 1, 1, 2 * 2.0**-11 + 2.0**-22)
# What two slices leave of two operands, and the product of the small slices.
_THREE = _Slicing("tf32", "fp32", 32, 2, 3, 2 * 2.0**-23 * (1 + 2.0**-10) + 2.0**-22)
# Products 1 2, 2 1 and 2 2 of slices 0 to 2, which are below 2^-8 and 2^-17.
_SIX = _Slicing("bf16", "bf16", 64, 3, 6, 2 * 2.0**-25 + 2.0**-34)
_NINE = _Slicing("bf16", "bf16", 64, 3, 9, 0.0)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _pitch(k: int, multiple: int) -> int:
    """Elements from one line to the next, of slices (a multiple of 8) or of residues (`ALIGNED`)."""
    return _ceil(k, multiple) * multiple


def _tiles(shape: Shape, bn: int) -> int:
    return _ceil(shape.m, BM) * _ceil(shape.n, bn)


def _grid(grid: Callable[[Shape], tuple[int, int]]) -> Callable[[Shape], Launch]:
    """A launch of blocks of 256 threads."""
    return lambda shape: Launch(grid=(*grid(shape), 1), block=(256, 1, 1))


def _columns(multiple: int) -> Callable[[Shape], Launch]:
    """A launch that transposes B, up to the pitch of its lines."""
    return _grid(lambda s: (_ceil(s.n, 32), _ceil(_pitch(s.k, multiple), DEPTH)))


def _persistent(bn: int, products: int, shared: int) -> Callable[[Shape], Launch]:
    def launch(shape: Shape) -> Launch:
        blocks = min(card.sms(), products * _tiles(shape, bn))
        return Launch(grid=(blocks, 1, 1), block=(384, 1, 1), shared_bytes=shared)

    return launch


_EVERY_CHUNK = _grid(lambda s: (_ceil(s.n, 32), _ceil(s.k, CHUNK)))
_EVERY_ROW = _grid(lambda s: (s.m, 1))
_NEVER = (
    Expect(r"(STL|LDL)(\..*)?", "nothing spills", least=0, most=0),
    Expect(r"I?MMA\..*|HMMA.*|DMMA.*", "no older tensor core instruction", least=0, most=0),
)
_RING = (
    Expect(r"UTMALDG\.2D(\..*)?", "TMA loads the tiles", least=2),
    Expect(r"SYNCS\.PHASECHK\..*TRYWAIT.*", "producer and consumers wait on mbarriers", least=2),
    Expect(r"USETMAXREG\..*", "the producer releases registers to the consumers", least=2),
)


def _sliced_steps(cut: _Slicing) -> tuple[Step, ...]:
    wgmma = rf"HGMMA\.64x128x{256 // (8 * (4 if cut.dtype == 'tf32' else 2))}\.F32\.{cut.dtype.upper()}"
    promoted = Expect(r"FADD(\..*)?", "a step's sum is added to fp32 sums", least=64)
    stored = Expect(
        r"STG\.E\.128(\..*)?" if cut.dtype == "tf32" else r"STG\.E\.64(\..*)?",
        "four neighbours of a slice are stored at once",
        least=cut.count,
    )
    boxes = TensorMap((BM, cut.k))
    return (
        Step("row_slices", _EVERY_ROW, ("a", "k", "exponents_a", "slices_a", "m", "k"), expects=(stored,)),
        Step("column_peaks", _EVERY_CHUNK, ("b", "n", "peaks", "n", "k")),
        Step("column_slices", _columns(8), ("b", "n", "peaks", "exponents_b", "slices_b", "n", "k"), expects=(stored,)),
        Step(
            "multiply",
            _persistent(SLICES_N, 1, SLOTS * 2 * BM * 128 + (2 * SLOTS + 2) * 8),
            (
                *("map:slices_a", "map:slices_b", "exponents_a", "exponents_b"),
                *("c", "n", "m", "n", "k", "alpha", "beta"),
            ),
            tensor_maps={"slices_a": boxes, "slices_b": boxes},
            expects=(
                Expect(wgmma, "wgmma on slices", least=4 * cut.products, most=4 * cut.products),
                *((promoted,) if cut.count > 1 else ()),
                *_RING,
                *_NEVER,
            ),
        ),
    )


def _sliced_workspace(cut: _Slicing) -> dict[str, Buffer]:
    return {
        "exponents_a": Buffer("int32", lambda s: (s.m,)),
        "exponents_b": Buffer("int32", lambda s: (s.n,)),
        "peaks": Buffer("int32", lambda s: (_ceil(s.k, CHUNK), s.n)),
        "slices_a": Buffer(cut.stored, lambda s: (cut.count * s.m, _pitch(s.k, 8))),
        "slices_b": Buffer(cut.stored, lambda s: (cut.count * s.n, _pitch(s.k, 8))),
    }


def _finite(a: Any, b: Any, xp: Any) -> tuple[Any, Any]:
    """|A| and |B| in float64, 0 where they are not finite."""
    wide = (xp.abs(x.astype(xp.float64)) for x in (a, b))
    left, right = (xp.where(xp.isfinite(x), x, 0.0) for x in wide)
    return left, right


def _sliced_error(cut: _Slicing) -> Callable[[Any, Any, Any], Any]:
    """What slices lose, and what truncation in the tensor core does before a step's sum is promoted (S1: all of k)."""

    def error(a: Any, b: Any, xp: Any) -> Any:
        left, right = _finite(a, b, xp)
        together = left.shape[1] if cut.count == 1 else min(left.shape[1], cut.k)
        gamma = cut.lost + SMALL_SUMS * tensor_core_gamma(together, cut.dtype)
        below = BELOW * left.shape[1] * left.max(axis=1, keepdims=True) * right.max(axis=0, keepdims=True)
        return gamma * (left @ right) + below

    return error


def radius(count: int) -> float:
    """What the norm of a row of integers may reach: the root of half the moduli's product, and an int32."""
    return min(residues.radius(count), 2.0**31)


def _remainders_error(count: int) -> Callable[[Any, Any, Any], Any]:
    """4 sqrt(k) ||a_i|| ||b_j|| / R, for any finite A and B (`gemmrepro.ozaki.scheme2` derives it)."""

    def error(a: Any, b: Any, xp: Any) -> Any:
        left, right = _finite(a, b, xp)
        norms = xp.sqrt((left * left).sum(axis=1, keepdims=True)), xp.sqrt((right * right).sum(axis=0, keepdims=True))
        return MARGIN * 4.0 * math.sqrt(left.shape[1]) / radius(count) * norms[0] * norms[1]

    return error


def _record(
    number: int,
    name: str,
    title: str,
    story: Story,
    code: Code,
    accumulator: str,
    steps: tuple[Step, ...],
    workspace: dict[str, Buffer],
    error: Callable[[Any, Any, Any], Any],
    longest_k: int,
    source: str = "",
) -> Kernel:
    """Rung S`number`; the step `multiply` is the one that the record itself describes."""
    main = next(step for step in steps if step.entry == "multiply")
    return Kernel(
        id=f"sgemm.{name}",
        rung=f"S{number}",
        title=title,
        source=source or f"{number}_{name}.cu",
        compute=Compute(dtype_acc=accumulator),
        code=code,
        launch=main.launch,
        call=Call(arguments=main.arguments, tensor_maps=main.tensor_maps),
        platform=Platform(min_capability=(9, 0), targets=("90a",), toolkits=("cuda13",)),
        accepts=Accepts(at_most={"k": longest_k}),
        run=Run(steps=steps, workspace=workspace),
        promises=Promises(
            expects=main.expects,
            error=error,
            error_copies=6,
            spoils=True,
            gate_shapes=(Shape(700, 1030, 600),),
        ),
        timing=Timing(baseline="cublas.sgemm"),
        story=story,
    )


def _story(idea: str, expected: str, gain_over: str = "") -> Story:
    evidence = ("gpu__time_duration.sum", "lts__t_bytes.sum")
    return Story(idea=idea, expected=expected, evidence=evidence, gain_over=gain_over)


def _sliced(number: int, name: str, title: str, cut: _Slicing, story: Story) -> Kernel:
    common = ("element", "mbarrier", "tma", "wgmma", "wgmma_tf32")
    own = ("lines", "products", "slices")
    code = Code(
        "multiply",
        params={"bm": BM, "bn": SLICES_N, "slots": SLOTS, "slices": cut.count},
        headers=(*(f"common/{header}.cuh" for header in common), *(f"sgemm/{header}.cuh" for header in own)),
    )
    return _record(
        *(number, name, title, story, code, "fp32", _sliced_steps(cut), _sliced_workspace(cut)),
        error=_sliced_error(cut),
        longest_k=LONGEST_K["slices"],
    )


def _remainder_steps(count: int) -> tuple[Step, ...]:
    reduced = Expect(r"IDP\.4A\.U8\.U8", "an integer's bytes are weighted four at a time", least=4 * (count - 1))
    return (
        Step("row_residues", _EVERY_ROW, ("a", "k", "exponents_a", "residues_a", "m", "k"), expects=(reduced,)),
        Step("column_squares", _EVERY_CHUNK, ("b", "n", "squares", "n", "k")),
        Step(
            "column_residues",
            _columns(ALIGNED),
            ("b", "n", "squares", "exponents_b", "residues_b", "n", "k"),
            expects=(reduced,),
        ),
        Step(
            "multiply",
            _persistent(REMAINDERS_N, count, STAGES * (BM + REMAINDERS_N) * 128 + (2 * STAGES + 2) * 8),
            ("map:residues_a", "map:residues_b", "residues", "m", "n", "k"),
            tensor_maps={"residues_a": TensorMap((BM, 128)), "residues_b": TensorMap((REMAINDERS_N, 128))},
            expects=(
                Expect(rf"IGMMA\.64x{REMAINDERS_N}x32\.U8\.U8", "wgmma on 8-bit integers", least=8),
                Expect(r"IDP\.4A\.U8\.U8", "sums are reduced modulo p in registers", least=REMAINDERS_N),
                *_RING,
                *_NEVER,
            ),
        ),
        Step(
            "reconstruct",
            _grid(lambda s: (_tiles(s, REMAINDERS_N) * REMAINDERS_N // 32, 1)),
            ("residues", "exponents_a", "exponents_b", "c", "n", "m", "n", "alpha", "beta"),
            expects=(Expect(r"DFMA(\..*)?", "two fp64 multiply-adds per modulus", least=16 * count),),
        ),
    )


def _remainder_workspace(count: int) -> dict[str, Buffer]:
    def written(shape: Shape) -> tuple[int, ...]:
        return (count, _ceil(shape.m, BM) * BM, _ceil(shape.n, REMAINDERS_N) * REMAINDERS_N)

    return {
        "exponents_a": Buffer("int32", lambda s: (s.m,)),
        "exponents_b": Buffer("int32", lambda s: (s.n,)),
        "squares": Buffer("fp64", lambda s: (_ceil(s.k, CHUNK), s.n)),
        "residues_a": Buffer("int8", lambda s: (count * s.m, _pitch(s.k, ALIGNED))),
        "residues_b": Buffer("int8", lambda s: (count * s.n, _pitch(s.k, ALIGNED))),
        "residues": Buffer("int8", written),
    }


def _remainders(count: int, story: Story) -> Kernel:
    common = ("element", "mbarrier", "tma", "wgmma", "wgmma_int8")
    code = Code(
        "multiply",
        params={"moduli": count},
        defines={"NUMBERS": str(count)},
        headers=(
            *(f"common/{header}.cuh" for header in common),
            *(f"crt/{header}.cuh" for header in ("instructions", "listed")),
            *(f"sgemm/{header}.cuh" for header in ("lines", "remainders")),
        ),
    )
    return _record(
        *(
            5,
            "remainders" if count == 8 else f"remainders_{count}",
            f"Remainders, {count} moduli",
            story,
            code,
            "int32",
        ),
        *(_remainder_steps(count), _remainder_workspace(count)),
        error=_remainders_error(count),
        longest_k=LONGEST_K["remainders"],
        source="5_remainders.cu",
    ).with_promises(gate_shapes=GATE_SHAPES)


KERNELS = (
    _sliced(
        *(1, "tf32", "One TF32 product", _ONE),
        _story(
            "Lines are scaled, rounded to TF32 and laid out K-major; one product.",
            "6.6 times SGEMM at 8192, with errors of some 2^-10 |A||B| / sqrt(k).",
        ),
    ),
    _sliced(
        *(2, "tf32_x3", "Three TF32 products", _THREE),
        _story(
            "A second slice holds what rounding left; a step's sum is promoted into fp32.",
            "2.3 times SGEMM at 8192, with errors no larger.",
        ),
    ),
    _sliced(
        *(3, "bf16_x6", "Six bf16 products", _SIX),
        _story(
            "Three bf16 slices are exactly an fp32; six products at twice the rate.",
            "2.3 times SGEMM at 8192, with smaller errors than three TF32 products.",
        ),
    ),
    _sliced(
        *(4, "bf16_x9", "Nine bf16 products", _NINE),
        _story(
            "All products of slices: exact before they are summed.",
            "1.6 times SGEMM at 8192, with the errors of six products.",
        ),
    ),
    _remainders(
        8,
        _story(
            "Integers modulo 8 numbers on INT8 tensor cores, put together by the Chinese remainder theorem.",
            "2.9 times SGEMM at 8192; errors by norms, below SGEMM's up to phi = 2.",
        ),
    ),
    _remainders(
        7,
        _story(
            "One modulus less: an eighth of the products, four bits of an operand.",
            "3.3 times SGEMM at 8192; errors below SGEMM's up to phi = 1.",
            gain_over="sgemm.remainders",
        ),
    ),
)
"""Workspace in bytes beside A, B and C: S1 4 (m k + n k), S2 8, S3 and S4 6, S5 7 or 8 (m k + n k + m n)."""
