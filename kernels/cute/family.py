"""CuTe: a GEMM from its first version to three stages, in C++ and in the Python DSL, and CuTe on Hopper."""

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
    name="cute",
    title="CuTe, in C++ and in Python",
    article="cute",
    summary="C = A B in bf16 with fp32 sums, B K-major, by CuTe's layouts: mma.sync step by step, then wgmma and TMA.",
    figures=(
        "ratio",
        *("tile_layout", "pipeline"),
    ),
)

PACKAGES = ("nvidia-cutlass",)
"""Where CuTe's C++ headers come from."""
FLAGS = ("--expt-relaxed-constexpr",)
"""CuTe calls constexpr functions of the host's library in device code."""

_STAGE = (128 + 128) * 64 * 2
"""Bytes per stage: a 128 x 64 tile of A, and one of B."""
_TILE = {"bm": 128, "bn": 128, "bk": 64}


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _grid(stages: int) -> Callable[[Shape], Launch]:
    """One block per tile of 128 x 128, x over columns and y over rows of C."""

    def launch(shape: Shape) -> Launch:
        grid = (_ceil(shape.n, 128), _ceil(shape.m, 128), 1)
        return Launch(grid=grid, block=(128, 1, 1), shared_bytes=stages * _STAGE)

    return launch


def _line(stages: int) -> Callable[[Shape], Launch]:
    """One block per tile of 128 x 128, in a one-dimensional grid: the kernel works out which tile."""

    def launch(shape: Shape) -> Launch:
        tiles = _ceil(shape.n, 128) * _ceil(shape.m, 128)
        return Launch(grid=(tiles, 1, 1), block=(128, 1, 1), shared_bytes=stages * _STAGE)

    return launch


# Opcodes as cuobjdump prints them.
_MMA = Expect(r"HMMA\.16816\.F32\.BF16", "mma.sync m16n8k16, bf16 into fp32", least=128)
_LDSM = Expect(r"LDSM\.16\.M88\.4", "ldmatrix.x4 fills the registers", least=32)
_NARROW = Expect(r"LDSM\.16\.M88(\.2)?", "and no narrower ldmatrix", least=0, most=0)
_ASYNC = Expect(r"LDGSTS\.E\.BYPASS(\..*)?\.128(\..*)?", "cp.async of 16 bytes into shared memory", least=16)
_THROUGH_L1 = (
    Expect(r"LDGSTS\.E(?!\.BYPASS)(\..*)?\.128(\..*)?", "cp.async of 16 bytes, kept in L1 on the way", least=16),
    Expect(r"LDGSTS\.E\.BYPASS(\..*)?", "and none past L1", least=0, most=0),
)
_PLAIN = (
    Expect(r"LDG\..*", "no thread loads from A or B through registers", least=0, most=0),
    Expect(r"STS(\..*)?", "shared memory is written by cp.async alone", least=0, most=0),
)
_SINGLE_STORES = (
    Expect(r"STG\.E(\..*)?\.U16(\..*)?", "C is stored one element at a time", least=128, most=128),
    Expect(r"LDG\..*", "no thread loads from A or B through registers", least=0, most=0),
)
_WIDE_STORES = (Expect(r"STG\.E(\..*)?\.128(\..*)?", "C is stored 16 bytes at a time", least=16, most=16),)
_BARRIER = Expect(r"BAR\.SYNC.*", "one block-wide barrier per tile", least=1)

_TIME = "gpu__time_duration.sum"
_DRAM = "dram__bytes_read.sum"
_L2 = "lts__t_bytes.sum"
_CYCLES = "sm__cycles_elapsed.max"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
_ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
_HMMA = "sm__inst_executed_pipe_tensor_op_hmma.sum"
_HIT = "lts__t_sector_hit_rate.pct"
_WAVES = "launch__waves_per_multiprocessor"
_BY_REGISTERS = "launch__occupancy_limit_registers"
_BY_SHARED = "launch__occupancy_limit_shared_mem"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"


def _article_grid(stages: int, exchanged: bool = True) -> Callable[[Shape], Launch]:
    """One block per tile of 128 x 128, x over rows and y over columns of what the kernel computes.

    A kernel of the article stores C column-major: with A and B `exchanged` that is C row-major, its rows are C's
    columns. One stage is static shared memory.
    """

    def launch(shape: Shape) -> Launch:
        rows, cols = (shape.n, shape.m) if exchanged else (shape.m, shape.n)
        shared = stages * _STAGE if stages > 1 else 0
        return Launch(grid=(_ceil(rows, 128), _ceil(cols, 128), 1), block=(128, 1, 1), shared_bytes=shared)

    return launch


_EXCHANGED = ("b", "a", "c", "n", "m", "k")
"""C^T = B A^T: column-major C of the kernel is row-major C of the problem."""
_WHOLE = {"m": 128, "n": 128, "k": 64}
_COMPLETE = {"m": 128, "n": 1024, "k": 64}
"""Where the printed order of blocks leaves no tile out: the kernel's rows, the problem's n, in eights of tiles."""


def _article(
    name: str,
    rung: str,
    title: str,
    source: str,
    stages: int,
    published: str | None,
    idea: str,
    evidence: tuple[str, ...],
    swizzled: bool = False,
    gain_over: str = "",
) -> Kernel:
    """A rung with the article's own constants, layouts, copies and order."""
    return Kernel(
        id=f"cute.{name}",
        rung=rung,
        title=title,
        source=source,
        compute=Compute(dtype_in="bf16", dtype_out="bf16", layout="row,col,row"),
        code=Code(
            name,
            params={**_TILE, **({"stages": stages} if stages > 1 else {}), **({"group": 8} if swizzled else {})},
            packages=PACKAGES,
            flags=FLAGS,
            ptx="80",
        ),
        launch=_article_grid(stages),
        call=Call(arguments=_EXCHANGED),
        accepts=Accepts(multiple_of=_COMPLETE if swizzled else _WHOLE),
        promises=Promises(expects=(_MMA, _LDSM, _NARROW, *_THROUGH_L1, _BARRIER, *_SINGLE_STORES)),
        timing=Timing(baseline="cublas.gemm"),
        story=Story(article="cute", published_system=published, idea=idea, evidence=evidence, gain_over=gain_over),
    )


def _rung(
    name: str,
    rung: str,
    title: str,
    source: str,
    launch: Callable[[Shape], Launch],
    idea: str,
    evidence: tuple[str, ...],
    params: dict[str, int],
    expects: tuple[Expect, ...] = _PLAIN,
    gain_over: str = "",
) -> Kernel:
    """A step of the article in the project's form: copies past L1 that fill with zeros, any m, C row-major."""
    return Kernel(
        id=f"cute.{name}",
        rung=rung,
        title=title,
        source=source,
        compute=Compute(dtype_in="bf16", dtype_out="bf16", layout="row,col,row"),
        code=Code(name, params={**_TILE, **params}, packages=PACKAGES, flags=FLAGS, ptx="80"),
        launch=launch,
        call=Call(arguments=("a", "b", "c", "m", "n", "k")),
        accepts=Accepts(multiple_of={"n": 8, "k": 8}),
        promises=Promises(expects=(_MMA, _LDSM, _NARROW, _ASYNC, _BARRIER, *expects)),
        timing=Timing(baseline="cublas.gemm"),
        story=Story(idea=idea, evidence=evidence, gain_over=gain_over),
    )


def _bands(shape: Shape) -> Launch:
    """One block per tile of 128 x 128: x over the rows of tiles and within a band of columns, y over the bands."""
    cols = _ceil(shape.n, 128)
    band = 8 if cols > 5 else 4 if cols > 2 else 2 if cols > 1 else 1
    return Launch(
        grid=(_ceil(shape.m, 128) * band, _ceil(cols, band), 1), block=(128, 1, 1), shared_bytes=3 * _STAGE // 2
    )


def _dsl(
    name: str,
    rung: str,
    title: str,
    launch: Callable[[Shape], Launch],
    published: str | None,
    idea: str,
    evidence: tuple[str, ...],
    params: dict[str, int],
    expects: tuple[Expect, ...],
    gain_over: str = "",
    expected: str = "",
) -> Kernel:
    """A kernel of the Python DSL, whose entry point the DSL names after its function."""
    return Kernel(
        id=f"cute.{name}",
        rung=rung,
        title=title,
        source=f"{name}.py",
        compute=Compute(dtype_in="bf16", dtype_out="bf16", layout="row,col,row"),
        code=Code(f"{name}_0", compiler="cute_dsl", params={**_TILE, "stages": 3, **params}),
        launch=launch,
        call=Call(arguments=("a", "b", "c", "m", "n", "k")),
        platform=Platform(toolkits=("cuda13",)),
        accepts=Accepts(multiple_of={"n": 8, "k": 8}),
        promises=Promises(expects=(_NARROW, _BARRIER, *expects)),
        timing=Timing(baseline="cublas.gemm"),
        story=Story(
            article="cute" if published else None,
            published_system=published,
            idea=idea,
            evidence=evidence,
            expected=expected,
            gain_over=gain_over,
        ),
    )


_DSL_ARTICLE = Kernel(
    id="cute.dsl_article",
    rung="4p",
    title="Three stages, in the Python DSL",
    source="dsl_article.py",
    compute=Compute(dtype_in="bf16", dtype_out="bf16", layout="row,col,row"),
    code=Code("dsl_article_0", compiler="cute_dsl", params={**_TILE, "stages": 3, "group": 8}),
    launch=_article_grid(3),
    call=Call(arguments=_EXCHANGED),
    platform=Platform(toolkits=("cuda13",)),
    accepts=Accepts(multiple_of=_COMPLETE),
    promises=Promises(expects=(_MMA, _LDSM, _NARROW, *_THROUGH_L1, _BARRIER, *_SINGLE_STORES)),
    timing=Timing(baseline="cublas.gemm"),
    story=Story(
        article="cute",
        published_system="cute_dsl 3-stage",
        idea="Step 4 in Python, compiled ahead of time.",
        evidence=(_CYCLES, _TIME),
        gain_over="cute.article_three_stages",
    ),
)

_EXAMPLE = (
    Expect(r"HMMA\.16816\.F32\.BF16", "mma.sync m16n8k16, bf16 into fp32", least=64),
    Expect(r"LDSM\.16\.M88\.4", "ldmatrix.x4 fills the registers", least=16),
    Expect(r"LDGSTS\.E\.BYPASS(\..*)?\.128(\..*)?", "cp.async of 16 bytes into shared memory", least=8),
    Expect(r"STS", "sums are written to shared memory", least=64),
    Expect(r"STG\.E\.128", "C is stored in pieces of 16 bytes", least=16),
)

_DSL = (
    _DSL_ARTICLE,
    _dsl(
        "dsl_three_stages",
        "4p.1",
        "Three stages without branches, in the Python DSL",
        _line(3),
        None,
        "Step 4.1 in Python: copies past L1 that fill with zeros, so that nothing in the loop branches.",
        (_CYCLES, _TIME),
        {"group": 8},
        (_MMA, _LDSM, _ASYNC, *_PLAIN),
        gain_over="cute.three_stages",
    ),
    _dsl(
        "dsl_serpentine",
        "4p.2",
        "Serpentine order, in the Python DSL",
        _line(3),
        None,
        "Single instructions, in an order in which neighbours always share an operand, as in C++'s cute::gemm.",
        (_CYCLES, _TIME),
        {"group": 8},
        (_MMA, _LDSM, _ASYNC, *_PLAIN),
        gain_over="cute.dsl_three_stages",
    ),
    _dsl(
        "dsl_nvidia_design",
        "4n",
        "The design of NVIDIA's example, in the Python DSL",
        _bands,
        None,
        "Half the tile depth, C stored through shared memory, tiles walked in bands.",
        (_L2, _CYCLES, _TIME),
        {"bk": 32},
        _EXAMPLE,
        gain_over="cute.dsl_article",
        expected="0.95 of the article's kernel, as published for an A100; no other prediction was made.",
    ),
    _dsl(
        "dsl_nvidia_example",
        "4n.1",
        "NVIDIA's example in its own form, in the Python DSL",
        _bands,
        "NVIDIA CuTe DSL example",
        "Predicates of rows in a table, and a branch around the loads of a tile.",
        (_CYCLES, _TIME),
        {"bk": 32},
        _EXAMPLE,
        gain_over="cute.dsl_article",
    ),
)


def _copy() -> Kernel:
    """A copy by tiles through registers alone."""

    def launch(shape: Shape) -> Launch:
        return Launch(grid=(_ceil(shape.n, 64), _ceil(shape.m, 128), 1), block=(256, 1, 1))

    return Kernel(
        id="cute.copy",
        rung="0",
        title="Copy by tiles",
        source="0_copy.cu",
        compute=Compute(op="copy", dtype_in="bf16", dtype_out="bf16"),
        code=Code("copy_tiles", params={"bm": 128, "bn": 64}, packages=PACKAGES, flags=FLAGS, ptx="80"),
        launch=launch,
        accepts=Accepts(multiple_of={"n": 8}),
        promises=Promises(
            expects=(
                Expect(r"LDG\.E(\..*)?\.128(\..*)?", "four independent 128-bit loads", least=4, most=4),
                Expect(r"STG\.E(\..*)?\.128(\..*)?", "four 128-bit stores", least=4, most=4),
                Expect(r"(LDS|STS)(\..*)?", "nothing passes through shared memory", least=0, most=0),
            )
        ),
        timing=Timing(baseline="cuda.memcpy"),
        story=Story(idea="A layout maps threads to their 16 bytes; the copy follows from it."),
    )


def _staged_copy(
    name: str, rung: str, title: str, threads: int, published: str, idea: str, expects: tuple[Expect, ...]
) -> Kernel:
    """A copy of the article, by tiles of 128 x 64 through shared memory."""

    def launch(shape: Shape) -> Launch:
        return Launch(grid=(_ceil(shape.m, 128), _ceil(shape.n, 64), 1), block=(threads, 1, 1))

    return Kernel(
        id=f"cute.{name}",
        rung=rung,
        title=title,
        source=f"{rung}_{name}.cu",
        compute=Compute(op="copy", dtype_in="bf16", dtype_out="bf16"),
        code=Code(name, params={"bm": 128, "bn": 64}, packages=PACKAGES, flags=FLAGS, ptx="80"),
        launch=launch,
        accepts=Accepts(multiple_of={"m": 128, "n": 64}),
        promises=Promises(expects=(*expects, *_STAGED)),
        timing=Timing(baseline="cuda.memcpy"),
        story=Story(article="cute", published_system=published, idea=idea),
    )


_STAGED = (
    Expect(r"LDS(\..*)?\.128(\..*)?", "16 bytes at a time come back from shared memory", least=8),
    Expect(r"STG\.E(\..*)?\.128(\..*)?", "and are stored so", least=8),
)

_COPIES = (
    _copy(),
    _staged_copy(
        "copy_vectors",
        "0.1",
        "Copy through shared memory",
        32,
        "cute vector copy",
        "Into shared memory and out again by 16-byte loads and stores.",
        (Expect(r"LDG\.E(\..*)?\.128(\..*)?", "16-byte loads into registers", least=8),),
    ),
    _staged_copy(
        "copy_async",
        "0.2",
        "Asynchronous copy",
        32,
        "cute async copy",
        "cp.async brings a tile into shared memory without a register.",
        (Expect(r"LDGSTS\.E\.BYPASS(\..*)?\.128(\..*)?", "cp.async of 16 bytes past L1", least=8),),
    ),
    _staged_copy(
        "copy_swizzled",
        "0.3",
        "Asynchronous swizzled copy",
        64,
        "cute copy kernel 128x64 tile",
        "The tile lies in shared memory in the GEMM's swizzled layout.",
        (_THROUGH_L1[0], _THROUGH_L1[1]),
    ),
)


def _hopper() -> Kernel:
    """Beyond the article: wgmma and TMA through CuTe, designed like kernels/hopper/9_overlapped.cu."""
    shared = 4 * (128 + 256) * 64 * 2 + 2 * 128 * 64 * 2 + 2 * 4 * 8

    def launch(shape: Shape) -> Launch:
        clusters = min(card.sms() // 2, _ceil(shape.m, 256) * _ceil(shape.n, 256))
        return Launch(grid=(2 * clusters, 1, 1), block=(384, 1, 1), cluster=(2, 1, 1), shared_bytes=shared)

    return Kernel(
        id="cute.hopper",
        rung="5",
        title="wgmma and TMA",
        source="5_hopper.cu",
        compute=Compute(dtype_in="bf16", dtype_out="bf16", layout="row,col,row"),
        code=Code(
            "hopper",
            params={"bm": 128, "bn": 256, "bk": 64, "stages": 4, "group": 8, "cluster": 2},
            packages=PACKAGES,
            flags=FLAGS,
        ),
        launch=launch,
        call=Call(
            arguments=("map:a", "map:b", "map:c", "m", "n", "k"),
            tensor_maps={"a": TensorMap((128, 64)), "b": TensorMap((128, 64)), "c": TensorMap((16, 64))},
        ),
        platform=Platform(min_capability=(9, 0), targets=("90a",)),
        accepts=Accepts(multiple_of={"n": 8, "k": 8}),
        promises=Promises(
            expects=(
                Expect(
                    r"HGMMA\.64x256x16\.F32\.BF16", "wgmma of the widest kind, from shared memory into fp32", least=20
                ),
                Expect(r"UTMALDG\.2D", "TMA loads tiles of A", least=1),
                Expect(r"UTMALDG\.2D\.MULTICAST", "tiles of B are loaded once for the whole cluster", least=1),
                Expect(r"UTMASTG\.2D", "TMA stores C", least=4),
                Expect(r"STSM\.16\.M88\.4(\..*)?", "stmatrix stages the sums", least=16),
                Expect(r"SYNCS\.PHASECHK\..*TRYWAIT.*", "producer and consumers wait for each other's stages", least=2),
                Expect(r"USETMAXREG\..*", "the producer releases registers to the consumers", least=2),
                Expect(r"(LDG|STG)\..*", "no thread touches A, B or C itself", least=0, most=0),
                Expect(r"(LDSM|HMMA)\..*", "no instruction of older tensor-core paths", least=0, most=0),
            )
        ),
        timing=Timing(baseline="cublas.gemm"),
        story=Story(
            idea="The same layouts over wgmma, TMA, mbarriers and clusters.",
            evidence=(_L2, _CYCLES, _TIME),
            gain_over="cute.three_stages",
        ),
    )


def _dsl_hopper() -> Kernel:
    """`_hopper` in the Python DSL: the same launches, tensor maps and promises."""
    cpp = _hopper()
    return replace(
        cpp,
        id="cute.dsl_hopper",
        rung="5p",
        title="wgmma and TMA, in the Python DSL",
        source="dsl_hopper.py",
        code=Code("dsl_hopper_0", compiler="cute_dsl", params=cpp.params),
        platform=replace(cpp.platform, toolkits=("cuda13",)),
        story=Story(
            idea="Step 5 in Python, compiled ahead of time; the launcher's tensor maps are the DSL's copy atoms.",
            evidence=(_CYCLES, _TIME),
            gain_over="cute.hopper",
        ),
    )


_ARTICLE_EPILOGUE = replace(
    _article(
        "article_epilogue",
        "1.2",
        "C through shared memory",
        "1.2_article_epilogue.cu",
        1,
        None,
        "C goes out in 16-byte stores by way of shared memory.",
        (_SECTORS, _CYCLES, _TIME),
        gain_over="cute.article_base",
    ),
    launch=_article_grid(1, exchanged=False),
    call=Call(arguments=("a", "b", "c", "m", "n", "k")),
    promises=Promises(
        expects=(
            *(_MMA, _LDSM, _NARROW, *_THROUGH_L1, _BARRIER, *_WIDE_STORES),
            Expect(r"STS(\..*)?", "sums are written to shared memory", least=64),
        )
    ),
)
_ARTICLE_BYPASS = replace(
    _article(
        "article_bypass",
        "4.3",
        "Copies past L1",
        "4.3_article_bypass.cu",
        3,
        None,
        "The copies of three stages bypass L1.",
        (_WAVEFRONTS, _L2, _CYCLES, _TIME),
        swizzled=True,
        gain_over="cute.article_three_stages",
    ).with_code(headers=("cute/4_article_three_stages.cu",)),
    promises=Promises(expects=(_MMA, _LDSM, _NARROW, _ASYNC, _BARRIER, *_SINGLE_STORES)),
)
_UNSWIZZLED = _article(
    "article_unswizzled",
    "1.3",
    "Without the swizzle",
    "1.3_article_unswizzled.cu",
    1,
    None,
    "The first kernel with its layout's atom as it is.",
    (_CONFLICTS, _WAVEFRONTS, _CYCLES, _TIME),
    gain_over="cute.article_base",
).with_code(headers=("cute/1_article_base.cu",))
_ADJUSTED_BYPASS = replace(
    _ARTICLE_BYPASS,
    id="cute.adjusted_bypass",
    rung="4.4",
    title="Copies past L1, and their layout",
    source="4.4_adjusted_bypass.cu",
    code=replace(_ARTICLE_BYPASS.code, entry="adjusted_bypass"),
    story=Story(
        idea="A row's 128 bytes stay one line of shared memory.",
        evidence=(_WAVEFRONTS, _L2, _CYCLES, _TIME),
        gain_over="cute.article_bypass",
    ),
)

_CPP = (
    *_COPIES,
    _article(
        "article_base",
        "1",
        "Swizzled cp.async",
        "1_article_base.cu",
        1,
        "cute_cpp swizzled async copy",
        "cp.async into swizzled shared memory, ldmatrix, mma.sync; load, wait, compute.",
        (_CONFLICTS, _HMMA, _WAVES, _HIT, _CYCLES, _TIME),
    ),
    _rung(
        "base",
        "1.1",
        "Copies past L1, any shape",
        "1_base.cu",
        _grid(1),
        "Copies bypass L1 and fill with zeros; C is row-major, stored in pairs; fragments of 16 values of k at a time.",
        (_CONFLICTS, _HMMA, _WAVES, _HIT, _CYCLES, _TIME),
        {"stages": 1},
    ),
    _ARTICLE_EPILOGUE,
    _UNSWIZZLED,
    _article(
        "article_double_buffer",
        "2",
        "Double buffer",
        "2_article_double_buffer.cu",
        2,
        "cute_cpp double buffer",
        "The next tile is copied, and the next fragments are read, while this one is multiplied.",
        (_ISSUE, _BY_REGISTERS, _CYCLES, _TIME),
        gain_over="cute.article_base",
    ),
    _rung(
        "double_buffer",
        "2.1",
        "Double buffer, any shape",
        "2_double_buffer.cu",
        _grid(2),
        "The same with the project's copies and epilogue (1.1).",
        (_ISSUE, _BY_REGISTERS, _CYCLES, _TIME),
        {"stages": 2},
        gain_over="cute.base",
    ),
    _article(
        "article_l2_swizzle",
        "3",
        "The printed order of blocks",
        "3_article_l2_swizzle.cu",
        2,
        "cute_cpp L2 swizzle",
        "A block's tile is computed from its number; the formula gives back the tile that the block had.",
        (_DRAM, _HIT, _L2, _CYCLES, _TIME),
        swizzled=True,
    ),
    _rung(
        "l2_swizzle",
        "3.1",
        "A grouped order of blocks",
        "3_l2_swizzle.cu",
        _line(2),
        "Blocks in groups of eight rows share tiles in the L2.",
        (_DRAM, _HIT, _L2, _CYCLES, _TIME),
        {"stages": 2, "group": 8},
        gain_over="cute.double_buffer",
    ),
    _article(
        "article_three_stages",
        "4",
        "Three stages",
        "4_article_three_stages.cu",
        3,
        "cute_cpp 3-stage",
        "Two tiles are in flight while one is multiplied.",
        (_ISSUE, _BY_REGISTERS, _BY_SHARED, _CYCLES, _TIME),
        swizzled=True,
    ),
    _rung(
        "three_stages",
        "4.1",
        "Three stages, any shape",
        "4_three_stages.cu",
        _line(3),
        "The same with the project's copies, order and epilogue (3.1); no copy is guarded by a branch.",
        (_ISSUE, _BY_REGISTERS, _BY_SHARED, _CYCLES, _TIME),
        {"stages": 3, "group": 8},
        gain_over="cute.l2_swizzle",
    ),
    _rung(
        "shared_epilogue",
        "4.2",
        "C through shared memory, three stages",
        "4.1_shared_epilogue.cu",
        _line(3),
        "C is stored in whole rows from shared memory.",
        (_SECTORS, _CYCLES, _TIME),
        {"stages": 3, "group": 8},
        (_PLAIN[0], Expect(r"STS(\..*)?", "sums are written to shared memory", least=64), *_WIDE_STORES),
        gain_over="cute.three_stages",
    ),
    _ARTICLE_BYPASS,
    _ADJUSTED_BYPASS,
)

KERNELS = (*_CPP, *_DSL, _hopper(), _dsl_hopper())
