"""cuTile Python: vector addition, and the matrix product by tiles in every type that ct.mma takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from gemmrepro.core.dtypes import DTYPES
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
    Refusal,
    Run,
    Step,
    Story,
    Timing,
    Tunable,
    parameters,
    tuned,
)

FAMILY = Family(
    name="cutile",
    title="cuTile Python",
    article="cutile",
    summary="C = A B written in tiles: the compiler picks threads, pipeline and instruction, by architecture and type.",
    figures=("sizes", "throughput", "tiles"),
)

ONE_THREAD = (1, 1, 1)
"""What a launch is told of the block: its threads are the compiler's affair, and stand in the machine code."""

MULTIPROCESSORS = 132
"""Of an H200. A kernel whose blocks stay is right with any number of blocks, and fast with as many as fit the GPU."""

AMPERE = ("80", "86", "89")
WITH_TMA = ("90", "100", "120")
SYNC = (*AMPERE, "120")
"""Without wgmma and tcgen05.mma: operands and sums share the registers, and tiles chosen for Hopper may not fit."""

# Opcodes as cuobjdump prints them, by type: of Hopper, of a B200, of a GPU with mma.sync and no more.
_TENSOR: Mapping[str, tuple[str, str, str]] = {
    "fp16": (r"HGMMA\.64x\d+x16\.F32", r"UTCHMMA(\..*)?", r"HMMA\.16816\.F32"),
    "bf16": (r"HGMMA\.64x\d+x16\.F32\.BF16", r"UTCHMMA(\..*)?", r"HMMA\.16816\.F32\.BF16"),
    "tf32": (r"HGMMA\.64x\d+x8\.F32\.TF32", r"UTCHMMA(\..*)?", r"HMMA\.1688\.F32\.TF32"),
    "fp8_e4m3": (r"QGMMA\.64x\d+x32\.F32\.E4M3\.E4M3", r"UTCQMMA(\..*)?", r"QMMA\.16832\.F32\.E4M3\.E4M3"),
    "fp8_e5m2": (r"QGMMA\.64x\d+x32\.F32\.E5M2\.E5M2", r"UTCQMMA(\..*)?", r"QMMA\.16832\.F32\.E5M2\.E5M2"),
    "int8": (r"IGMMA\.64x\d+x32\.S8\.S8\.SAT", r"UTCIMMA(\..*)?", r"IMMA\.16832\.S8\.S8\.SAT"),
}
_OUT = {"tf32": "fp32", "fp8_e4m3": "fp16", "fp8_e5m2": "fp16", "int8": "int32"}
_SUMS = {"fp64": "fp64", "int8": "int32"}

_NO_FP8 = Refusal(
    AMPERE,
    r"float8_e\dm\d\w* is not supported on sm_8\d",
    "cuTile multiplies 8-bit floats from Hopper on, although sm_89 has an instruction for them",
)

_COPIES = (
    Expect(r"UTMALDG\.2D(\..*)?", "tiles of A and of B are loaded by the copy engine", 2, archs=WITH_TMA),
    Expect(r"UTMASTG\.2D(\..*)?", "C is stored by the copy engine", archs=WITH_TMA),
    Expect(r"LDGSTS(\..*)?\.128(\..*)?", "without one, cp.async of 16 bytes brings them", 8, archs=AMPERE),
)
_ELEMENTWISE = (
    Expect(r"(HGMMA|UTCHMMA|HMMA)\..*|UTCHMMA", "the tensor core multiplies all the same", 4),
    Expect(r"LDG\.E\.U16", "rows that begin anywhere are loaded element by element", 32),
    Expect(r"UTMALDG\.2D(\..*)?", "which no copy engine does", 0, 0),
)
_FP64 = (
    Expect(r"UTMALDG\.2D(\..*)?", "tiles of A and of B are loaded by the copy engine", 2, archs=("90", "100")),
    Expect(r"\w*MMA(\..*)?", "the compiler maps fp64 to no tensor core: neither DMMA nor any other", 0, 0),
    Expect(r"DFMA(\..*)?", "and fuses no product with its sum", 0, 0),
    Expect(r"DMUL(\..*)?", "it multiplies by the ordinary unit", 64),
    Expect(r"DADD(\..*)?", "and adds in an instruction of its own", 64),
)


_OUTER = (
    Expect(r"DFMA(\..*)?", "products are fused with their sums", 256),
    Expect(r"(DMUL|DADD)(\..*)?", "and none is left", 0, 0),
    Expect(r"\w*MMA(\..*)?", "the tensor core has no part in it", 0, 0),
)


def _expects(dtype: str) -> tuple[Expect, ...]:
    """What the machine code of a matrix product in `dtype` must hold, by architecture."""
    if dtype == "fp64":
        return _FP64
    hopper, blackwell, sync = _TENSOR[dtype]
    return (
        Expect(hopper, "wgmma, a warpgroup an instruction", 4, archs=("90",)),
        Expect(blackwell, "tcgen05.mma, sums in tensor memory", 1, archs=("100",)),
        Expect(sync, "mma.sync, a warp an instruction", 64, archs=SYNC),
        *_COPIES,
    )


def _last_expects(dtype: str) -> tuple[Expect, ...]:
    """What the machine code of a tile of 64 x 64 must hold, in 16 bits."""
    hopper, blackwell, sync = _TENSOR[dtype]
    return (
        Expect(hopper.replace(r"\d+", "64", 1), "the smallest tile of wgmma", 4, archs=("90",)),
        Expect(blackwell, "tcgen05.mma, sums in tensor memory", 1, archs=("100",)),
        Expect(sync, "mma.sync, a warp an instruction", 32, archs=SYNC),
        *_COPIES,
    )


def _grid(bm: int, bn: int, most: int = 0) -> Callable[[Shape], Launch]:
    """A block a tile, or `most` blocks. With several CTAs a block, the grid still counts blocks."""

    def launch(shape: Shape) -> Launch:
        tiles = -(-shape.m // bm) * -(-shape.n // bn)
        return Launch(grid=(min(tiles, most or tiles), 1, 1), block=ONE_THREAD)

    return launch


_SPILLS = {
    "persistent_fp16": ("86", "89", "120"),
    "persistent_tf32": SYNC,
    "persistent_int8": ("86", "89"),
    "persistent_fp8_e4m3_fast": ("120",),
    "turned_tf32": SYNC,
    "tail_fp16": ("86", "89", "120"),
    "tail_bf16": ("86", "89"),
}
"""Where what was chosen on Hopper does not fit the registers, by kernel, read from its machine code."""


def _baseline(k_major: bool, fast: int) -> str:
    """cuBLAS in the same layout, its sums of 8-bit floats kept where the kernel keeps them."""
    return "cublas.gemm_fast" if fast else "cublas.gemm_k_major" if k_major else "cublas.gemm"


def _product(
    source: str,
    dtype: str,
    tile: tuple[int, int, int],
    rung: str,
    title: str,
    idea: str,
    name: str = "",
    published: str | None = None,
    constants: Mapping[str, int] | None = None,
    hints: Mapping[str, int] | None = None,
    k_major: bool = False,
    group: int = 8,
    baseline: str | None = "",
    spills: tuple[str, ...] = (),
    gain_over: str = "",
    aligned: bool = True,
    expects: tuple[Expect, ...] | None = None,
    timed: bool = True,
    timed_to: int = 0,
    blocks: int = 0,
) -> Kernel:
    """A matrix product; an empty `baseline` is cuBLAS in its layout. Without `aligned` nothing is promised of rows.

    `hints` are for the compiler; one that is 0 is left to it. At most `blocks` blocks are launched, 0: one a tile.
    """
    bm, bn, bk = tile
    params = {"bm": bm, "bn": bn, "bk": bk, "group": group, **(constants or {})}
    out, entry = _OUT.get(dtype, dtype), source.split("_", 1)[1].removesuffix(".py")
    step = 16 // DTYPES[dtype]
    given = ",".join(f"{hint}={value}" for hint, value in (hints or {}).items() if value)
    return Kernel(
        id=f"cutile.{name or f'{entry}_{dtype}'}",
        rung=rung,
        title=title,
        source=source,
        compute=Compute(
            dtype_in=dtype,
            dtype_acc=_SUMS.get(dtype, "fp32"),
            dtype_out=out,
            layout="row,col,row" if k_major else "row,row,row",
        ),
        code=Code(
            entry, compiler="cutile", params=params, defines=parameters(params) | ({"HINTS": given} if given else {})
        ),
        launch=_grid(bm, bn, blocks),
        call=Call(arguments=("array:a", "array:b", "array:c")),
        platform=Platform(toolkits=("cuda13",)),
        accepts=Accepts(multiple_of={"n": step, "k": step} if aligned else {}),
        promises=Promises(
            expects=_expects(dtype) if expects is None else expects,
            spills=spills or _SPILLS.get(name, ()),
            refusals=(_NO_FP8,) if dtype.startswith("fp8") else (),
        ),
        timing=Timing(
            baseline=_baseline(k_major, (constants or {}).get("fast", 0)) if baseline == "" else baseline,
            timed=timed,
            timed_to=timed_to,
        ),
        story=Story(article="cutile", published_system=published, idea=idea, gain_over=gain_over),
    )


def _by_rows(dtype: str, tile: tuple[int, int, int], idea: str, **options) -> Kernel:
    return _product("1_matmul.py", dtype, tile, "C1", f"Tile matmul, {dtype}", idea, **options)


def _by_columns(dtype: str, tile: tuple[int, int, int], idea: str, fast: int = 0, **options) -> Kernel:
    return _product(
        "2_k_major.py",
        dtype,
        tile,
        "C2",
        f"B K-major, {dtype}",
        idea,
        constants={"fast": fast},
        k_major=True,
        **options,
    )


def _staying(dtype: str, tile: tuple[int, int, int], idea: str, k_major: bool, fast: int = 0, **options) -> Kernel:
    """The product by as many blocks as an H200 holds at a time."""
    hints = options.get("hints", {})
    return _product(
        "4_persistent.py",
        dtype,
        tile,
        "C4",
        f"Blocks that stay, {dtype}",
        idea,
        constants={"k_major": int(k_major), "fast": fast},
        k_major=k_major,
        **(
            {"group": 16, "blocks": MULTIPROCESSORS * (hints.get("occupancy") or 1) // hints.get("num_ctas", 1)}
            | options
        ),
    )


def _left_over(shape: Shape, tile: tuple[int, int, int], parts: int) -> tuple[int, int]:
    """Tiles that full waves take, and those of the last one: none where their parts are more than a wave."""
    tiles = -(-shape.m // tile[0]) * -(-shape.n // tile[1])
    rest = tiles % MULTIPROCESSORS
    return (tiles - rest, rest) if rest * parts <= MULTIPROCESSORS else (tiles, 0)


def _ending_small(dtype: str, group: int, idea: str, name: str, k_major: bool = False, **options) -> Kernel:
    """The product in 16 bits by blocks that stay, the last wave in tiles of 64 x 64 where it is nearly empty."""
    tile, least, constants = (128, 128, 64), (64, 64), {"k_major": int(k_major), "fast": 0}
    kernel = _product(
        "5_tail.py",
        dtype,
        tile,
        "C5",
        f"Small tiles last, {dtype}",
        idea,
        name=name,
        constants=constants,
        k_major=k_major,
        group=group,
        **options,
    )
    parts = tile[0] // least[0] * (tile[1] // least[1])
    params = {"bm": tile[0], "bn": tile[1], "bk": tile[2], "group": group, "tm": least[0], "tn": least[1], **constants}

    def waves(shape: Shape) -> Launch:
        return Launch(grid=(max(1, min(_left_over(shape, tile, parts)[0], MULTIPROCESSORS)), 1, 1), block=ONE_THREAD)

    def last(shape: Shape) -> Launch:
        return Launch(grid=(max(1, _left_over(shape, tile, parts)[1] * parts), 1, 1), block=ONE_THREAD)

    def steps(shape: Shape) -> tuple[Step, ...]:
        """What of the two has a tile to do."""
        whole, rest = _left_over(shape, tile, parts)
        given = (*kernel.call.arguments, whole)
        first = Step("full_waves", waves, given)
        second = Step("last_wave", last, given, params=params, defines=parameters(params), expects=_last_expects(dtype))
        return (first,) * (whole > 0) + (second,) * (rest > 0)

    # 12 x 12 tiles: a full wave, and twelve tiles left over, of which some reach beyond the matrix.
    return replace(
        kernel.with_promises(gate_shapes=(Shape(1500, 1480, 200),)),
        launch=waves,
        code=replace(kernel.code, entry="full_waves"),
        run=Run(steps=steps),
    )


def _turned(rows: int, columns: int, tile: tuple[int, int, int], group: int, idea: str, **options) -> Kernel:
    """The product in TF32 of B by rows, which a launch of its own turns round in tiles of rows x columns first."""
    kernel = _product(
        "6_turned.py",
        "tf32",
        tile,
        "C6",
        "B turned round first, tf32",
        idea,
        name="turned_tf32",
        group=group,
        blocks=MULTIPROCESSORS,
        **options,
    )
    params = {"rows": rows, "columns": columns}

    def tiles(shape: Shape) -> Launch:
        return Launch(grid=(-(-shape.k // rows) * -(-shape.n // columns), 1, 1), block=ONE_THREAD)

    turn = Step(
        "turn",
        tiles,
        ("array:b", "array:turned"),
        params=params,
        defines=parameters(params),
        expects=(Expect(r"STG\.E\.128(\..*)?|UTMASTG\.2D(\..*)?", "16 bytes a store, or the copy engine"),),
    )
    arguments = ("array:a", "array:turned", "array:c")
    return replace(
        kernel,
        code=replace(kernel.code, entry="multiply"),
        call=replace(kernel.call, arguments=arguments),
        run=Run(
            steps=(turn, Step("multiply", kernel.launch, arguments)),
            workspace={"turned": Buffer("tf32", lambda shape: (shape.n, shape.k), (1, 4))},
        ),
    )


_FOUND = "Tile and hints found by trying on this GPU."
_SMALLER = "The smaller tile, of one warpgroup that multiplies."
_LAST = "Tiles left over by full waves are cut in four, if all of them then fit one wave."


_VECTOR_ADD = Kernel(
    id="cutile.vector_add",
    rung="C0",
    title="Vector addition",
    source="0_vector_add.py",
    compute=Compute(op="vector_add"),
    code=Code("vector_add", compiler="cutile", params={"tile": 16}, defines=parameters({"tile": 16})),
    launch=lambda shape: Launch(grid=(-(-shape.n // 16), 1, 1), block=ONE_THREAD),
    call=Call(arguments=("array:a", "array:b", "array:c")),
    platform=Platform(toolkits=("cuda13",)),
    promises=Promises(
        expects=(
            Expect(r"LDG\.E(\..*)?", "one load of x and one of y", 2, 2),
            Expect(r"STG\.E(\..*)?", "one store of z", 1, 1),
            Expect(r"FADD(\..*)?", "one addition", 1, 1),
        )
    ),
    timing=Timing(baseline=None),
    story=Story(article="cutile", idea="A block a tile of 16 elements; what a thread does is nowhere said."),
)

_WRITTEN = (
    _VECTOR_ADD,
    _by_rows("fp16", (128, 128, 64), "ct.load, ct.mma, ct.store: no more.", published="cuTile matmul", spills=("80",)),
    _by_rows("bf16", (128, 128, 64), "The same in bf16.", spills=("80",)),
    _by_rows("tf32", (128, 128, 32), "fp32 in memory, cast as a tile.", published="cuTile matmul", spills=SYNC),
    _by_rows(
        "fp8_e5m2",
        (128, 64, 128),
        "8-bit floats; B must be turned round for Hopper's wgmma.",
        published="cuTile matmul",
        baseline=None,  # cuBLAS multiplies no e5m2 by e5m2, and no B by rows
    ),
    _by_rows("fp8_e4m3", (128, 64, 128), "The other 8-bit float.", baseline=None),
    _by_rows("int8", (128, 128, 128), "8-bit integers, summed in int32.", spills=SYNC),
    _by_rows(
        "fp64",
        (128, 128, 16),
        "fp64 with fp64 sums, and no tensor core.",
        published="cuTile matmul",
        spills=(*SYNC, "90", "100"),
        timed_to=8192,
    ),
    _by_rows(
        "fp64",
        (32, 32, 16),
        "Tiles so small that their sums stay in registers.",
        name="matmul_fp64_small",
        published="cuTile matmul, smaller tiles",
        gain_over="cutile.matmul_fp64",
        spills=AMPERE,
        timed_to=8192,
    ),
    _by_rows(
        "fp16",
        (64, 64, 32),
        "Nothing promised of the rows: any shape, element by element.",
        name="any_shape",
        aligned=False,
        baseline=None,
        timed=False,
        expects=_ELEMENTWISE,
    ),
    _by_columns("fp16", (128, 128, 64), "K is contiguous in A and in B.", spills=("80",)),
    _by_columns("bf16", (128, 128, 64), "The same in bf16.", spills=("80",)),
    _by_columns("tf32", (128, 128, 32), "The order in which wgmma reads 32-bit operands."),
    _by_columns("fp8_e4m3", (128, 64, 128), "The order in which wgmma reads 8-bit operands."),
    _by_columns("fp8_e5m2", (128, 64, 128), "The same in e5m2.", baseline=None),
    _by_columns("int8", (128, 128, 128), "The same for 8-bit integers."),
    _by_columns(
        "fp8_e4m3",
        (128, 128, 128),
        "Sums stay in the tensor core, to some 14 bits.",
        fast=1,
        name="k_major_fp8_e4m3_fast",
        gain_over="cutile.k_major_fp8_e4m3",
    ),
    _by_columns(
        "fp8_e4m3",
        (128, 128, 128),
        "Eight worker warps share the two sets of sums of a wider tile.",
        name="k_major_fp8_e4m3_wide",
        group=16,
        hints={"num_worker_warps": 8},
        gain_over="cutile.k_major_fp8_e4m3",
    ),
    _product(
        "3_outer.py",
        "fp64",
        (128, 64, 8),
        "C3",
        "Outer products, fp64",
        "Products and sums without ct.mma, so that the compiler fuses them.",
        gain_over="cutile.matmul_fp64",
        expects=_OUTER,
        spills=AMPERE,
        timed_to=8192,
    ),
    _staying(
        "bf16",
        (128, 256, 64),
        "A block a multiprocessor, eight worker warps, a tile as large as they can hold.",
        False,
        name="persistent_bf16",
        hints={"num_worker_warps": 8},
    ),
    _staying("fp16", (128, 128, 64), _SMALLER, False, name="persistent_fp16"),
    _staying("tf32", (128, 128, 32), _SMALLER, True, name="persistent_tf32"),
    _staying("int8", (128, 128, 128), _SMALLER, True, name="persistent_int8"),
    _staying("fp8_e4m3", (128, 128, 128), _SMALLER, True, fast=1, name="persistent_fp8_e4m3_fast"),
    _ending_small("fp16", 8, _LAST, name="tail_fp16", gain_over="cutile.persistent_fp16_tuned"),
    _ending_small("bf16", 16, _LAST, name="tail_bf16", gain_over="cutile.persistent_bf16_tuned"),
    _turned(
        64,
        64,
        (128, 128, 32),
        8,
        "One launch turns B round, once for all rows of tiles of C.",
        gain_over="cutile.matmul_tf32_tuned",
    ),
)


_HINTS = ("num_worker_warps", "occupancy", "num_ctas")


def _fits(dtype: str, sets: int = 1) -> Callable[[Mapping[str, int]], bool]:
    """Whether constants can be fast on Hopper at all; with two `sets` of sums where they are added up in fp32."""

    def allowed(params: Mapping[str, int]) -> bool:
        bm, bn, ctas, crowd = params["bm"], params["bn"], params["num_ctas"], params["occupancy"] or 1
        warps = params["num_worker_warps"] or 4
        stage = (bm + bn) * params["bk"] * DTYPES[dtype] // ctas
        sums = sets * bm * bn // ctas // (32 * warps)
        return (
            # Two warpgroups at the least have work on a multiprocessor, of one block or of two.
            (warps == 8) + (crowd == 2) + (bm * bn // ctas >= 128 * 128) >= 1
            and not (warps == 8 and crowd == 2)
            and not (ctas == 2 and crowd == 2)
            and 64 <= sums <= 128  # registers a thread that adds; with all else 255 at most
            and 3 * stage * crowd <= 220 * 1024  # three stages, so that two are on their way
            and bm // ctas >= 64
            and params["group"] * bm in (1024, 2048)  # rows of A that blocks at work at one time share
        )

    return allowed


def _tunable(dtype: str, k_major: bool, fast: bool = False) -> Tunable:
    """The product in `dtype` with tiles and hints to be searched."""
    name = f"{'k_major' if k_major else 'matmul'}_{dtype}{'_fast' if fast else ''}_tuned"
    make = _by_columns if k_major else _by_rows

    def kernel(params: Mapping[str, int]) -> Kernel:
        return make(
            dtype,
            (params["bm"], params["bn"], params["bk"]),
            _FOUND,
            name=name,
            group=params["group"],
            hints={hint: params[hint] for hint in _HINTS},
            **({"fast": int(fast)} if k_major else {}),
        )

    space = {
        "bm": (64, 128, 256),
        "bn": (64, 128, 256),
        "bk": (128 // DTYPES[dtype], 256 // DTYPES[dtype]),  # rows of one or two widest swizzles
        "group": (8, 16),
        "num_worker_warps": (0, 8),
        "occupancy": (0, 2),
        "num_ctas": (1, 2),
    }
    return Tunable(f"cutile.{name}", space, _fits(dtype, 2 if dtype.startswith("fp8") and not fast else 1), kernel)


def _staying_tunable(dtype: str, k_major: bool, fast: bool = False) -> Tunable:
    """The product by blocks that stay, with the large tiles and eight worker warps that it needs to be of use."""
    name = f"persistent_{dtype}{'_fast' if fast else ''}_tuned"

    def kernel(params: Mapping[str, int]) -> Kernel:
        return _staying(
            dtype,
            (params["bm"], params["bn"], params["bk"]),
            _FOUND,
            k_major,
            fast=int(fast),
            name=name,
            group=params["group"],
            hints={hint: params[hint] for hint in _HINTS},
        )

    space = {
        "bm": (128, 256),
        "bn": (128, 256),
        "bk": (128 // DTYPES[dtype], 256 // DTYPES[dtype]),
        "group": (8, 16),
        "num_worker_warps": (0, 8),
        "occupancy": (0,),
        "num_ctas": (1, 2),
    }
    return Tunable(f"cutile.{name}", space, _fits(dtype), kernel)


TUNABLES = (
    *(_tunable(dtype, False) for dtype in ("fp16", "bf16", "tf32", "int8")),
    *(_tunable(dtype, True) for dtype in ("bf16", "tf32", "int8", "fp8_e4m3")),
    _tunable("fp8_e4m3", True, fast=True),
    *(_staying_tunable(dtype, False) for dtype in ("fp16", "bf16")),
    *(_staying_tunable(dtype, True) for dtype in ("tf32", "int8")),
    _staying_tunable("fp8_e4m3", True, fast=True),
)
"""What no kernel of the article is: the same sources with other constants. Nothing is built of them before a search."""

KERNELS = (*_WRITTEN, *(kernel for tunable in TUNABLES for kernel in tuned(tunable)))
