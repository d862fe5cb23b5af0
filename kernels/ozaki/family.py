"""FP64 matrix products from low-precision tensor cores, after the Ozaki scheme, in cuTile Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from gemmrepro.core.dtypes import DTYPES
from gemmrepro.gates.bounds import tensor_core_gamma
from gemmrepro.operations import Shape
from gemmrepro.ozaki import bounds, pairs, programs
from gemmrepro.ozaki.bounds import UNIT
from gemmrepro.ozaki.exactness import named
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
    Timing,
    card,
    parameters,
)

FAMILY = Family(
    name="ozaki",
    title="FP64 from low-precision tensor cores",
    article="ozaki",
    summary="C = A B in FP64: operands as sums of low-precision slices, pairs of slices multiplied by tensor cores.",
    figures=("ratio",),
)

ONE_THREAD = (1, 1, 1)
"""The block of every launch: the compiler chooses the number of threads."""
TARGETS = ("90", "100", "120")
"""Architectures with TMA."""

BLOCKS = 1024
"""Blocks that search for the maximum."""
TILE = (16, 64)
"""The tile of an operand in which a block searches for the maximum."""
PIECE_A, PIECE_B = (32, 64), (64, 32)
"""The tiles of A and of B that a block splits."""

ADDED = (16, 64)
"""The tile of C to which a block adds the sums of a diagonal."""

ROOM = {"fp16": 32, "bf16": 32, "fp8_e4m3": 48}
"""Slices that the naive program has memory for: of beta + 1 bits each, some 200 bits in all."""
ACCUMULATOR = {"fp16": 24, "bf16": 24, "fp8_e4m3": 14}
"""Bits of a sum inside the tensor core; for 8-bit floats those of Hopper, which has the fewest."""

_TENSOR = {
    "fp16": (r"HGMMA\.64x\d+x16\.F32", r"UTCHMMA(\..*)?", r"HMMA\.16816\.F32"),
    "bf16": (r"HGMMA\.64x\d+x16\.F32\.BF16", r"UTCHMMA(\..*)?", r"HMMA\.16816\.F32\.BF16"),
    "fp8_e4m3": (r"QGMMA\.64x\d+x32\.F32\.E4M3\.E4M3", r"UTCQMMA(\..*)?", r"QMMA\.16832\.F32\.E4M3\.E4M3"),
}


def _over(tile: tuple[int, int], operand: str) -> Callable[[Shape], Launch]:
    """One block per tile of A[m,k], of B[k,n] or of C[m,n]."""

    def launch(shape: Shape) -> Launch:
        rows, columns = {"a": (shape.m, shape.k), "b": (shape.k, shape.n), "c": (shape.m, shape.n)}[operand]
        return Launch(grid=(-(-rows // tile[0]) * -(-columns // tile[1]), 1, 1), block=ONE_THREAD)

    return launch


def _persistent(tile: tuple[int, int], count: int) -> Callable[[Shape], Launch]:
    """Persistent blocks that walk the tiles of `count` products of C's shape."""

    def launch(shape: Shape) -> Launch:
        tiles = count * -(-shape.m // tile[0]) * -(-shape.n // tile[1])
        return Launch(grid=(min(tiles, card.sms()), 1, 1), block=ONE_THREAD)

    return launch


def _blocks(count: int) -> Callable[[Shape], Launch]:
    return lambda shape: Launch(grid=(count, 1, 1), block=ONE_THREAD)


def _step(
    entry: str,
    launch: Callable[[Shape], Launch],
    arguments: str,
    params: Mapping[str, int],
    function: str = "",
    hints: str = "",
    integers: tuple[int, ...] = (),
    **options: Any,
) -> Step:
    return Step(
        entry=entry,
        function=function,
        launch=launch,
        arguments=(*(f"array:{name}" for name in arguments.split()), *integers),
        params=params,
        defines=parameters(params) | ({"HINTS": hints} if hints else {}),
        **options,
    )


def _maxima(operand: str, partial: str) -> Step:
    rows, columns = TILE
    return _step(
        f"maxima_{operand}",
        _blocks(BLOCKS),
        f"{operand} {partial}",
        {"rows": rows, "columns": columns, "blocks": BLOCKS},
        function="maxima",
        expects=(Expect(r"UTMALDG\.2D(\..*)?", "TMA loads the operand", archs=("90", "100")),),
    )


def _multiplies(dtype: str, pieces: int = 0) -> tuple[Expect, ...]:
    """What a product's machine code must hold; `pieces`: FMAs that add its sums to fp64 sums, if any."""
    hopper, blackwell, sync = _TENSOR[dtype]
    scaled = Expect(r"DFMA(\..*)?", "one FMA scales a pair's sum and adds it to the fp64 sum", pieces)
    return (
        Expect(hopper, "wgmma multiplies the slices", 4, archs=("90",)),
        Expect(blackwell, "tcgen05.mma multiplies the slices", 1, archs=("100",)),
        Expect(sync, "mma.sync multiplies the slices", 16, archs=("120",)),
        Expect(r"UTMALDG\.3D(\..*)?", "TMA loads tiles of slices", 2),
        *((scaled,) if pieces else ()),
    )


def _extracts(pieces: int) -> tuple[Expect, ...]:
    return (
        Expect(
            r"DADD(\..*)?",
            "(x + sigma) - sigma and the remainder: the compiler folds nothing away",
            pieces,
            archs=("90", "100"),
        ),
        Expect(r"STG\.E\.128(\..*)?", "slices are stored 16 bytes at a time", 2),
    )


def _alike(shape: Shape, lengths: str, slices: int) -> tuple[int, ...]:
    return (slices, *(getattr(shape, axis) for axis in lengths))


def _peaks(a: Any, b: Any, vector: bool, xp: Any) -> Any:
    """max|A| max|B|, or of each row and column; Inf and NaN count as 0."""
    sizes = [xp.where(xp.isfinite(x), xp.abs(x), 0.0) for x in (a, b)]
    if vector:
        return sizes[0].max(axis=1, keepdims=True) * sizes[1].max(axis=0, keepdims=True)
    return sizes[0].max() * sizes[1].max()


def _kernel(
    name: str,
    rung: str,
    title: str,
    source: str,
    dtype: str,
    run: Run,
    error: Callable[[Any, Any, Any], Any],
    story: Story,
    even: int = 2,
    timed_to: int = 0,
    d: int | None = None,
) -> Kernel:
    steps = () if callable(run.steps) else run.steps
    main = next(step for step in steps if isinstance(step, Step) and step.entry == "product")
    return Kernel(
        id=f"ozaki.{name}",
        rung=rung,
        title=title,
        source=source,
        compute=Compute(dtype_in="fp64", dtype_acc="fp64", dtype_out="fp64", d=d),
        code=Code("product", compiler="cutile", params=main.params, defines=main.defines),
        launch=main.launch,
        call=Call(arguments=("array:a", "array:b", "array:c")),
        platform=Platform(targets=TARGETS, toolkits=("cuda13",)),
        accepts=Accepts(multiple_of={"n": even, "k": 16 // DTYPES[dtype]}),
        run=run,
        promises=Promises(expects=main.expects, error=error, error_copies=2, spoils=True),
        timing=Timing("cublas.gemm", timed_to=timed_to),
        story=story,
    )


def _naive_error(room: int) -> Callable[[Any, Any, Any], Any]:
    """The bound on the error of the naive program, with at most `room` slices per operand."""

    def error(a: Any, b: Any, xp: Any) -> Any:
        k = a.shape[1]
        # All bits are taken and every inner product is exact: what is left is the rounding of the fp64 sum.
        return 4 * room**2 * UNIT * k * _peaks(a, b, False, xp)

    return error


def _extract(operand: str, piece: tuple[int, int], function: str) -> Step:
    """Extract the next slice of one operand, and leave the remainder."""
    return _step(
        f"extract_{operand}",
        _over(piece, operand),
        f"{operand} sigma inverse left_{operand} slices_{operand}",
        {"rows": piece[0], "columns": piece[1]},
        function=function,
        expects=_extracts(3 * piece[0] * piece[1] // 128),
    )


def _naive_workspace(dtype: str) -> dict[str, Buffer]:
    """Maxima, the constants of a split, two remainders per operand, and up to `ROOM` slices with their scales."""
    room, chunk = ROOM[dtype], 16 // DTYPES[dtype]
    left_a = Buffer("fp64", lambda shape: (shape.m, shape.k), (1, chunk))
    left_b = Buffer("fp64", lambda shape: (shape.k, shape.n), (chunk, 2))
    return {
        "partial": Buffer("fp64", lambda shape: (BLOCKS,)),
        "sigma": Buffer("fp64", lambda shape: (1,)),
        "inverse": Buffer("fp64", lambda shape: (1,)),
        "left_a": left_a,
        "spare_a": left_a,
        "left_b": left_b,
        "spare_b": left_b,
        "slices_a": Buffer(dtype, lambda shape: _alike(shape, "mk", room), (1, 1, chunk)),
        "slices_b": Buffer(dtype, lambda shape: _alike(shape, "nk", room), (1, 1, chunk)),
        "scale_a": Buffer("fp64", lambda shape: (room,)),
        "scale_b": Buffer("fp64", lambda shape: (room,)),
    }


def _naive(dtype: str, tile: tuple[int, int, int], spills: tuple[str, ...] = (), timed_to: int = 0) -> Kernel:
    """The host splits slice by slice; all pairs in one launch."""
    bm, bn, bk = tile
    product = _step(
        "product",
        _over((bm, bn), "c"),
        "slices_a slices_b scale_a scale_b c",
        {"bm": bm, "bn": bn, "bk": bk, "group": 8, "fast": 0},
        hints="num_worker_warps=8",
        expects=_multiplies(dtype, bm * bn // 256),
        spills=spills,
    )
    splits = (
        _maxima("a", "partial"),
        _extract("a", PIECE_A, "extract"),
        _maxima("b", "partial"),
        _extract("b", PIECE_B, "extract_turned"),
    )
    return _kernel(
        f"naive_{dtype}",
        "O1",
        f"Naive, {dtype}",
        "0_naive.py",
        dtype,
        Run(steps=(*splits, product), workspace=_naive_workspace(dtype), program=programs.naive(dtype)),
        error=_naive_error(ROOM[dtype]),
        story=Story(
            article="ozaki",
            idea="The host extracts slice after slice until nothing is left; one launch multiplies all pairs.",
            gain_over="" if dtype == "fp16" else "ozaki.naive_fp16",
        ),
        timed_to=timed_to,
    )


@dataclass(frozen=True)
class _Fused:
    """A product that splits each operand in one launch, and multiplies all pairs of slices with p + q < d.

    Attributes:
        dtype, d, tile: type of the slices; cut of the pairs; tile of C and depth of a K iteration (bm, bn, bk).
        digits_of: the type whose slices' digits are taken, where that is not `dtype`.
        vector: whether there is one exponent per row of A and column of B instead of one per matrix.
        by_diagonal: whether each p + q has its own launch, whose sums another launch adds to C.
        hints: for the compiler of the product.
        spills, split_spills: targets on which the product, and the split of B, spill registers.
    """

    dtype: str
    d: int
    tile: tuple[int, int, int]
    digits_of: str = ""
    vector: bool = False
    by_diagonal: bool = False
    hints: str = "num_worker_warps=8"
    spills: tuple[str, ...] = ()
    split_spills: tuple[str, ...] = ()

    @property
    def bits(self) -> int:
        """Significant bits of a slice's elements."""
        return named(programs.FORMATS[self.digits_of or self.dtype]).significant

    @property
    def scheme(self) -> programs.Fused:
        """How many slices there are, and how many bits apart."""
        return programs.fused(1, named(programs.FORMATS[self.digits_of or self.dtype]).name)

    @property
    def chosen(self) -> list[tuple[int, int]]:
        """The pairs that are multiplied, diagonal by diagonal."""
        count = self.scheme.count
        return sorted(pairs.select(count, count, self.d), key=lambda pair: (sum(pair), pair))

    def kernel(self, rung: str, title: str, idea: str, gain_over: str, name: str = "") -> Kernel:
        products = tuple(self._diagonals()) if self.by_diagonal else (self._all_pairs(),)
        steps = (*self.scales(), self._split("a", PIECE_A), self._split("b", PIECE_B), *products)
        return _kernel(
            name or f"fused_{self.dtype.removeprefix('fp8_')}_d{self.d}",
            rung,
            title,
            "1_fused.py",
            self.dtype,
            Run(steps=steps, workspace=self.workspace()),
            d=self.d,
            error=self.error(),
            even=4 if self.by_diagonal else 2,
            story=Story(article="ozaki", idea=idea, gain_over=gain_over),
        )

    def error(self) -> Callable[[Any, Any, Any], Any]:
        """The bound on the error, guaranteed for any A and B."""
        dtype, d, vector, fast, bits, bk = self.dtype, self.d, self.vector, False, self.bits, self.tile[2]
        count, step = self.scheme.count, self.scheme.step

        def error(a: Any, b: Any, xp: Any) -> Any:
            k = a.shape[1]
            lost = tensor_core_gamma(k, dtype)
            emptied = bk if dtype == "fp8_e4m3" and not fast else None
            share = bounds.guaranteed(k, bits, step, count, d, ACCUMULATOR[dtype], emptied, lost)
            return 4 * share * k * _peaks(a, b, vector, xp)

        return error

    def scales(self) -> tuple[Step, ...]:
        """Exponents of A and B, from the maxima of their rows and columns or of the whole matrices."""
        if not self.vector:
            return (
                _maxima("a", "partial_a"),
                _maxima("b", "partial_b"),
                _step("exponents", _blocks(1), "partial_a partial_b c_a c_b", {"blocks": BLOCKS}),
            )
        rows, columns = TILE
        return (
            _step(
                "row_exponents",
                lambda shape: Launch((-(-shape.m // rows), 1, 1), ONE_THREAD),
                "a c_a",
                {"rows": rows, "columns": columns},
            ),
            _step(
                "column_exponents",
                lambda shape: Launch((-(-shape.n // 32), 1, 1), ONE_THREAD),
                "b c_b",
                {"rows": 64, "columns": 32},
            ),
        )

    def _split(self, operand: str, piece: tuple[int, int]) -> Step:
        """All slices of one operand: 3 additions per element and slice, shared by 128 threads."""
        rows, columns = piece
        count, step = self.scheme.count, self.scheme.step
        digits = {"s": count, "step": step, "significant": self.bits, "vector": int(self.vector)}
        return _step(
            f"split_{operand}",
            _over(piece, operand),
            f"{operand} c_{operand} slices_{operand}",
            {"rows": rows, "columns": columns, **digits},
            expects=_extracts((3 * count - 1) * rows * columns // 128),
            spills=self.split_spills if operand == "b" else (),
        )

    def _all_pairs(self) -> Step:
        """One launch multiplies all pairs and adds their sums in fp64."""
        bm, bn, bk = self.tile
        tile = {"bm": bm, "bn": bn, "bk": bk, "group": 8}
        digits = {"s": self.scheme.count, "d": self.d, "step": self.scheme.step, "vector": int(self.vector), "fast": 0}
        return _step(
            "product",
            _over((bm, bn), "c"),
            "slices_a slices_b c_a c_b c",
            {**tile, **digits},
            hints=self.hints,
            expects=_multiplies(self.dtype, bm * bn // 256 // (2 if "num_ctas=2" in self.hints else 1)),
            spills=self.spills,
        )

    def _diagonals(self) -> Iterator[Step]:
        """Two launches per diagonal p + q: one multiplies its pairs, one adds them to C."""
        bm, bn, bk = self.tile
        rows, columns = ADDED
        stored = Expect(r"UTMASTG\.2D(\..*)?", "TMA stores their sums")
        added = Expect(r"F2F\.F64\.F32(\..*)?", "sums are added in fp64", rows * columns // 256)
        last = sum(self.chosen[-1])
        for diagonal, group in groupby(self.chosen, key=sum):
            (first, _), *others = group
            count = 1 + len(others)
            yield _step(
                "product",
                _persistent((bm, bn), count),
                "slices_a slices_b sums",
                {"bm": bm, "bn": bn, "bk": bk, "group": 8},
                hints=self.hints,
                function="pairs",
                integers=(diagonal, first, count),
                expects=(*_multiplies(self.dtype), stored),
                spills=self.spills,
            )
            yield _step(
                "add",
                _over(ADDED, "c"),
                "sums c_a c_b c",
                {"bm": bm, "rows": rows, "columns": columns, "step": self.scheme.step, "vector": int(self.vector)},
                integers=(diagonal, count, int(diagonal == last)),
                expects=(added,),
            )

    def workspace(self) -> dict[str, Buffer]:
        """Maxima, exponents, slices and, diagonal by diagonal, sums of pairs in whole tiles."""
        count, whole, bm = self.scheme.count, 16 // DTYPES[self.dtype], self.tile[0]
        most = max(Counter(map(sum, self.chosen)).values())
        vector = self.vector
        buffers = {
            "c_a": Buffer("int32", lambda shape: (shape.m if vector else 1,)),
            "c_b": Buffer("int32", lambda shape: (shape.n if vector else 1,)),
            "slices_a": Buffer(self.dtype, lambda shape: _alike(shape, "mk", count), (1, 1, whole)),
            "slices_b": Buffer(self.dtype, lambda shape: _alike(shape, "nk", count), (1, 1, whole)),
        }
        if not vector:
            partial = Buffer("fp64", lambda shape: (BLOCKS,))
            buffers = {"partial_a": partial, "partial_b": partial, **buffers}
        if self.by_diagonal:
            buffers["sums"] = Buffer("fp32", lambda shape: (most * -(-shape.m // bm) * bm, shape.n), (1, 4))
        return buffers


PARTS = 7
"""Blocks that share a tile of C where the loop over the slices of A is distributed: one a slice."""


def _untimed(kernel: Kernel) -> Kernel:
    """The kernel for an experiment alone."""
    return replace(kernel, timing=Timing(baseline=None, timed=False))


def _tile(tile: tuple[int, int, int], hints: str = "", spills: tuple[str, ...] = ()) -> Kernel:
    """The fused product with d = 9 in another tile, for an experiment."""
    name = "x".join(map(str, tile))
    fused = _Fused("bf16", 9, tile, hints=hints, spills=spills)
    idea = f"The same product in tiles of {tile[0]} x {tile[1]}, K in steps of {tile[2]}."
    kernel = fused.kernel("O6", f"Tiles of {name.replace('x', ' x ')}", idea, "ozaki.fused_bf16_d9", f"tile_{name}")
    return _untimed(kernel)


def _printed(parts: int, name: str, title: str, idea: str, gain_over: str) -> Kernel:
    """The article's product and split with its hints, `parts` blocks to a tile of C, for an experiment."""
    tile = (128, 128, 128)
    fused = _Fused("bf16", 9, tile)
    bm, bn, bk = tile
    count, step, bits = fused.scheme.count, fused.scheme.step, fused.bits

    def split(operand: str, piece: tuple[int, int]) -> Step:
        rows, columns = piece
        constants = {"rows": rows, "columns": columns, "s": count, "step": step, "significant": bits}
        arrays = f"{operand} c_{operand} slices_{operand}"
        expects = _extracts((3 * count - 1) * rows * columns // 128)
        return _step(f"split_{operand}", _over(piece, operand), arrays, constants, expects=expects, spills=("120",))

    def tiles(shape: Shape) -> Launch:
        return Launch((parts * -(-shape.m // bm) * -(-shape.n // bn), 1, 1), ONE_THREAD)

    product = _step(
        "product",
        tiles,
        f"slices_a slices_b c_a c_b {'sums' if parts > 1 else 'c'}",
        {"bm": bm, "bn": bn, "bk": bk, "group": 8, "s": count, "d": 9, "step": step, "parts": parts},
        hints="num_worker_warps=8",
        expects=_multiplies("bf16", bm * bn // 256),
        spills=("120",),
    )
    rows, columns = ADDED
    constants = {"bm": bm, "rows": rows, "columns": columns, "parts": parts}
    added = Expect(r"DADD(\..*)?", "sums are added in fp64", rows * columns // 256)
    gather = _step("gather", _over(ADDED, "c"), "sums c", constants, expects=(added,))
    buffers = fused.workspace()
    if parts > 1:
        buffers["sums"] = Buffer("fp64", lambda shape: (parts * -(-shape.m // bm) * bm, shape.n), (1, 2))
    steps = (*fused.scales(), split("a", PIECE_A), split("b", PIECE_B), product, *((gather,) if parts > 1 else ()))
    run = Run(steps=steps, workspace=buffers)
    story = Story(article="ozaki", idea=idea, gain_over=gain_over)
    kernel = _kernel(name, "O6", title, "1.1_printed.py", "bf16", run, d=9, error=fused.error(), story=story)
    return _untimed(kernel)


def _pair(dtype: str, tile: tuple[int, int, int], name: str, title: str, fast: bool = False) -> Kernel:
    """One pair of slices alone, for an experiment."""
    bm, bn, bk = tile
    whole = 16 // DTYPES[dtype]
    params = {"bm": bm, "bn": bn, "bk": bk, "group": 8, "fast": int(fast)}
    hopper, blackwell, sync = _TENSOR[dtype]
    return Kernel(
        id=f"ozaki.{name}",
        rung="O5",
        title=title,
        source="2_pair.py",
        compute=Compute(dtype_in=dtype, dtype_acc="fp32", dtype_out="fp32", layout="row,col,row"),
        code=Code(
            "pair", compiler="cutile", params=params, defines=parameters(params) | {"HINTS": "num_worker_warps=8"}
        ),
        launch=_over((bm, bn), "c"),
        call=Call(arguments=("array:a", "array:b", "array:c")),
        platform=Platform(targets=TARGETS, toolkits=("cuda13",)),
        accepts=Accepts(multiple_of={"n": whole, "k": whole}),
        promises=Promises(
            expects=(
                Expect(hopper, "wgmma multiplies", archs=("90",)),
                Expect(blackwell, "tcgen05.mma multiplies", 1, archs=("100",)),
                Expect(sync, "mma.sync multiplies", 4, archs=("120",)),
            )
        ),
        timing=Timing(baseline=None, timed=False),
        story=Story(article="ozaki", idea="One pair of slices, integers in, fp32 out."),
    )


WIDE = (128, 128, 64)
NARROW = (128, 64, 64)
_ALL_AT_ONCE = "All slices in one launch; pairs with p + q < d."

KERNELS = (
    _naive("fp16", WIDE, spills=("120",)),
    _naive("bf16", WIDE, spills=("120",), timed_to=8192),
    _naive("fp8_e4m3", NARROW, timed_to=8192),
    _Fused("bf16", 9, WIDE, spills=("120",)).kernel("O2", "Fused split, bf16, d = 9", _ALL_AT_ONCE, "ozaki.naive_bf16"),
    *(
        _Fused("bf16", d, WIDE, spills=("120",)).kernel(
            "O2", f"Fused split, bf16, d = {d}", _ALL_AT_ONCE, "ozaki.fused_bf16_d9"
        )
        for d in (8, 7, 6, 5)
    ),
    _Fused("fp8_e4m3", 16, NARROW, split_spills=("120",)).kernel(
        "O2", "Fused split, fp8_e4m3, d = 16", _ALL_AT_ONCE, "ozaki.naive_fp8_e4m3"
    ),
    _Fused("fp16", 9, WIDE, digits_of="bf16", spills=("120",)).kernel(
        "O2",
        "The digits of bf16 in fp16, d = 9",
        "The same slices stored in fp16: the same products, bit for bit.",
        "ozaki.fused_bf16_d9",
    ),
    _Fused("bf16", 9, WIDE, vector=True, spills=("100", "120")).kernel(
        "O3",
        "One scale per row and column, bf16, d = 9",
        "One maximum per row of A and per column of B: powers of two in rows and columns cost no accuracy.",
        "ozaki.fused_bf16_d9",
        name="rows_bf16_d9",
    ),
    _Fused("bf16", 9, WIDE, by_diagonal=True, hints="", spills=("120",)).kernel(
        "O4",
        "One launch per diagonal, bf16, d = 9",
        "Persistent blocks walk one pair after the other together; sums go through memory to be added.",
        "ozaki.fused_bf16_d9",
        name="diagonal_bf16_d9",
    ),
    _tile((128, 128, 128), "num_worker_warps=8", spills=("120",)),
    _tile((128, 64, 64), spills=("120",)),
    _tile((64, 64, 64)),
    _tile((256, 128, 64), "num_worker_warps=8,num_ctas=2", spills=("120",)),
    _printed(
        1,
        "printed_bf16_d9",
        "The article's hints, bf16, d = 9",
        "The hints and the K step that the article prints.",
        "ozaki.fused_bf16_d9",
    ),
    _printed(
        PARTS,
        "distributed_bf16_d9",
        "A block per slice of A, bf16, d = 9",
        "Seven blocks share a tile of C, one per slice of A; another launch adds their sums.",
        "ozaki.printed_bf16_d9",
    ),
    *(
        _pair(dtype, (128, 128, bk), f"pair_{dtype}_{bk}", f"One pair, {dtype}, K by {bk}")
        for dtype in ("fp16", "bf16")
        for bk in (32, 128)
    ),
    *(_pair("fp8_e4m3", (128, 64, bk), f"pair_e4m3_{bk}", f"One pair, e4m3, K by {bk}") for bk in (32, 64, 128)),
    _pair("fp8_e4m3", (128, 128, 128), "pair_e4m3_fast", "One pair, e4m3, sums left in the tensor core", fast=True),
)
