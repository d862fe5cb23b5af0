"""The ladder: eight rungs from vector addition to a warp-tiled GEMM in fp32, as the article `ladder` climbs them."""

from __future__ import annotations

from gemmrepro.registry import Expect, Family, Kernel, Launch, Shape

FAMILY = Family(
    name="ladder",
    title="The ladder: fp32 GEMM from naive to warp tiles",
    article="ladder",
    summary="C = alpha A B + beta C in fp32, row-major, one new idea a rung, against cuBLAS with TF32 off.",
    figures=("ratio", "throughput", "roofline"),
)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _launch_vector_add(shape: Shape) -> Launch:
    return Launch(grid=(_ceil(shape.n, 256), 1, 1), block=(256, 1, 1))


def _launch_naive(shape: Shape) -> Launch:
    """x walks rows, in the grid as in the block: the rung's point."""
    return Launch(grid=(_ceil(shape.m, 32), _ceil(shape.n, 32), 1), block=(32, 32, 1))


def _tiled(bm: int, bn: int, threads: int):
    """A launch of 1-D blocks, x over columns and y over rows of C tiles of bm x bn."""

    def launch(shape: Shape) -> Launch:
        return Launch(grid=(_ceil(shape.n, bn), _ceil(shape.m, bm), 1), block=(threads, 1, 1))

    return launch


# Opcodes as cuobjdump prints them. LDG.E[.CONSTANT] without a width is 32 bits a lane; LDS[.U] likewise.
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

_NO_SHARED = (
    Expect(_LDS, "this rung uses no shared memory", least=0, most=0),
    Expect(_STS, "this rung uses no shared memory", least=0, most=0),
    Expect(_BAR, "threads of this rung never wait for one another", least=0, most=0),
)
_SHARED = (
    Expect(_STS, "tiles are staged in shared memory", least=2),
    Expect(_LDS, "operands are read from shared memory", least=2),
    Expect(_BAR, "two barriers a tile: before the first read and after the last", least=2),
)
_VECTOR = (
    Expect(_LDG_128, "A and B are loaded from global memory by float4", least=2),
    Expect(_STG_128, "C is stored to global memory by float4", least=1),
    Expect(_LDG_32, "nothing is loaded by single floats", least=0, most=0),
    Expect(_LDS_128, "A and B are read from shared memory by float4", least=4),
    Expect(_STG_32, "nothing of C is stored by single floats", least=0, most=0),
)

KERNELS = (
    Kernel(
        id="ladder.vector_add",
        rung="L0",
        title="Vector addition",
        source="0_vector_add.cu",
        entry="vector_add",
        launch=_launch_vector_add,
        op="vector_add",
        layout="vector",
        params={"threads": 256},
        expects=(
            Expect(_LDG_32, "x and y are loaded, 32 bits a lane", least=2),
            Expect(r"FADD(\..*)?", "the addition"),
            Expect(_STG_32, "z is stored, 32 bits a lane"),
            *_NO_SHARED,
        ),
        baseline=None,
        article="ladder",
        idea="Grid, block, thread: a grid-stride loop covers any length.",
    ),
    Kernel(
        id="ladder.naive",
        rung="L1",
        title="Naive",
        source="1_naive.cu",
        entry="naive",
        launch=_launch_naive,
        params={"bm": 32, "bn": 32},
        expects=(
            Expect(_LDG_32, "A and B are loaded 32 bits a lane", least=2),
            Expect(_LDG_WIDE, "no load is wider", least=0, most=0),
            Expect(_FFMA, "multiply and add are one instruction"),
            *_NO_SHARED,
        ),
        article="ladder",
        published_system="L1 naive",
        idea="One thread an output; a warp walks rows, so nothing coalesces.",
    ),
    Kernel(
        id="ladder.coalesced",
        rung="L2",
        title="Coalesced",
        source="2_coalesced.cu",
        entry="coalesced",
        launch=_tiled(32, 32, 1024),
        params={"bm": 32, "bn": 32},
        # Coalescing is a matter of addresses, not opcodes: counters and clock judge it (kernels/ladder/NOTES.md).
        expects=(
            Expect(_LDG_32, "A and B are loaded 32 bits a lane, 128 bytes a warp", least=2),
            Expect(_LDG_WIDE, "no load is wider", least=0, most=0),
            Expect(_STG_32, "C is stored 32 bits a lane, 128 bytes a warp"),
            Expect(_FFMA, "multiply and add are one instruction"),
            *_NO_SHARED,
        ),
        article="ladder",
        published_system="L2 coalesced",
        idea="A warp walks columns: 32 lanes touch one 128-byte line.",
    ),
    Kernel(
        id="ladder.smem",
        rung="L3",
        title="Shared memory",
        source="3_smem.cu",
        entry="smem",
        launch=_tiled(32, 32, 1024),
        params={"bm": 32, "bn": 32, "bk": 32},
        expects=(*_SHARED, Expect(_FFMA, "a tile's 32 steps are unrolled", least=32)),
        article="ladder",
        published_system="L3 smem",
        idea="Tiles of A and B in shared memory: each global load serves 32 threads.",
    ),
    Kernel(
        id="ladder.blocktile_1d",
        rung="L4",
        title="1-D blocktiling",
        source="4_blocktile_1d.cu",
        entry="blocktile_1d",
        launch=_tiled(64, 64, 512),
        params={"bm": 64, "bn": 64, "bk": 8, "tm": 8},
        multiple_of={"m": 64, "n": 64, "k": 8},
        expects=(*_SHARED, Expect(_FFMA, "BK * TM products a tile, all unrolled", least=8 * 8)),
        article="ladder",
        published_system="L4 blocktile_1d",
        idea="A column of outputs a thread: a value of B in a register serves eight products.",
    ),
    Kernel(
        id="ladder.blocktile_2d",
        rung="L5",
        title="2-D blocktiling",
        source="5_blocktile_2d.cu",
        entry="blocktile_2d",
        launch=_tiled(128, 128, 256),
        params={"bm": 128, "bn": 128, "bk": 8, "tm": 8, "tn": 8},
        multiple_of={"m": 128, "n": 128, "k": 8},
        expects=(
            *_SHARED,
            Expect(_FFMA, "BK * TM * TN products a tile, all unrolled", least=8 * 8 * 8),
            Expect(_LDG_WIDE, "global loads are still 32 bits a lane", least=0, most=0),
        ),
        article="ladder",
        published_system="L5 blocktile_2d",
        idea="A square of outputs a thread: 16 values in registers serve 64 products.",
    ),
    Kernel(
        id="ladder.vectorized",
        rung="L6",
        title="Vectorized",
        source="6_vectorized.cu",
        entry="vectorized",
        launch=_tiled(128, 128, 256),
        params={"bm": 128, "bn": 128, "bk": 8, "tm": 8, "tn": 8},
        multiple_of={"m": 128, "n": 128, "k": 8},
        expects=(
            *_SHARED,
            *_VECTOR,
            Expect(_FFMA, "BK * TM * TN products a tile, all unrolled", least=8 * 8 * 8),
        ),
        article="ladder",
        published_system="L6 vectorized",
        idea="float4 everywhere; A is transposed on its way into shared memory.",
    ),
    Kernel(
        id="ladder.warptile",
        rung="L7",
        title="Warptiling",
        source="7_warptile.cu",
        entry="warptile",
        launch=_tiled(128, 128, 128),
        params={
            **{"bm": 128, "bn": 128, "bk": 16, "wm": 64, "wn": 64},
            **{"wmiter": 1, "wniter": 4, "tm": 8, "tn": 4},
        },
        multiple_of={"m": 128, "n": 128, "k": 16},
        expects=(
            *_SHARED,
            *_VECTOR,
            Expect(_FFMA, "two steps of WMITER*TM * WNITER*TN products are unrolled", least=2 * 8 * 16),
        ),
        article="ladder",
        published_system="L7 warptile",
        idea="A warp owns a tile: its lanes share operands, and shared memory answers by broadcast.",
    ),
)
