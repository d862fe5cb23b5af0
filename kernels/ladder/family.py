"""The ladder: the article's eight rungs from vector addition to a warp-tiled GEMM in fp32, three variants of level 4
that test what it says about loops and constants, six rungs beyond it, and levels 1 to 7 again with constants tuned for
the GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from gemmrepro.operations import Shape
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
    Tunable,
    card,
    parameters,
    tuned,
)

FAMILY = Family(
    name="ladder",
    title="The ladder: fp32 GEMM from naive to past cuBLAS",
    article="ladder",
    summary="C = alpha A B + beta C in fp32, row-major, one new idea per rung, against cuBLAS with TF32 off.",
)

LaunchOf = Callable[[Shape], Launch]


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _launch_vector_add(shape: Shape) -> Launch:
    return Launch(grid=(_ceil(shape.n, 256), 1, 1), block=(256, 1, 1))


def _by_rows(bm: int, bn: int) -> LaunchOf:
    """A launch of 2-D blocks whose x walks rows, in the grid as in the block: the point of level 1."""

    def launch(shape: Shape) -> Launch:
        return Launch(grid=(_ceil(shape.m, bm), _ceil(shape.n, bn), 1), block=(bm, bn, 1))

    return launch


def _tiles_by_rows(bm: int, bn: int) -> LaunchOf:
    """A launch of 1-D blocks, a thread per output, x over rows and y over columns of C tiles of bm x bn."""

    def launch(shape: Shape) -> Launch:
        return Launch(grid=(_ceil(shape.m, bm), _ceil(shape.n, bn), 1), block=(bm * bn, 1, 1))

    return launch


def _tiled(bm: int, bn: int, threads: int, shared_bytes: int = 0) -> LaunchOf:
    """A launch of 1-D blocks, x over columns and y over rows of C tiles of bm x bn."""

    def launch(shape: Shape) -> Launch:
        grid = (_ceil(shape.n, bn), _ceil(shape.m, bm), 1)
        return Launch(grid=grid, block=(threads, 1, 1), shared_bytes=shared_bytes)

    return launch


# Hardware counters that explain a rung's gain.
_ISSUED = "smsp__issue_active.avg.pct_of_peak_sustained_active"
_ALL = "smsp__inst_executed.sum"
_LOADS = "smsp__sass_inst_executed_op_global_ld.sum"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
_L2 = "lts__t_bytes.sum"
_TIME = "gpu__time_duration.sum"

# Opcodes as cuobjdump prints them. LDG.E[.CONSTANT] without a width is 32 bits per lane; LDS[.U] likewise.
_LDG_32 = r"LDG\.E(\.CONSTANT|\.STRONG.*|\.E[FL])?"
_LDG_WIDE = r"LDG\.E(\..*)?\.(64|128)(\..*)?"
_LDG_128 = r"LDG\.E(\..*)?\.128(\..*)?"
_STG_32 = r"STG\.E(\.EF)?"
_STG_128 = r"STG\.E(\..*)?\.128(\..*)?"
_LDS = r"LDS(\..*)?"
_LDS_128 = r"LDS(\..*)?\.128(\..*)?"
_STS = r"STS(\..*)?"
_BAR = r"BAR\.SYNC(\..*)?"
_FFMA = r"FFMA(\..*)?"
_LDGSTS_32 = r"LDGSTS\.E"
_LDGSTS_128 = r"LDGSTS\.E(\..*)?\.128(\..*)?"

_NO_SHARED = (
    Expect(_LDS, "this rung uses no shared memory", least=0, most=0),
    Expect(_STS, "this rung uses no shared memory", least=0, most=0),
    Expect(_BAR, "this rung has no barrier", least=0, most=0),
)
_SHARED = (
    Expect(_STS, "tiles are staged in shared memory", least=2),
    Expect(_LDS, "operands are read from shared memory", least=2),
    Expect(_BAR, "two barriers per tile: before the first read and after the last", least=2),
)
_VECTOR = (
    Expect(_LDG_128, "A and B are loaded from global memory as float4", least=2),
    Expect(_STG_128, "C is stored to global memory as float4", least=1),
    Expect(_LDG_32, "nothing is loaded as single floats", least=0, most=0),
    Expect(_LDS_128, "A and B are read from shared memory as float4", least=4),
    Expect(_STG_32, "nothing of C is stored as single floats", least=0, most=0),
)

_RING = (
    Expect(_LDGSTS_32, "A is copied asynchronously as single floats, which transposes it", least=16),
    Expect(_LDGSTS_128, "B is copied asynchronously as float4", least=4),
    Expect(_LDG_32, "nothing is loaded as single floats", least=0, most=0),
    Expect(_STS, "no tile goes through registers", least=0, most=0),
    Expect(_LDS_128, "A and B are read from shared memory as float4, 16 steps of K unrolled", least=16 * 6),
    Expect(_FFMA, "a tile's 16 steps of 8 * 16 products are unrolled", least=16 * 128),
)
_ENGINE = (
    Expect(r"UTMALDG\.2D(\..*)?", "TMA loads B", least=2),
    Expect(r"SYNCS(\..*)?TRYWAIT(\..*)?", "threads wait for it on an mbarrier", least=2),
    Expect(r"LDGSTS(\..*)?", "threads copy nothing by cp.async", least=0, most=0),
    Expect(_LDG_128, "A is loaded as float4", least=2),
    Expect(_STS, "and stored, transposed, as single floats", least=8),
    Expect(_LDS_128, "A and B are read from shared memory as float4, 16 steps of K unrolled", least=16 * 6),
    Expect(_FFMA, "a tile's 16 steps of 8 * 16 products are unrolled", least=16 * 128),
)
_RING_BYTES = 4 * 4 * 16 * (132 + 128)
"""Four slots: 16 rows of 128 floats of A, padded by 4, and of 128 floats of B."""
_ENGINE_BYTES = 4 * 2 * 16 * (128 + 256) + 2 * 8
"""Two slots: 16 rows of 128 floats of A and of 256 floats of B; two barriers."""

_SGEMM = Timing("cublas.sgemm")
_B_BY_TMA = Call(
    arguments=("m", "n", "k", "alpha", "a", "map:b", "beta", "c"),
    tensor_maps={"b": TensorMap(box=(16, 256), swizzle=0)},
)
_HOPPER = Platform(min_capability=(9, 0), targets=("90",))
"""The assembler for sm_120 spills two registers."""
_WARPTILE = {
    "bm": 128,
    "bn": 128,
    "bk": 16,
    "wm": 64,
    "wn": 64,
    "wmiter": 1,
    "wniter": 4,
    "tm": 8,
    "tn": 4,
    "blocks": 3,
    "unroll": 2,
    "pad": 0,
}
_THREAD = {"wm": 64, "wn": 64, "wniter": 4, "tn": 4}
"""Tiles of a warp and of a thread in the rungs beyond the article."""

_1D_TILES = Accepts(multiple_of=dict.fromkeys("mn", 64) | {"k": 8})
_RUNTIME_TILES = {"bm": 64, "bn": 64, "bk": 8}


def _runtime_sizes(name: str, rung: str, title: str, story: Story) -> Kernel:
    """Level 4 with its tile sizes as arguments."""
    return Kernel(
        id=f"ladder.{name}",
        rung=rung,
        title=title,
        source=f"{rung.removeprefix('L')}_{name}.cu",
        code=Code(name, params={**_RUNTIME_TILES, "tm": 8}),
        launch=_tiled(64, 64, 512, 4 * (64 * 8 + 8 * 64)),
        call=Call(arguments=("m", "n", "k", "alpha", "a", "b", "beta", "c", *_RUNTIME_TILES.values())),
        accepts=_1D_TILES,
        promises=Promises(expects=(*_SHARED, Expect(_FFMA, "multiply and add are one instruction", least=8))),
        timing=Timing("cublas.sgemm", timed_to=4096),
        story=story,
    )


_LEVEL_4_VARIANTS = (
    Kernel(
        id="ladder.swapped_loops",
        rung="L4.1",
        title="1-D blocktiling, loops swapped",
        source="4.1_swapped_loops.cu",
        code=Code("swapped_loops", params={"bm": 64, "bn": 64, "bk": 8, "tm": 8}),
        launch=_tiled(64, 64, 512),
        accepts=_1D_TILES,
        promises=Promises(expects=(*_SHARED, Expect(_FFMA, "BK * TM products per tile, all unrolled", least=8 * 8))),
        timing=Timing("cublas.sgemm", timed_to=4096),
        story=Story(
            idea="Outputs outside, K inside: with constant bounds the compiler unrolls both loops and undoes it.",
            evidence=(_ALL,),
            gain_over="ladder.blocktile_1d",
        ),
    ),
    _runtime_sizes(
        "runtime_sizes",
        "L4.2",
        "1-D blocktiling, sizes at run time",
        Story(
            idea="Tile sizes as arguments: nothing is unrolled along K, and indices are computed at run time.",
            evidence=(_ALL, _ISSUED),
            gain_over="ladder.blocktile_1d",
        ),
    ),
    _runtime_sizes(
        "runtime_swapped",
        "L4.3",
        "1-D blocktiling, sizes at run time, loops swapped",
        Story(
            idea="The same with the loops swapped, which the compiler cannot undo: 16 shared reads for 8 products.",
            evidence=(_ALL, _ISSUED),
            gain_over="ladder.runtime_sizes",
        ),
    ),
)

_ARTICLE = (
    Kernel(
        id="ladder.vector_add",
        rung="L0",
        title="Vector addition",
        source="0_vector_add.cu",
        compute=Compute(op="vector_add_in_place", layout="vector"),
        code=Code("vector_add", params={"threads": 256}),
        launch=_launch_vector_add,
        promises=Promises(
            expects=(
                Expect(_LDG_32, "x and y are loaded, 32 bits per lane", least=2),
                Expect(r"FADD(\..*)?", "the addition"),
                Expect(_STG_32, "y is stored, 32 bits per lane"),
                *_NO_SHARED,
            )
        ),
        # Repeated launches change y: the experiment `vector_add` times it, in plain and in managed memory.
        timing=Timing(baseline=None, timed=False),
        story=Story(article="ladder", idea="Grid, block, thread: a grid-stride loop covers any length."),
    ),
    Kernel(
        id="ladder.naive",
        rung="L1",
        title="Naive",
        source="1_naive.cu",
        code=Code("naive", params={"bm": 32, "bn": 32}),
        launch=_by_rows(32, 32),
        promises=Promises(
            expects=(
                Expect(_LDG_32, "A and B are loaded 32 bits per lane", least=2),
                Expect(_LDG_WIDE, "no load is wider", least=0, most=0),
                Expect(_FFMA, "multiply and add are one instruction"),
                *_NO_SHARED,
            )
        ),
        timing=_SGEMM,
        story=Story(
            article="ladder",
            published_system="L1 naive",
            idea="One thread per output; a warp walks rows, so nothing coalesces.",
        ),
    ),
    Kernel(
        id="ladder.coalesced",
        rung="L2",
        title="Coalesced",
        source="2_coalesced.cu",
        code=Code("coalesced", params={"bm": 32, "bn": 32}),
        launch=_tiles_by_rows(32, 32),
        # Coalescing shows in addresses, not opcodes: counters and times judge it (kernels/ladder/NOTES.md).
        promises=Promises(
            expects=(
                Expect(_LDG_32, "A and B are loaded 32 bits per lane, 128 bytes per warp", least=2),
                Expect(_LDG_WIDE, "no load is wider", least=0, most=0),
                Expect(_STG_32, "C is stored 32 bits per lane, 128 bytes per warp"),
                Expect(_FFMA, "multiply and add are one instruction"),
                *_NO_SHARED,
            )
        ),
        timing=_SGEMM,
        story=Story(
            article="ladder",
            published_system="L2 coalesced",
            idea="A warp walks columns: 32 lanes touch one 128-byte line.",
            evidence=(_SECTORS, _L2),
            expected="6 TFLOP/s, twelve times L1: two cycles per step for two lines from L1 allow 8.4, and "
            "latency shows.",
        ),
    ),
    Kernel(
        id="ladder.smem",
        rung="L3",
        title="Shared memory",
        source="3_smem.cu",
        code=Code("smem", params={"bm": 32, "bn": 32, "bk": 32, "tile": 32, "unroll": 32}),
        launch=_tiles_by_rows(32, 32),
        promises=Promises(expects=(*_SHARED, Expect(_FFMA, "a tile's 32 steps are unrolled", least=32))),
        timing=_SGEMM,
        story=Story(
            article="ladder",
            published_system="L3 smem",
            idea="Tiles of A and B in shared memory: each global load serves 32 threads.",
            evidence=(_LOADS, _SECTORS, _L2),
            expected="8 to 9 TFLOP/s: as much traffic from shared memory as L2 had from L1, so 1.0 to 1.5 times L2.",
        ),
    ),
    Kernel(
        id="ladder.blocktile_1d",
        rung="L4",
        title="1-D blocktiling",
        source="4_blocktile_1d.cu",
        code=Code("blocktile_1d", params={"bm": 64, "bn": 64, "bk": 8, "tm": 8}),
        launch=_tiled(64, 64, 512),
        accepts=Accepts(multiple_of={"m": 64, "n": 64, "k": 8}),
        promises=Promises(expects=(*_SHARED, Expect(_FFMA, "BK * TM products per tile, all unrolled", least=8 * 8))),
        timing=_SGEMM,
        story=Story(
            article="ladder",
            published_system="L4 blocktile_1d",
            idea="A column of outputs per thread: a value of B in a register serves eight products.",
            evidence=(_LOADS, _ALL, _L2),
            expected="15 TFLOP/s: 74 cycles of operands to 16 of FFMA, nearly half as many as in L3 (66 to 8).",
        ),
    ),
    *_LEVEL_4_VARIANTS,
    Kernel(
        id="ladder.blocktile_2d",
        rung="L5",
        title="2-D blocktiling",
        source="5_blocktile_2d.cu",
        code=Code("blocktile_2d", params={"bm": 128, "bn": 128, "bk": 8, "tm": 8, "tn": 8, "blocks": 2}),
        launch=_tiled(128, 128, 256),
        accepts=Accepts(multiple_of={"m": 128, "n": 128, "k": 8}),
        promises=Promises(
            expects=(
                *_SHARED,
                Expect(_FFMA, "BK * TM * TN products per tile, all unrolled", least=8 * 8 * 8),
                Expect(_LDG_WIDE, "global loads are still 32 bits per lane", least=0, most=0),
            )
        ),
        timing=_SGEMM,
        story=Story(
            article="ladder",
            published_system="L5 blocktile_2d",
            idea="A square of outputs per thread: 16 values in registers serve 64 products.",
            evidence=(_LOADS, _ALL, _CONFLICTS),
            expected="26 TFLOP/s: 200 cycles of operands, half with a two-way conflict, to 128 of FFMA allow 43.",
        ),
    ),
    Kernel(
        id="ladder.vectorized",
        rung="L6",
        title="Vectorized",
        source="6_vectorized.cu",
        code=Code("vectorized", params={"bm": 128, "bn": 128, "bk": 8, "tm": 8, "tn": 8, "blocks": 2}),
        launch=_tiled(128, 128, 256),
        accepts=Accepts(multiple_of={"m": 128, "n": 128, "k": 8}),
        promises=Promises(
            expects=(
                *_SHARED,
                *_VECTOR,
                Expect(_FFMA, "BK * TM * TN products per tile, all unrolled", least=8 * 8 * 8),
            )
        ),
        timing=_SGEMM,
        story=Story(
            article="ladder",
            published_system="L6 vectorized",
            idea="float4 everywhere; A is transposed on its way into shared memory.",
            evidence=(_LOADS, _ALL, _ISSUED),
            expected="30 TFLOP/s: shared memory as in L5, a quarter of the global loads, less address arithmetic.",
        ),
    ),
    Kernel(
        id="ladder.warptile",
        rung="L7",
        title="Warptiling",
        source="7_warptile.cu",
        code=Code("warptile", params=_WARPTILE),
        launch=_tiled(128, 128, 128),
        accepts=Accepts(multiple_of={"m": 128, "n": 128, "k": 16}),
        promises=Promises(
            expects=(
                *_SHARED,
                *_VECTOR,
                Expect(_FFMA, "two steps of WMITER*TM * WNITER*TN products are unrolled", least=2 * 8 * 16),
            )
        ),
        timing=_SGEMM,
        story=Story(
            article="ladder",
            published_system="L7 warptile",
            idea="A warp owns a tile: its lanes share operands, which shared memory broadcasts.",
            evidence=(_CONFLICTS, _ALL, _ISSUED),
            expected="36 to 40 TFLOP/s, 70 to 75% of cuBLAS: the first to be bound by arithmetic on paper, "
            "without double buffering.",
        ),
    ),
)

_MOST_PIECES = 2
"""Pieces of split tiles an SM, at most; each takes 128 KB of workspace."""
_PIECE_STEPS = 4
"""Overhead of a piece in K iterations: filling the pipeline, storing 128 KB of partial sums."""


def _split_last_wave(shape: Shape) -> Launch:
    """Full waves of tiles, then the remaining tiles split along K into as many pieces each as should be fastest."""
    tiles, iterations = (shape.m // 128) * (shape.n // 256), shape.k // 16
    rest = tiles % card.sms()
    pieces, least = 1, float(iterations)
    for count in range(2, _MOST_PIECES * card.sms() // rest + 1 if rest else 0):
        queue = -(-rest * (count - 1) // (card.sms() - rest))
        brief = (iterations - queue * _PIECE_STEPS) // (queue + count - 1)
        time = max(iterations - (count - 1) * brief, queue * (brief + _PIECE_STEPS)) + _PIECE_STEPS
        if brief > 0 and time < least:
            pieces, least = count, time
    return Launch(grid=(tiles + rest * (pieces - 1), 1, 1), block=(256, 1, 1), shared_bytes=_ENGINE_BYTES)


def _pieces(shape: Shape) -> int:
    """Pieces of all split tiles together; 0 if no tile is split."""
    tiles, blocks = (shape.m // 128) * (shape.n // 256), _split_last_wave(shape).grid[0]
    return blocks - tiles // card.sms() * card.sms() if blocks > tiles else 0


_CUT = Step(
    "cut",
    _split_last_wave,
    ("m", "n", "k", "alpha", "a", "map:b", "beta", "c", "sums", "arrivals"),
)


def _cut_for_card(shape: Shape) -> tuple[Step]:
    """The launch of `cut`, whose code knows the reference's SMs, or on other cards of `cut_any`."""
    if card.sms() == card.REFERENCE.sms:
        return (_CUT,)
    maps, arguments = _B_BY_TMA.tensor_maps, (card.sms(), *_CUT.arguments)
    return (replace(_CUT, entry="cut_any", arguments=arguments, tensor_maps=maps, expects=_ENGINE),)


def _cut_shapes() -> tuple[Shape, ...]:
    """A full wave and a part of one, whose ends the other SMs take (of 132 SMs: 84 tiles); 32 tiles in pieces."""
    return Shape(128 * max(1, 18 * card.sms() // 132), 3072, 416), Shape(1024, 1024, 1008)


_BEYOND = (
    Kernel(
        id="ladder.async_copy",
        rung="L7.1",
        title="Asynchronous copies",
        source="7.1_async_copy.cu",
        code=Code("async_copy", params={"bm": 128, "bn": 128, "bk": 16, **_THREAD, "tm": 8, "stages": 4}),
        launch=_tiled(128, 128, 128, _RING_BYTES),
        accepts=Accepts(multiple_of={"m": 128, "n": 128, "k": 16}),
        promises=Promises(expects=_RING),
        timing=_SGEMM,
        story=Story(
            idea="cp.async fills a ring of slots with tiles: no multiplication waits for global memory.",
            evidence=(_LOADS, _ISSUED),
        ),
    ),
    Kernel(
        id="ladder.fragments",
        rung="L7.2",
        title="Fragments prefetched",
        source="7.2_fragments.cu",
        code=Code("fragments", params={"bm": 128, "bn": 128, "bk": 16, **_THREAD, "tm": 8, "stages": 4}),
        launch=_tiled(128, 128, 128, _RING_BYTES),
        accepts=Accepts(multiple_of={"m": 128, "n": 128, "k": 16}),
        promises=Promises(expects=_RING),
        timing=_SGEMM,
        story=Story(
            idea="Fragments of the next step are read while this one is multiplied, "
            "across tiles; products in serpentine order.",
            evidence=(_ALL, _ISSUED),
        ),
    ),
    Kernel(
        id="ladder.spread",
        rung="L7.3",
        title="Copies interleaved",
        source="7.3_spread.cu",
        code=Code("spread", params={"bm": 128, "bn": 128, "bk": 16, **_THREAD, "tm": 8, "stages": 4}),
        launch=_tiled(128, 128, 128, _RING_BYTES),
        accepts=Accepts(multiple_of={"m": 128, "n": 128, "k": 16}),
        promises=Promises(expects=_RING),
        timing=_SGEMM,
        story=Story(
            idea="A few of a tile's copies start at each step, so that fragment reads need not queue behind them.",
            evidence=(_ALL, _ISSUED),
        ),
    ),
    Kernel(
        id="ladder.tma",
        rung="L7.4",
        title="TMA",
        source="7.4_tma.cu",
        code=Code(
            "tma",
            params={"bm": 128, "bn": 256, "bk": 16, **_THREAD, "tm": 8, "store_at": 12},
            headers=("common/mbarrier.cuh", "common/tma.cuh"),
        ),
        launch=_tiled(128, 256, 256, _ENGINE_BYTES),
        call=_B_BY_TMA,
        platform=_HOPPER,
        accepts=Accepts(multiple_of={"m": 128, "n": 256, "k": 16}),
        promises=Promises(expects=_ENGINE),
        timing=_SGEMM,
        story=Story(
            idea="TMA loads B, registers load A, and tiles are wider: 93% of the loop's instructions multiply.",
            evidence=(_ALL, _ISSUED, _L2),
        ),
    ),
    Kernel(
        id="ladder.pinned",
        rung="L7.5",
        title="Scheduled shared-memory reads",
        source="7.5_pinned.cu",
        code=Code(
            "pinned",
            params={"bm": 128, "bn": 256, "bk": 16, **_THREAD, "tm": 4, "store_at": 12},
            headers=("common/mbarrier.cuh", "common/pinned.cuh", "common/tma.cuh"),
        ),
        launch=_tiled(128, 256, 256, _ENGINE_BYTES),
        call=_B_BY_TMA,
        platform=_HOPPER,
        accepts=Accepts(multiple_of={"m": 128, "n": 256, "k": 16}),
        promises=Promises(expects=_ENGINE),
        timing=_SGEMM,
        story=Story(
            idea="Pairs of lanes share addresses, which halves a read's cost, and the compiler cannot delay the reads.",
            evidence=(_CONFLICTS, _ISSUED),
        ),
    ),
    Kernel(
        id="ladder.cut",
        rung="L7.6",
        title="Split last wave",
        source="7.6_cut.cu",
        code=Code(
            "cut",
            params={"bm": 128, "bn": 256, "bk": 16, **_THREAD, "tm": 4, "store_at": 12},
            headers=("common/grid.cuh", "common/mbarrier.cuh", "common/pinned.cuh", "common/tma.cuh"),
        ),
        launch=_split_last_wave,
        call=replace(_B_BY_TMA, arguments=_CUT.arguments),
        run=Run(
            steps=_cut_for_card,
            workspace={
                "sums": Buffer("fp32", lambda shape: (max(1, _pieces(shape)), 128 * 256)),
                "arrivals": Buffer("int32", lambda shape: (2 * card.sms(),)),
            },
        ),
        platform=_HOPPER,
        accepts=Accepts(multiple_of={"m": 128, "n": 256, "k": 16}),
        promises=Promises(expects=_ENGINE, gate_shapes=card.PerCard(_cut_shapes)),
        timing=_SGEMM,
        story=Story(
            idea="Tiles of a partial last wave are split along K; the last block to finish adds a tile's pieces.",
            evidence=(_ISSUED, _TIME),
        ),
    ),
)

_BY_ID = {kernel.id: kernel for kernel in _ARTICLE}
Params = Mapping[str, int]


def _retuned(
    base_id: str, params: Params, launch: LaunchOf, multiple_of: Mapping[str, int], expects: tuple[Expect, ...]
) -> Kernel:
    """A rung of the article with other constants: the same source, checked for the rung's idea, not for its counts."""
    base = _BY_ID[base_id]
    return replace(
        base,
        id=f"{base.id}_tuned",
        rung=f"{base.rung} tuned",
        title=f"{base.title}, tuned",
        launch=launch,
        code=replace(base.code, params=dict(params), defines=parameters(params)),
        accepts=Accepts(multiple_of=multiple_of),
        promises=Promises(expects=expects),
        story=Story(
            article=base.story.article,
            idea=f"{base.rung} with the constants that are fastest on this GPU.",
        ),
    )


def _tile(p: Params) -> dict[str, int]:
    return {"m": p["bm"], "n": p["bn"], "k": p["bk"]}


def _shared_fits(p: Params, pad: int = 0) -> bool:
    """Whether two tiles fit the 48 KB of static shared memory of a block."""
    return 4 * p["bk"] * (p["bm"] + pad + p["bn"]) <= 48 * 1024


# Level 1 and 2: the block's shape.
_MANY = Expect(_FFMA, "multiply and add are one instruction")


def _naive(p: Params) -> Kernel:
    return _retuned("ladder.naive", p, _by_rows(p["bm"], p["bn"]), {}, (_MANY, *_NO_SHARED))


def _coalesced(p: Params) -> Kernel:
    return _retuned("ladder.coalesced", p, _tiles_by_rows(p["bm"], p["bn"]), {}, (_MANY, *_NO_SHARED))


def _smem(p: Params) -> Kernel:
    tile = p["tile"]
    return _retuned("ladder.smem", p, _tiles_by_rows(tile, tile), {}, (*_SHARED, _MANY))


# Level 4: a thread loads one element of each tile, so two constants make the other two.
def _blocktile_1d(p: Params) -> Kernel:
    products = Expect(_FFMA, "BK * TM products per tile, all unrolled", least=p["bk"] * p["tm"])
    launch = _tiled(p["bm"], p["bn"], p["bm"] * p["bn"] // p["tm"])
    return _retuned("ladder.blocktile_1d", p, launch, _tile(p), (*_SHARED, products))


def _blocktile_1d_allowed(p: Params) -> bool:
    threads = p["bm"] * p["bn"] // p["tm"]
    return threads <= 1024 and p["bm"] * p["bk"] == threads and p["bk"] * p["bn"] == threads


# Levels 5 and 6: each thread's registers hold its sums, two fragments and addresses.
def _threads_2d(p: Params) -> int:
    return p["bm"] * p["bn"] // (p["tm"] * p["tn"])


def _registers_fit(threads: int, sums: int, fragments: int, blocks: int) -> bool:
    return 128 <= threads and threads * blocks <= 1024 and (sums + fragments + 24) * threads * blocks <= 65536


def _launch_2d(p: Params) -> LaunchOf:
    return _tiled(p["bm"], p["bn"], _threads_2d(p))


def _products_2d(p: Params) -> Expect:
    return Expect(_FFMA, "BK * TM * TN products per tile, all unrolled", least=p["bk"] * p["tm"] * p["tn"])


def _blocktile_2d(p: Params) -> Kernel:
    return _retuned("ladder.blocktile_2d", p, _launch_2d(p), _tile(p), (*_SHARED, _products_2d(p)))


def _blocktile_2d_allowed(p: Params) -> bool:
    threads = _threads_2d(p)
    passes = threads % p["bk"] == 0 and p["bm"] % max(threads // p["bk"], 1) == 0
    passes = passes and threads % p["bn"] == 0 and p["bk"] % max(threads // p["bn"], 1) == 0
    return passes and _shared_fits(p) and _registers_fit(threads, p["tm"] * p["tn"], p["tm"] + p["tn"], p["blocks"])


def _vectorized(p: Params) -> Kernel:
    return _retuned("ladder.vectorized", p, _launch_2d(p), _tile(p), (*_SHARED, *_VECTOR, _products_2d(p)))


def _vectorized_allowed(p: Params) -> bool:
    threads = _threads_2d(p)
    one_each = p["bm"] * p["bk"] == 4 * threads and p["bk"] * p["bn"] == 4 * threads
    return one_each and _registers_fit(threads, p["tm"] * p["tn"], p["tm"] + p["tn"], p["blocks"])


# Level 7
def _warptile_threads(p: Params) -> int:
    return p["bm"] // p["wm"] * (p["bn"] // p["wn"]) * 32


def _warptile(p: Params) -> Kernel:
    products = Expect(_FFMA, "the products of UNROLL steps", least=p["unroll"] * p["wm"] * p["wn"] // 32)
    launch = _tiled(p["bm"], p["bn"], _warptile_threads(p))
    return _retuned("ladder.warptile", p, launch, _tile(p), (*_SHARED, *_VECTOR, products))


def _warptile_allowed(p: Params) -> bool:
    sums, threads = p["wm"] * p["wn"] // 32, _warptile_threads(p)
    wmiter = sums // (p["tm"] * p["tn"] * p["wniter"])
    if not wmiter or p["bm"] % p["wm"] or p["bn"] % p["wn"] or p["unroll"] > p["bk"]:
        return False
    lanes = p["wm"] // wmiter // p["tm"] * (p["wn"] // p["wniter"] // p["tn"])
    a_rows, b_rows = threads // (p["bk"] // 4), threads // (p["bn"] // 4)
    passes = a_rows and b_rows and p["bm"] % a_rows == 0 and p["bk"] % b_rows == 0
    full = threads * p["blocks"] == (384 if sums == 128 else 512)  # all registers, at 168 and 128 per thread
    return bool(lanes == 32 and passes and full and _shared_fits(p, p["pad"]))


_SLOW = (1024, 2048)
"""Sizes for the rungs whose candidates would each take minutes at 4096."""

TUNABLES = (
    Tunable(
        "ladder.naive_tuned",
        {"bm": (2, 4, 8, 16, 32), "bn": (8, 16, 32, 64)},
        lambda p: p["bm"] * p["bn"] <= 1024,
        _naive,
        sizes=_SLOW,
    ),
    Tunable(
        "ladder.coalesced_tuned",
        {"bm": (2, 4, 8, 16, 32), "bn": (32, 64, 128)},
        lambda p: 64 <= p["bm"] * p["bn"] <= 1024,
        _coalesced,
        sizes=_SLOW,
    ),
    Tunable(
        "ladder.smem_tuned",
        {"tile": (16, 32), "unroll": (4, 8, 16, 32)},
        lambda p: p["unroll"] <= p["tile"],
        _smem,
        sizes=_SLOW,
    ),
    Tunable(
        "ladder.blocktile_1d_tuned",
        {"bm": (32, 64, 128), "bn": (32, 64, 128), "bk": (4, 8, 16, 32), "tm": (2, 4, 8, 16, 32)},
        _blocktile_1d_allowed,
        _blocktile_1d,
    ),
    Tunable(
        "ladder.blocktile_2d_tuned",
        {"bm": (64, 128), "bn": (64, 128), "bk": (8, 16), "tm": (4, 8), "tn": (4, 8), "blocks": (2, 4)},
        _blocktile_2d_allowed,
        _blocktile_2d,
    ),
    Tunable(
        "ladder.vectorized_tuned",
        {
            "bm": (64, 128),
            "bn": (64, 128),
            "bk": (4, 8, 16),
            "tm": (4, 8, 16),
            "tn": (4, 8, 16),
            "blocks": (1, 2, 3, 4),
        },
        _vectorized_allowed,
        _vectorized,
    ),
    Tunable(
        "ladder.warptile_tuned",
        {
            "bm": (128,),
            "bn": (128,),
            "bk": (16, 32),
            "wm": (64,),
            "wn": (32, 64),
            "wniter": (1, 2),
            "tm": (4, 8),
            "tn": (4, 8),
            "blocks": (2, 3),
            "unroll": (16,),
            "pad": (0, 4),
        },
        _warptile_allowed,
        _warptile,
    ),
)


def _with_tuned(kernels: tuple[Kernel, ...]) -> Iterator[Kernel]:
    """Every rung, each followed by its tuned version if there is one for this GPU."""
    tunables = {tunable.id: tunable for tunable in TUNABLES}
    for kernel in kernels:
        yield kernel
        if tunable := tunables.get(f"{kernel.id}_tuned"):
            yield from tuned(tunable)


KERNELS = tuple(_with_tuned((*_ARTICLE, *_BEYOND)))
