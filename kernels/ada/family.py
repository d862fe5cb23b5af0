"""Ada: the author's nine kernels of mma.sync in fp16, and seven more for Hopper, against cuBLAS and the ceiling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gemmrepro.operations import Shape
from gemmrepro.registry import (
    Accepts,
    Call,
    Code,
    Compute,
    Expect,
    Family,
    Kernel,
    Launch,
    Platform,
    Promises,
    Story,
    TensorMap,
    Timing,
    card,
)

FAMILY = Family(
    name="ada",
    title="Ada: mma.sync by hand",
    article="ada",
    summary="C = A B, fp16 in and fp32 out, by the warp's tensor core instruction; "
    "against cuBLAS at its fastest and against what that instruction can do at most.",
)

THREADS = 256
"""Eight warps, in every rung without a producer."""

SIDE = 16
"""Threads each way of the author's blocks."""

_HEADERS = ("common/element.cuh", "common/mma.cuh")
_AUTHORS = (*_HEADERS, "common/mma_ada.cuh")
_ASYNC = (*_HEADERS, "common/cp_async.cuh")
_ENGINE = (*_HEADERS, "common/mbarrier.cuh", "common/tma.cuh", "common/wgmma.cuh")
_ROOMY = ("80", "90", "100")
"""Targets whose SMs give a block the 144 KB of the large tiles; 8.6, 8.9 and 12.0 give 99 KB."""


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _tiled(bm: int, bn: int, shared_bytes: int = 0) -> Callable[[Shape], Launch]:
    """One block per tile of bm x bn, x over columns and y over rows of C."""

    def launch(shape: Shape) -> Launch:
        grid = (_ceil(shape.n, bn), _ceil(shape.m, bm), 1)
        return Launch(grid=grid, block=(THREADS, 1, 1), shared_bytes=shared_bytes)

    return launch


def _authors(tile: int) -> Callable[[Shape], Launch]:
    """The author's launch: 16 x 16 threads per tile of `tile` x `tile`, x over columns and y over rows of C."""

    def launch(shape: Shape) -> Launch:
        return Launch(grid=(_ceil(shape.n, tile), _ceil(shape.m, tile), 1), block=(SIDE, SIDE, 1))

    return launch


def _one_dimensional(bm: int, bn: int, shared_bytes: int) -> Callable[[Shape], Launch]:
    """One block per tile of bm x bn, in a one-dimensional grid."""

    def launch(shape: Shape) -> Launch:
        tiles = _ceil(shape.m, bm) * _ceil(shape.n, bn)
        return Launch(grid=(tiles, 1, 1), block=(THREADS, 1, 1), shared_bytes=shared_bytes)

    return launch


def _persistent(bm: int, bn: int, shared_bytes: int) -> Callable[[Shape], Launch]:
    """As many blocks as fit the GPU, or fewer on small problems; a producer warpgroup beside the eight warps."""

    def launch(shape: Shape) -> Launch:
        blocks = min(card.sms(), _ceil(shape.m, bm) * _ceil(shape.n, bn))
        return Launch(grid=(blocks, 1, 1), block=(THREADS + 128, 1, 1), shared_bytes=shared_bytes)

    return launch


# Opcodes as cuobjdump prints them.
def _mma(least: int) -> Expect:
    return Expect(r"HMMA\.16816\.F32", f"mma.sync m16n8k16 into fp32, at least {least} per K iteration", least=least)


def _mma_half(least: int) -> Expect:
    return Expect(r"HMMA\.16816\.F16", f"mma.sync m16n8k16 into fp16, at least {least} per K iteration", least=least)


def _ldmatrix(least: int, archs: tuple[str, ...] = ()) -> Expect:
    return Expect(
        r"LDSM\.16\.M88\.4", "ldmatrix loads fragments, four 8 x 8 blocks at a time", least=least, archs=archs
    )


def _ldmatrix2(least: int) -> Expect:
    return Expect(r"LDSM\.16\.M88\.2", "ldmatrix loads fragments of B, two 8 x 8 blocks at a time", least=least)


def _promotions(least: int) -> Expect:
    return Expect(r"FADD(\..*)?", f"fp16 sums are added to fp32 sums, at least {least} per K iteration", least=least)


def _copies(least: int) -> Expect:
    return Expect(
        r"LDGSTS\.E\.BYPASS\.(LTC128B\.)?128(\..*)?",
        "cp.async copies 16 bytes, bypassing the registers and the L1",
        least=least,
    )


_NO_SPILL = Expect(r"(STL|LDL)(\..*)?", "nothing spills", least=0, most=0)
_NO_WGMMA = Expect(r"HGMMA.*", "no warpgroup instruction", least=0, most=0)
_NO_ENGINE = Expect(r"UTMA.*", "no TMA", least=0, most=0)
_NO_ASYNC = Expect(r"LDGSTS.*", "every element passes through registers", least=0, most=0)
_NO_LDSM = Expect(r"LDSM.*", "fragments are read word by word", least=0, most=0)
_ELEMENTS = Expect(r"LDG\.E\.U16(\..*)?", "elements are loaded one by one", least=4)
_ELEMENT_STORES = Expect(r"STS\.U16", "and stored one by one", least=4)
_WIDE_LOADS = Expect(r"LDG\.E\.128(\..*)?", "eight elements per load", least=2)
_WIDE_STORES = Expect(r"STS\.128", "eight elements per store to shared memory", least=2)
_NO_FP32_MMA = Expect(r"HMMA\.16816\.F32", "no mma into fp32", least=0, most=0)
_NO_LDG = Expect(r"LDG\..*", "no thread loads from A or B into registers", least=0, most=0)
_NO_STS = Expect(r"STS(\..*)?", "no thread stores to shared memory", least=0, most=0)
_PAIRS = Expect(r"STG\.E\.64(\..*)?", "C is stored two sums at a time", least=8)
_GROUPS = Expect(r"LDGDEPBAR", "copies are committed in groups", least=1)
_WAITS = Expect(r"DEPBAR\.LE(\..*)?", "and awaited, all but the latest", least=1)
_RING = (
    Expect(r"UTMALDG\.2D", "TMA loads tiles of A and B", least=2),
    Expect(r"SYNCS\.PHASECHK\..*TRYWAIT.*", "the producer waits for empty slots, consumers for full ones", least=2),
    Expect(r"USETMAXREG\..*", "the producer releases registers to the consumers", least=2),
)

_TIME = "gpu__time_duration.sum"
_CYCLES = "sm__cycles_elapsed.max"
_L2 = "lts__t_bytes.sum"
_DRAM = "dram__bytes_read.sum"
_INSTRUCTIONS = "smsp__inst_executed.sum"
_LOAD_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
_STORE_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"


_FP32_SUMS = Compute(dtype_in="fp16", dtype_acc="fp32", dtype_out="fp32", layout="row,col,row")
_ROW_MAJOR_B = replace(_FP32_SUMS, layout="row,row,row")


def _half_sums(promoted: int) -> Compute:
    """fp16 sums that go to fp32 ones every `promoted` products; 0: never."""
    return replace(_FP32_SUMS, dtype_acc="fp16", promoted=promoted)


_BEYOND = Story()


def _kernel(
    name: str,
    rung: str,
    title: str,
    launch: Callable[[Shape], Launch],
    expects: tuple[Expect, ...],
    params: dict[str, int],
    idea: str,
    evidence: tuple[str, ...],
    headers: tuple[str, ...] = _HEADERS,
    entry: str | None = None,
    compute: Compute = _FP32_SUMS,
    story: Story = _BEYOND,
    accepts: Accepts | None = None,
    targets: tuple[str, ...] = (),
    min_capability: tuple[int, int] = (8, 0),
    tensor_maps: dict[str, TensorMap] | None = None,
    gate_shapes: tuple[Shape, ...] = (),
    spills: tuple[str, ...] = (),
    timed_to: int = 0,
) -> Kernel:
    """A rung. With a tensor map of C, TMA stores C."""
    maps = tensor_maps or {}
    operands = tuple(f"map:{name}" if name in maps else name for name in "abc")
    usual = Accepts(multiple_of={"n": 4, "k": 8} if "c" in maps else {"k": 8})
    return Kernel(
        id=f"ada.{name}",
        rung=rung,
        title=title,
        source=f"{rung}_{name}.cu",
        compute=compute,
        code=Code(entry or name, params=params, headers=headers),
        launch=launch,
        call=Call(arguments=(*operands, "m", "n", "k"), tensor_maps=maps),
        platform=Platform(min_capability=min_capability, targets=targets),
        accepts=accepts or usual,
        promises=Promises(
            expects=(*expects, *([] if spills else [_NO_SPILL]), _NO_WGMMA), gate_shapes=gate_shapes, spills=spills
        ),
        timing=Timing(baseline="cublas.gemm", timed_to=timed_to),
        story=replace(story, idea=idea, evidence=evidence),
    )


def _author(
    name: str,
    rung: str,
    title: str,
    params: dict[str, int],
    expects: tuple[Expect, ...],
    idea: str,
    evidence: tuple[str, ...],
    published: str | None = None,
    gain_over: str = "",
    compute: Compute = _FP32_SUMS,
    headers: tuple[str, ...] = _AUTHORS,
    spills: tuple[str, ...] = (),
) -> Kernel:
    """A kernel of the author's: square tiles, no tails."""
    tile, step = params["bm"], params["bk"]
    # A launch of 1.x takes almost a second at 16384, and the bound on fp16 sums several.
    slow = compute.layout == "row,row,row" or compute.dtype_acc == "fp16"
    return _kernel(
        name=name,
        rung=rung,
        title=title,
        launch=_authors(tile),
        expects=expects,
        params=params,
        idea=idea,
        evidence=evidence,
        headers=headers,
        compute=compute,
        story=Story(article="ada", published_system=published, gain_over=gain_over),
        accepts=Accepts(multiple_of={"m": tile, "n": tile, "k": step}),
        gate_shapes=(Shape(3 * tile, 5 * tile, 7 * step), Shape(2 * tile, tile, 4096)),
        spills=spills,
        timed_to=8192 if slow else 0,
    )


_LARGE = {"bm": 256, "bn": 128, "bk": 64, "mma_m": 4, "mma_n": 8}
_SLOT = (256 + 128) * 64 * 2
"""Bytes per slot of the large tiles' ring."""
_BARRIERS = 2 * 8
"""Bytes of the two barriers per slot."""
_MAPS = {"a": TensorMap(box=(256, 64), swizzle=128), "b": TensorMap(box=(128, 64), swizzle=128)}
_PIPELINE = (_GROUPS, _WAITS, _NO_LDG, _NO_STS, _PAIRS, _NO_ENGINE)
_SEVERAL_TILES = (Shape(2816, 1800, 520),)
"""165 tiles of 256 x 128: persistent blocks take more than one, and the last group has fewer than 8 rows."""


# What the experiment `accumulation` runs: the same sums, kept in different places. No sweep times them.
def _sums(
    name: str,
    title: str,
    idea: str,
    expects: tuple[Expect, ...],
    defines: dict[str, str] | None = None,
    source: str = "mma",
    threads: int = 128,
) -> Kernel:
    """One place to keep a running sum; one block per 64 x 64 of C, x over columns and y over rows."""

    def launch(shape: Shape) -> Launch:
        return Launch(grid=(_ceil(shape.n, 64), _ceil(shape.m, 64), 1), block=(threads, 1, 1))

    return Kernel(
        id=f"ada.accumulate_{name}",
        rung="numerics",
        title=title,
        source=f"numerics_{source}.cu",
        compute=Compute(dtype_in="fp16", layout="row,col,row"),
        code=Code(f"accumulate_{source}", params={"bm": 64, "bn": 64}, defines=defines or {}),
        launch=launch,
        call=Call(arguments=("a", "b", "c", "m", "n", "k")),
        accepts=Accepts(multiple_of={"k": 16}),
        promises=Promises(expects=(*expects, _NO_SPILL)),
        timing=Timing(baseline=None, timed=False),
        story=Story(idea=idea),
    )


def _outside(least: int) -> Expect:
    return Expect(r"FADD(\..*)?", "an instruction's result is added outside", least=least)


_NUMERICS = (
    _sums(
        "inside",
        "Sum kept inside mma",
        "Every instruction takes the running sum and returns it, in the tensor core's own arithmetic.",
        (_mma(8), Expect(r"FADD(\..*)?", "nothing is added outside", least=0, most=0)),
        {"INSIDE": "0"},
    ),
    _sums(
        "outside4",
        "Sum kept outside, after four mma",
        "Four instructions add up inside; their sum of 64 products is added by an ordinary fp32 addition.",
        (_mma(4 * 8), _outside(32)),
        {"INSIDE": "4"},
    ),
    _sums(
        "outside",
        "Sum kept outside mma",
        "Every instruction begins at zero; its sum of 16 products is added by an ordinary fp32 addition.",
        (_mma(8), _outside(32)),
        {"INSIDE": "1"},
    ),
    _sums(
        "compensated",
        "Sum kept outside, compensated",
        "The rounding errors of the additions outside are kept and added at the end: only the mma's own remain.",
        (_mma(8), _outside((7 + 1) * 32)),
        {"INSIDE": "1", "COMPENSATED": "1"},
    ),
    _sums(
        "ffma",
        "Sum by fp32 multiply-adds",
        "No tensor core: one FMA after the other, each rounded to nearest.",
        (
            Expect(r"FFMA(\..*)?", "products are added one by one", least=32),
            Expect(r"HMMA(\..*)?", "no tensor core takes part", least=0, most=0),
        ),
        source="ffma",
        threads=256,
    ),
)

_AUTHORS_ASYNC = (*_AUTHORS, "common/cp_async.cuh")
_PACKED = {"bm": 64, "bn": 64, "bk": 32, "mma_m": 2, "mma_n": 2}
_PACKED_4X = {"bm": 128, "bn": 128, "bk": 32, "mma_m": 4, "mma_n": 4, "stages": 3}
_TIMES = (_CYCLES, _TIME)

KERNELS = (
    _author(
        name="scalar",
        rung="1.0",
        title="Naive",
        params={"bm": 32, "bn": 32, "bk": 16},
        expects=(_mma(1), _ELEMENTS, _ELEMENT_STORES, _NO_LDSM, _NO_ASYNC, _NO_ENGINE),
        idea="A warp multiplies one 16 x 8 tile, which passes through shared memory element by element.",
        evidence=(_SECTORS, _LOAD_CONFLICTS, _STORE_CONFLICTS, _TIME),
        published="1.0 naive",
        compute=_ROW_MAJOR_B,
    ),
    _author(
        name="scalar_2x",
        rung="1.1",
        title="Two by two tiles",
        params={"bm": 64, "bn": 64, "bk": 16, "mma_m": 2, "mma_n": 2},
        expects=(_mma(4), _ELEMENTS, _ELEMENT_STORES, _NO_LDSM, _NO_ASYNC, _NO_ENGINE),
        idea="2 x 2 tiles per warp: half the loads, reads and barriers per product.",
        evidence=(_L2, _INSTRUCTIONS, _TIME),
        published="1.1 naive 2x tiling",
        compute=_ROW_MAJOR_B,
    ),
    _author(
        name="packed",
        rung="2.0",
        title="Permuted shared memory",
        params=_PACKED,
        expects=(_mma(8), _ldmatrix(4), _ldmatrix2(4), _WIDE_LOADS, _WIDE_STORES, _NO_ASYNC, _PAIRS, _NO_ENGINE),
        idea="128-bit loads, two rows packed into a line of shared memory and permuted by XOR, ldmatrix: no conflicts.",
        evidence=(_LOAD_CONFLICTS, _STORE_CONFLICTS, _INSTRUCTIONS, _TIME),
        published="2.0 permuted smem",
    ),
    _author(
        name="packed_reuse",
        rung="2.1",
        title="Fragments of A kept",
        params=_PACKED,
        expects=(_mma(8), _ldmatrix(4), _ldmatrix2(4), _WIDE_LOADS, _WIDE_STORES, _NO_ASYNC, _PAIRS, _NO_ENGINE),
        idea="Fragments of A are read once per K step and not once per tile.",
        evidence=(_INSTRUCTIONS, _TIME),
        published="2.1 permuted smem + register tweak",
    ),
    _author(
        name="packed_async",
        rung="3.0",
        title="Asynchronous pipeline",
        params={**_PACKED, "stages": 3},
        expects=(_mma(8), _ldmatrix(4), _ldmatrix2(4), _copies(2), *_PIPELINE),
        idea="cp.async fills a ring of three slots; one barrier per K step.",
        evidence=(_LOAD_CONFLICTS, _INSTRUCTIONS, _TIME),
        headers=_AUTHORS_ASYNC,
        published="3.0 n-stage async pipeline",
    ),
    _author(
        name="packed_4x",
        rung="3.1",
        title="Four by four tiles",
        params=_PACKED_4X,
        expects=(_mma(32), _ldmatrix(8), _ldmatrix2(8), _copies(4), *_PIPELINE),
        idea="4 x 4 tiles per warp, 128 x 128 per block: the article's last kernel.",
        evidence=(_L2, _LOAD_CONFLICTS, *_TIMES),
        headers=_AUTHORS_ASYNC,
        published="3.1 n-stage + 4x tiling",
    ),
    _author(
        name="half_each",
        rung="3.2",
        title="fp16 sums, added outside",
        params=_PACKED_4X,
        expects=(_mma_half(32), _promotions(128), _NO_FP32_MMA, _ldmatrix(8), _ldmatrix2(8), _copies(4), *_PIPELINE),
        idea="Every mma sums its 16 products in fp16; ordinary additions take them to fp32 sums.",
        evidence=(_INSTRUCTIONS, *_TIMES),
        gain_over="ada.packed_4x",
        compute=_half_sums(16),
        headers=_AUTHORS_ASYNC,
        spills=("cuda12:90", *(f"cuda13:{target}" for target in ("80", "86", "89", "90", "100", "120"))),
    ),
    _author(
        name="half",
        rung="3.3",
        title="fp16 sums throughout",
        params=_PACKED_4X,
        expects=(_mma_half(32), _NO_FP32_MMA, _ldmatrix(8), _ldmatrix2(8), _copies(4), *_PIPELINE),
        idea="Sums stay in fp16 and are converted when C is stored.",
        evidence=(_INSTRUCTIONS, *_TIMES),
        gain_over="ada.packed_4x",
        compute=_half_sums(0),
        headers=_AUTHORS_ASYNC,
        spills=("cuda13:100",),
    ),
    _author(
        name="half_steps",
        rung="3.4",
        title="fp16 sums, added outside once a K step",
        params={**_PACKED_4X, "promote": 1},
        expects=(_mma_half(32), _promotions(64), _NO_FP32_MMA, _ldmatrix(8), _ldmatrix2(8), _copies(4), *_PIPELINE),
        idea="Two mma sum 32 products in fp16 before they go to fp32 sums.",
        evidence=(_INSTRUCTIONS, *_TIMES),
        gain_over="ada.packed_4x",
        compute=_half_sums(32),
        headers=_AUTHORS_ASYNC,
    ),
    _kernel(
        name="tiled_4x",
        rung="4.0",
        title="K step of 64",
        launch=_tiled(128, 128, 3 * (128 + 128) * 64 * 2),
        expects=(_mma(64), _ldmatrix(24), _copies(8), *_PIPELINE),
        params={"bm": 128, "bn": 128, "bk": 64, "mma_m": 4, "mma_n": 4, "stages": 3},
        idea="A K step of 64, each row a line of shared memory; ldmatrix brings two fragments of B: half the barriers.",
        evidence=(_L2, _LOAD_CONFLICTS, _CYCLES, _TIME),
        headers=_ASYNC,
        story=Story(gain_over="ada.packed_4x"),
    ),
    _kernel(
        name="warp_tiles",
        rung="4.1",
        title="64 x 64 per warp",
        launch=_tiled(256, 128, 3 * _SLOT),
        expects=(_mma(128), _ldmatrix(32), _copies(12), *_PIPELINE),
        params={**_LARGE, "stages": 3},
        idea="4 x 8 tiles per warp, 256 x 128 per block: a third fewer shared-memory bytes read per product.",
        evidence=(_L2, _LOAD_CONFLICTS, _CYCLES, _TIME),
        headers=_ASYNC,
        targets=_ROOMY,
    ),
    _kernel(
        name="fragments",
        rung="4.2",
        title="Fragments prefetched",
        launch=_tiled(256, 128, 3 * _SLOT),
        expects=(_mma(128), _ldmatrix(32), _copies(12), *_PIPELINE),
        params={**_LARGE, "stages": 3},
        idea="Fragments of the next K slice are read before this one is multiplied.",
        evidence=(_LOAD_CONFLICTS, _CYCLES, _TIME),
        headers=_ASYNC,
        targets=_ROOMY,
    ),
    _kernel(
        name="l2_order",
        rung="4.3",
        title="Blocks in L2 order",
        launch=_one_dimensional(256, 128, 3 * _SLOT),
        expects=(_mma(128), _ldmatrix(32), _copies(12), *_PIPELINE),
        params={**_LARGE, "stages": 3, "group": 8},
        idea="Blocks that run at the same time share rows of A and columns of B in the L2.",
        evidence=(_DRAM, _TIME),
        headers=_ASYNC,
        targets=_ROOMY,
        gate_shapes=_SEVERAL_TILES,
    ),
    _kernel(
        name="tma",
        rung="4.4",
        title="Fed by TMA",
        launch=_persistent(256, 128, 4 * (_SLOT + _BARRIERS)),
        expects=(_mma(128), _ldmatrix(32), *_RING, _NO_ASYNC, _NO_LDG, _NO_STS, _PAIRS),
        params={**_LARGE, "stages": 4, "group": 8},
        idea="TMA fills the ring, mbarriers signal it, and blocks are persistent: no warp waits for all others.",
        evidence=(_INSTRUCTIONS, _CYCLES, _TIME),
        headers=_ENGINE,
        entry="mma_tma",
        targets=("90a",),
        min_capability=(9, 0),
        tensor_maps=_MAPS,
        gate_shapes=_SEVERAL_TILES,
    ),
    _kernel(
        name="stored",
        rung="4.5",
        title="Stored by TMA",
        launch=_persistent(256, 128, 3 * (_SLOT + _BARRIERS) + 8 * 2 * 16 * 64 * 4),
        expects=(
            _mma(128),
            _ldmatrix(32),
            *_RING,
            _NO_ASYNC,
            _NO_LDG,
            Expect(r"UTMASTG\.2D", "TMA stores C", least=2),
            Expect(r"STG\..*", "no thread stores to C", least=0, most=0),
        ),
        params={**_LARGE, "stages": 3, "group": 8},
        idea="TMA stores the sums from shared memory, half of a tile overlapped with the next one.",
        evidence=(_CYCLES, _TIME),
        headers=_ENGINE,
        entry="mma_stored",
        targets=("90a",),
        min_capability=(9, 0),
        tensor_maps={**_MAPS, "c": TensorMap(box=(16, 32), swizzle=128)},
        gate_shapes=_SEVERAL_TILES,
    ),
    _kernel(
        name="half_tiles",
        rung="4.6",
        title="256 x 256 in fp16 sums",
        launch=_persistent(256, 256, 3 * (2 * 256 * 64 * 2 + _BARRIERS) + 8 * 2 * 16 * 32 * 4),
        expects=(
            _mma_half(256),
            _NO_FP32_MMA,
            _ldmatrix(48),
            *_RING,
            _NO_ASYNC,
            _NO_LDG,
            Expect(r"UTMASTG\.2D", "TMA stores C", least=1),
            Expect(r"STG\..*", "no thread stores to C", least=0, most=0),
        ),
        params={**_LARGE, "bn": 256, "mma_n": 16, "stages": 3, "group": 8},
        idea="fp16 sums take half the registers, so a tile of twice the area fits: a third fewer bytes from the L2.",
        evidence=(_L2, _CYCLES, _TIME),
        compute=_half_sums(0),
        headers=(*_ENGINE, "common/mma_ada.cuh"),
        story=Story(gain_over="ada.stored"),
        targets=("90a",),
        min_capability=(9, 0),
        tensor_maps={"a": _MAPS["a"], "b": _MAPS["a"], "c": TensorMap(box=(16, 32), swizzle=128)},
        gate_shapes=(Shape(3328, 2824, 520),),
        timed_to=8192,
    ),
    *_NUMERICS,
)
