"""cuTile Python: vector addition, and the tiled matrix product in every type that ct.mma takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

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
    card,
    parameters,
    tuned,
)

FAMILY = Family(
    name="cutile",
    title="cuTile Python",
    article="cutile",
    summary="C = A B written in tiles: the compiler picks threads, pipeline and instruction per architecture and type.",
    figures=("ratio", "tiles"),
)

ONE_THREAD = (1, 1, 1)
"""The block of every launch: the compiler chooses the number of threads, and records it in the machine code."""

AMPERE = ("80", "86", "89")
WITH_TMA = ("90", "100", "120")
SYNC = (*AMPERE, "120")
"""Targets without wgmma and tcgen05.mma: operands share the registers with sums, so Hopper's tiles may not fit."""

# Opcodes as cuobjdump prints them, by type: on Hopper, on a B200, on a GPU with mma.sync only.
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
    Expect(r"UTMALDG\.2D(\..*)?", "TMA loads tiles of A and B", 2, archs=WITH_TMA),
    Expect(r"UTMASTG\.2D(\..*)?", "TMA stores C", archs=WITH_TMA),
    Expect(r"LDGSTS(\..*)?\.128(\..*)?", "without TMA, cp.async loads 16 bytes at a time", 8, archs=AMPERE),
)
_ELEMENTWISE = (
    Expect(r"(HGMMA|UTCHMMA|HMMA)\..*|UTCHMMA", "the tensor core still multiplies", 4),
    Expect(r"LDG\.E\.U16", "rows of any alignment are loaded element by element", 32),
    Expect(r"UTMALDG\.2D(\..*)?", "TMA cannot load them", 0, 0),
)
_FP64 = (
    Expect(r"UTMALDG\.2D(\..*)?", "TMA loads tiles of A and B", 2, archs=("90", "100")),
    Expect(r"\w*MMA(\..*)?", "the compiler uses no tensor core for fp64, neither DMMA nor any other", 0, 0),
    Expect(r"DFMA(\..*)?", "and fuses no product with its sum into an FMA", 0, 0),
    Expect(r"DMUL(\..*)?", "it multiplies on the fp64 pipe", 64),
    Expect(r"DADD(\..*)?", "and adds in a separate instruction", 64),
)


_OUTER = (
    Expect(r"DFMA(\..*)?", "products and sums are fused into FMAs", 256),
    Expect(r"(DMUL|DADD)(\..*)?", "and no separate product or sum is left", 0, 0),
    Expect(r"\w*MMA(\..*)?", "no tensor core is used", 0, 0),
)


def _expects(dtype: str) -> tuple[Expect, ...]:
    """What the machine code of a matrix product in `dtype` must hold, by architecture."""
    if dtype == "fp64":
        return _FP64
    hopper, blackwell, sync = _TENSOR[dtype]
    return (
        Expect(hopper, "wgmma, one warpgroup per instruction", 4, archs=("90",)),
        Expect(blackwell, "tcgen05.mma, sums in tensor memory", 1, archs=("100",)),
        Expect(sync, "mma.sync, one warp per instruction", 64, archs=SYNC),
        *_COPIES,
    )


def _last_expects(dtype: str) -> tuple[Expect, ...]:
    """What the machine code of a tile of 64 x 64 must hold, in 16 bits."""
    hopper, blackwell, sync = _TENSOR[dtype]
    return (
        Expect(hopper.replace(r"\d+", "64", 1), "the smallest tile of wgmma", 4, archs=("90",)),
        Expect(blackwell, "tcgen05.mma, sums in tensor memory", 1, archs=("100",)),
        Expect(sync, "mma.sync, one warp per instruction", 32, archs=SYNC),
        *_COPIES,
    )


_SPILLS = {
    "persistent_fp16": ("86", "89", "120"),
    "persistent_tf32": SYNC,
    "persistent_int8": ("86", "89"),
    "persistent_fp8_e4m3_fast": ("120",),
    "turned_tf32": SYNC,
    "tail_fp16": ("86", "89", "120"),
    "tail_bf16": ("86", "89"),
}
"""Targets on which constants chosen for Hopper spill registers, by kernel, as its machine code shows."""


@dataclass(frozen=True)
class _Tiles:
    """How a product is cut into tiles, and how they are mapped to the GPU.

    Attributes:
        bm, bn, bk: rows and columns of a tile of C, depth of a K iteration.
        group: rows of tiles that consecutive blocks walk together, to share operands in the L2.
        persistent: whether only as many blocks are launched as the GPU holds at a time.
        hints: for the compiler; one that is 0 is left to it.
    """

    bm: int
    bn: int
    bk: int
    group: int = 8
    persistent: bool = False
    hints: Mapping[str, int] = field(default_factory=dict)

    @property
    def params(self) -> dict[str, int]:
        return {"bm": self.bm, "bn": self.bn, "bk": self.bk, "group": self.group}

    @property
    def resident(self) -> int:
        """Blocks that the GPU holds at a time."""
        return card.sms() * (self.hints.get("occupancy") or 1) // self.hints.get("num_ctas", 1)

    @property
    def staying(self) -> _Tiles:
        """The same, with persistent blocks."""
        return replace(self, persistent=True)


def _grid(tiles: _Tiles) -> Callable[[Shape], Launch]:
    """One block per tile, or as many as stay. With several CTAs per block, the grid still counts blocks."""

    def launch(shape: Shape) -> Launch:
        count = -(-shape.m // tiles.bm) * -(-shape.n // tiles.bn)
        return Launch(grid=(min(count, tiles.resident) if tiles.persistent else count, 1, 1), block=ONE_THREAD)

    return launch


def _story(idea: str, published: str | None = None, gain_over: str = "") -> Story:
    return Story(article="cutile", published_system=published, idea=idea, gain_over=gain_over)


def _timing(k_major: bool, fast: int = 0, timed_to: int = 0) -> Timing:
    """Against cuBLAS in the same layout, its sums of 8-bit floats kept where the kernel keeps them."""
    baseline = "cublas.gemm_fast" if fast else "cublas.gemm_k_major" if k_major else "cublas.gemm"
    return Timing(baseline=baseline, timed_to=timed_to)


_NOT_IN_CUBLAS = Timing(baseline=None)
"""cuBLAS multiplies no e5m2 by e5m2, and no row-major B in 8-bit floats."""


def _product(
    source: str,
    rung: str,
    title: str,
    dtype: str,
    tiles: _Tiles,
    story: Story,
    name: str = "",
    constants: Mapping[str, int] | None = None,
    k_major: bool = False,
    timing: Timing | None = None,
) -> Kernel:
    """A matrix product, by default against cuBLAS in its layout; `constants` of the source beside those of `tiles`."""
    constants = constants or {}
    params = {**tiles.params, **constants}
    entry, chunk = source.split("_", 1)[1].removesuffix(".py"), 16 // DTYPES[dtype]
    hints = ",".join(f"{hint}={value}" for hint, value in tiles.hints.items() if value)
    return Kernel(
        id=f"cutile.{name or f'{entry}_{dtype}'}",
        rung=rung,
        title=f"{title}, {dtype}",
        source=source,
        compute=Compute(
            dtype_in=dtype,
            dtype_acc=_SUMS.get(dtype, "fp32"),
            dtype_out=_OUT.get(dtype, dtype),
            layout="row,col,row" if k_major else "row,row,row",
        ),
        code=Code(
            entry, compiler="cutile", params=params, defines=parameters(params) | ({"HINTS": hints} if hints else {})
        ),
        launch=_grid(tiles),
        call=Call(arguments=("array:a", "array:b", "array:c")),
        platform=Platform(toolkits=("cuda13",)),
        accepts=Accepts(multiple_of={"n": chunk, "k": chunk}),
        promises=Promises(
            expects=_expects(dtype),
            spills=_SPILLS.get(name, ()),
            refusals=(_NO_FP8,) if dtype.startswith("fp8") else (),
        ),
        timing=timing or _timing(k_major, constants.get("fast", 0)),
        story=story,
    )


def _row_major(dtype: str, tiles: _Tiles, story: Story, name: str = "", timing: Timing | None = None) -> Kernel:
    return _product("1_matmul.py", "C1", "Tile matmul", dtype, tiles, story, name, timing=timing)


BLACKWELL_OR_HOPPER = ("90", "100")
"""Targets with clusters, for which the article's program tries these tiles; on sm_120 it tries others."""

_PUBLISHED_SPILLS = {"fp8_e5m2": ("90",), "fp64": BLACKWELL_OR_HOPPER}
"""Targets on which the article's tiles spill registers: Hopper's second set of sums of 8-bit floats, sums of fp64."""

_LARGE = 4096 * 4096
"""Elements of C from which the wide candidate is at least as fast in e5m2, on an H200 (NOTES.md)."""


def _published(dtype: str, idea: str, wide: bool = False, timing: Timing | None = None) -> Kernel:
    """The article's kernel with the tile of its program that is the fastest on an H200, as the program chooses it.

    Of the four candidates two are never the fastest, and the one on four blocks only for large C in e5m2 (`wide`).
    """
    candidates = [(_Tiles(128, 128, 32, hints={"num_ctas": 1, "occupancy": 1}), "published")]
    if wide:
        candidates.append((_Tiles(256, 256, 64, hints={"num_ctas": 4, "occupancy": 1}), "published_wide"))
    tiles, entry = candidates[0]
    title = "As published"
    kernel = _product("1.1_published.py", "C1.1", title, dtype, tiles, _story(idea, "cuTile matmul"), timing=timing)
    arguments = kernel.call.arguments

    def step(tiles: _Tiles, entry: str) -> Step:
        hints = ",".join(f"{hint}={value}" for hint, value in tiles.hints.items())
        defines = parameters(tiles.params) | {"HINTS": hints}
        expects, spills = _published_expects(dtype, tiles.hints["num_ctas"]), _PUBLISHED_SPILLS.get(dtype, ())
        return Step(entry, _grid(tiles), arguments, "published", tiles.params, defines, expects=expects, spills=spills)

    both = [step(*candidate) for candidate in candidates]

    def steps(shape: Shape) -> tuple[Step, ...]:
        return (both[wide and shape.m * shape.n >= _LARGE],)

    return replace(
        kernel.with_code(entry=entry).with_promises(
            expects=(), refusals=(), gate_shapes=(Shape(4200, 4112, 80),) if wide else ()
        ),
        platform=Platform(targets=BLACKWELL_OR_HOPPER, toolkits=("cuda13",)),
        run=Run(steps=steps),
    )


def _published_expects(dtype: str, blocks: int) -> tuple[Expect, ...]:
    """What the machine code of a candidate on a cluster of `blocks` must hold."""
    if dtype == "fp64":
        return _FP64
    hopper, blackwell, _ = _TENSOR[dtype]
    multicast = Expect(r"UTMALDG\.2D\.MULTICAST(\..*)?", "one TMA load serves several blocks", archs=("90", "100"))
    pairs = blackwell.replace(r"(\..*)?", r"\.2CTA(\..*)?")
    return (
        Expect(hopper, "wgmma, one warpgroup per instruction", 4, archs=("90",)),
        Expect(pairs if blocks > 1 else blackwell, "tcgen05.mma, of two blocks in a cluster", 1, archs=("100",)),
        *((multicast,) if blocks > 1 else ()),
        *_COPIES,
    )


def _k_major(
    dtype: str, tiles: _Tiles, story: Story, name: str = "", fast: bool = False, timing: Timing | None = None
) -> Kernel:
    return _product(
        "2_k_major.py",
        "C2",
        "B K-major",
        dtype,
        tiles,
        story,
        name,
        constants={"fast": int(fast)},
        k_major=True,
        timing=timing,
    )


def _persistent(dtype: str, tiles: _Tiles, story: Story, k_major: bool, name: str, fast: bool = False) -> Kernel:
    return _product(
        "4_persistent.py",
        "C4",
        "Persistent blocks",
        dtype,
        tiles.staying,
        story,
        name,
        constants={"k_major": int(k_major), "fast": int(fast)},
        k_major=k_major,
    )


def _waves(shape: Shape, tiles: _Tiles, parts: int) -> tuple[int, int]:
    """Tiles of the full waves, and of the last one: none if its tiles, in `parts` each, are more than one wave."""
    count = -(-shape.m // tiles.bm) * -(-shape.n // tiles.bn)
    rest = count % card.sms()
    return (count - rest, rest) if rest * parts <= card.sms() else (count, 0)


def _in_two(kernel: Kernel, tiles: _Tiles, small: tuple[int, int], last: Step, early: bool = False) -> Kernel:
    """A product whose last wave, where it is nearly empty, is a launch of its own, `last`, in tiles of `small`.

    `early`: the last wave may begin before the full ones end.
    """
    parts = tiles.bm // small[0] * (tiles.bn // small[1])

    def full_waves(shape: Shape) -> Launch:
        return Launch(grid=(max(1, min(_waves(shape, tiles, parts)[0], tiles.resident)), 1, 1), block=ONE_THREAD)

    def last_wave(shape: Shape) -> Launch:
        whole, rest = _waves(shape, tiles, parts)
        # Without full waves the launch before it is somebody else's, and does not say when it may begin.
        return Launch(grid=(max(1, rest * parts), 1, 1), block=ONE_THREAD, early=early and whole > 0)

    def steps(shape: Shape) -> tuple[Step, ...]:
        """Those of the two launches that have a tile to compute."""
        whole, rest = _waves(shape, tiles, parts)
        arguments = (*kernel.call.arguments, whole)
        both = (
            (whole, Step("full_waves", full_waves, arguments)),
            (rest, replace(last, launch=last_wave, arguments=arguments)),
        )
        return tuple(step for count, step in both if count)

    ends = (72, 200) if kernel.takes(Shape(1500, 1480, 200)) else (80, 208)

    def beyond() -> tuple[Shape]:
        """A full wave and a few more tiles, of which some reach beyond the matrix; of 132 SMs: 12 x 12 tiles."""
        rows = max(1, min(12, card.sms() // parts))
        return (Shape(128 * rows - 36, 128 * (card.sms() // rows) + ends[0], ends[1]),)

    return replace(
        kernel.with_promises(gate_shapes=card.PerCard(beyond)).with_code(entry="full_waves"),
        launch=full_waves,
        run=Run(steps=steps),
    )


def _ending_small(dtype: str, group: int, story: Story, name: str, k_major: bool = False) -> Kernel:
    """The persistent product in 16 bits, its last wave in tiles of 64 x 64 where it is nearly empty."""
    tiles, small, constants = _Tiles(128, 128, 64, group), (64, 64), {"k_major": int(k_major), "fast": 0}
    kernel = _product("5_tail.py", "C5", "Small tiles in the last wave", dtype, tiles, story, name, constants, k_major)
    params = {**tiles.params, "tm": small[0], "tn": small[1], **constants}
    defines, expects = parameters(params), _last_expects(dtype)
    last = Step("last_wave", kernel.launch, (), params=params, defines=defines, expects=expects)
    return _in_two(kernel, tiles.staying, small, last)


_WAITS = Expect(r"ACQBULK", "waits for the launch before it", 1, 1)
_ANNOUNCES = Expect(r"PREEXIT", "lets the launch after it begin", 1, 1)
_UNHURRIED = Expect(r"WARPGROUP\.DEPBAR(\..*)?", "wgmma are waited for by groups, not one by one", 1, 4)


def _resident(tiles: _Tiles, dtype: str, story: Story, name: str, k_major: bool, latency: int, fast: int = 0) -> Kernel:
    """Blocks that stay, by default two per SM, with `latency` stages; the last wave in tiles of 64 x 64."""
    small, constants = (64, 64), {"k_major": int(k_major), "fast": fast, "latency": latency}
    rung, title = "C7", "Two persistent blocks per SM"
    kernel = _product("7_pairs.py", rung, title, dtype, tiles, story, name, constants, k_major)
    kernel = kernel.with_promises(expects=(*kernel.promises.expects, _ANNOUNCES, _UNHURRIED)).with_platform(
        targets=("90",)
    )
    params = {**kernel.params, "tm": small[0], "tn": small[1]}
    last = Step(
        "last_wave",
        kernel.launch,
        (),
        params=params,
        defines=kernel.code.defines | parameters(params),
        expects=(*_last_expects(dtype), _WAITS, _UNHURRIED),
    )
    return _in_two(kernel, tiles.staying, small, last, early=True)


def _promoted(tiles: _Tiles, steps: int, latency: int, story: Story) -> Kernel:
    """The product of e4m3 with sums that go to fp32 every `steps` tiles along K."""
    kernel = _product(
        "8_promoted.py",
        "C8",
        "Promotion by the source",
        "fp8_e4m3",
        tiles,
        story,
        "promoted_fp8_e4m3",
        {"steps": steps, "latency": latency},
        k_major=True,
    )
    additions = Expect(r"FADD(\..*)?", "64 additions per interval, with a warpgroup for half of the tile", 64, 64)
    return (
        kernel.with_accepts(multiple_of={"n": 16, "k": tiles.bk * steps})
        .with_promises(expects=(*kernel.promises.expects, additions, _UNHURRIED))
        .with_platform(targets=("90",))
    )


_TRANSPOSING = {
    "6_turned.py": ("C6", "B transposed first"),
    "9_turned_bytes.py": ("C9", "Bytes of B transposed first"),
}
"""Rung and title of the sources that transpose B."""


def _transposed(
    rows: int,
    columns: int,
    tiles: _Tiles,
    story: Story,
    dtype: str = "tf32",
    source: str = "6_turned.py",
    constants: Mapping[str, int] | None = None,
) -> Kernel:
    """The product of a row-major B, which a launch of its own transposes first, in tiles of rows x columns.

    In 8 bits the product may begin before that launch ends.
    """
    rung, title = _TRANSPOSING[source]
    kernel = _product(source, rung, title, dtype, tiles.staying, story, f"turned_{dtype}", constants)
    params, early = {"rows": rows, "columns": columns}, dtype == "int8"

    def blocks(shape: Shape) -> Launch:
        return Launch(grid=(-(-shape.k // rows) * -(-shape.n // columns), 1, 1), block=ONE_THREAD)

    def product(shape: Shape) -> Launch:
        return replace(kernel.launch(shape), early=early)

    transpose = Step(
        "turn",
        blocks,
        ("array:b", "array:turned"),
        params=params,
        defines=parameters(params),
        expects=(
            Expect(r"STG\.E\.128(\..*)?|UTMASTG\.2D(\..*)?", "stores of 16 bytes, or by TMA"),
            *((_ANNOUNCES,) if early else ()),
        ),
    )
    arguments = ("array:a", "array:turned", "array:c")
    workspace = {"turned": Buffer(dtype, lambda shape: (shape.n, shape.k), (1, 16 // DTYPES[dtype]))}
    run = Run(steps=(transpose, Step("multiply", product, arguments)), workspace=workspace)
    return replace(kernel.with_code(entry="multiply").with_call(arguments=arguments), launch=product, run=run)


def _turned_bytes(rows: int, columns: int, tiles: _Tiles, latency: int, story: Story) -> Kernel:
    kernel = _transposed(rows, columns, tiles, story, "int8", "9_turned_bytes.py", {"latency": latency})
    return kernel.with_promises(expects=(*kernel.promises.expects, _WAITS, _UNHURRIED)).with_platform(targets=("90",))


_AS_PUBLISHED = "The article's kernel in the fastest of the tiles that its program tries."

_FOUND = _story("Tile and hints found by a search on this GPU.")
_SMALLER = _story("The smaller tile, of one warpgroup that multiplies.")
_PAIR = "Two stages per operand, by the latency hint, let two persistent blocks share an SM."
_LAST = "The tiles of a partial last wave are split in four, if all the parts fit one wave."


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
    story=Story(article="cutile", idea="One block per tile of 16 elements; the source never mentions threads."),
)

_WRITTEN = (
    _VECTOR_ADD,
    _row_major("fp16", _Tiles(128, 128, 64), _story("ct.load, ct.mma, ct.store: nothing else.")).with_promises(
        spills=("80",)
    ),
    _row_major("bf16", _Tiles(128, 128, 64), _story("The same in bf16.")).with_promises(spills=("80",)),
    _row_major("tf32", _Tiles(128, 128, 32), _story("fp32 in memory, cast as a tile.")).with_promises(spills=SYNC),
    _row_major(
        "fp8_e5m2",
        _Tiles(128, 64, 128),
        _story("8-bit floats; B must be transposed for Hopper's wgmma."),
        timing=_NOT_IN_CUBLAS,
    ),
    _row_major("fp8_e4m3", _Tiles(128, 64, 128), _story("The other 8-bit float."), timing=_NOT_IN_CUBLAS),
    _row_major("int8", _Tiles(128, 128, 128), _story("8-bit integers, summed in int32.")).with_promises(spills=SYNC),
    _row_major(
        "fp64",
        _Tiles(128, 128, 16),
        _story("fp64 with fp64 sums, and no tensor core."),
        timing=_timing(k_major=False, timed_to=8192),
    ).with_promises(spills=(*SYNC, "90", "100")),
    _row_major(
        "fp64",
        _Tiles(32, 32, 16),
        _story(
            "Tiles so small that their sums stay in registers.", "cuTile matmul, smaller tiles", "cutile.published_fp64"
        ),
        name="matmul_fp64_small",
        timing=_timing(k_major=False, timed_to=8192),
    ).with_promises(spills=AMPERE),
    _published("fp16", _AS_PUBLISHED),
    _published("tf32", _AS_PUBLISHED),
    _published("fp8_e5m2", _AS_PUBLISHED, wide=True, timing=_NOT_IN_CUBLAS),
    _published(
        "fp64",
        "The article's kernel in fp64: of the tiles that its program tries, the one that compiles in its ten seconds.",
        timing=_timing(k_major=False, timed_to=8192),
    ),
    _row_major(
        "fp16",
        _Tiles(64, 64, 32),
        _story("Rows of any alignment: any shape, element by element."),
        name="any_shape",
        timing=Timing(baseline=None, timed=False),
    )
    .with_accepts(multiple_of={})
    .with_promises(expects=_ELEMENTWISE),
    _k_major("fp16", _Tiles(128, 128, 64), _story("K is contiguous in A and in B.")).with_promises(spills=("80",)),
    _k_major("bf16", _Tiles(128, 128, 64), _story("The same in bf16.")).with_promises(spills=("80",)),
    _k_major("tf32", _Tiles(128, 128, 32), _story("The order in which wgmma reads 32-bit operands.")),
    _k_major("fp8_e4m3", _Tiles(128, 64, 128), _story("The order in which wgmma reads 8-bit operands.")),
    _k_major("fp8_e5m2", _Tiles(128, 64, 128), _story("The same in e5m2."), timing=_NOT_IN_CUBLAS),
    _k_major("int8", _Tiles(128, 128, 128), _story("The same for 8-bit integers.")),
    _k_major(
        "fp8_e4m3",
        _Tiles(128, 128, 128),
        _story("Sums stay in the tensor core, to some 14 bits.", gain_over="cutile.k_major_fp8_e4m3"),
        name="k_major_fp8_e4m3_fast",
        fast=True,
    ),
    _k_major(
        "fp8_e4m3",
        _Tiles(128, 128, 128, group=16, hints={"num_worker_warps": 8}),
        _story("Eight worker warps share the two sets of sums of a wider tile.", gain_over="cutile.k_major_fp8_e4m3"),
        name="k_major_fp8_e4m3_wide",
    ),
    _product(
        "3_outer.py",
        "C3",
        "Outer products",
        "fp64",
        _Tiles(128, 64, 8),
        _story("Products and sums without ct.mma, so that the compiler fuses them.", gain_over="cutile.matmul_fp64"),
        timing=_timing(k_major=False, timed_to=8192),
    ).with_promises(expects=_OUTER, spills=AMPERE),
    _persistent(
        "bf16",
        _Tiles(128, 256, 64, group=16, hints={"num_worker_warps": 8}),
        _story("One block per SM, eight worker warps, a tile as large as they can hold."),
        k_major=False,
        name="persistent_bf16",
    ),
    _persistent("fp16", _Tiles(128, 128, 64, group=16), _SMALLER, k_major=False, name="persistent_fp16"),
    _persistent("tf32", _Tiles(128, 128, 32, group=16), _SMALLER, k_major=True, name="persistent_tf32"),
    _persistent("int8", _Tiles(128, 128, 128, group=16), _SMALLER, k_major=True, name="persistent_int8"),
    _persistent(
        "fp8_e4m3",
        _Tiles(128, 128, 128, group=16),
        _SMALLER,
        k_major=True,
        name="persistent_fp8_e4m3_fast",
        fast=True,
    ),
    _ending_small("fp16", 8, _story(_LAST, gain_over="cutile.persistent_fp16_tuned"), "tail_fp16"),
    _ending_small("bf16", 16, _story(_LAST, gain_over="cutile.persistent_bf16_tuned"), "tail_bf16"),
    _transposed(
        64,
        64,
        _Tiles(128, 128, 32),
        _story("One launch transposes B, once for all rows of tiles of C.", gain_over="cutile.matmul_tf32_tuned"),
    ),
    _resident(
        _Tiles(128, 128, 64, group=16, hints={"occupancy": 2}),
        "bf16",
        _story(_PAIR, gain_over="cutile.tail_bf16"),
        "pairs_bf16",
        k_major=False,
        latency=2,
    ),
    _resident(
        _Tiles(128, 128, 128, hints={"occupancy": 2}),
        "int8",
        _story(_PAIR, gain_over="cutile.persistent_int8_tuned"),
        "pairs_int8",
        k_major=True,
        latency=2,
    ),
    _promoted(
        _Tiles(128, 128, 128, group=16, hints={"num_worker_warps": 8}),
        4,
        5,
        _story(
            "The source, not the compiler, says how often sums go from the tensor core to fp32.",
            gain_over="cutile.k_major_fp8_e4m3_tuned",
        ),
    ),
    _turned_bytes(
        64,
        64,
        _Tiles(128, 128, 128, hints={"occupancy": 2}),
        2,
        _story(
            "One launch transposes the bytes of B; the product is launched before it ends.",
            gain_over="cutile.matmul_int8_tuned",
        ),
    ),
    _product(
        "10_stages.py",
        "C10",
        "Four stages for a wide tile",
        "bf16",
        _Tiles(128, 256, 64, 16, hints={"num_worker_warps": 8}).staying,
        _story("A latency of 6 leaves C half its buffer and gives a fourth stage.", gain_over="cutile.persistent_bf16"),
        constants={"latency": 6},
    )
    .with_promises(expects=(*_expects("bf16"), _UNHURRIED))
    .with_platform(targets=("90",)),
)


_HINTS = ("num_worker_warps", "occupancy", "num_ctas")


def _searched(params: Mapping[str, int]) -> _Tiles:
    """Tiles with the constants of one candidate of a search."""
    hints = {hint: params[hint] for hint in _HINTS}
    return _Tiles(params["bm"], params["bn"], params["bk"], params["group"], hints=hints)


def _fits(dtype: str, sets: int = 1) -> Callable[[Mapping[str, int]], bool]:
    """A filter for constants that can be fast on Hopper; `sets` is 2 where partial sums are promoted to fp32."""

    def allowed(params: Mapping[str, int]) -> bool:
        bm, bn, ctas, crowd = params["bm"], params["bn"], params["num_ctas"], params["occupancy"] or 1
        warps = params["num_worker_warps"] or 4
        stage = (bm + bn) * params["bk"] * DTYPES[dtype] // ctas
        sums = sets * bm * bn // ctas // (32 * warps)
        return (
            # At least two warpgroups have work on an SM, of one block or of two.
            (warps == 8) + (crowd == 2) + (bm * bn // ctas >= 128 * 128) >= 1
            and not (warps == 8 and crowd == 2)
            and not (ctas == 2 and crowd == 2)
            and 64 <= sums <= 128  # registers per accumulating thread; 255 at most with everything else
            and 3 * stage * crowd <= 220 * 1024  # three stages, so that two are in flight
            and bm // ctas >= 64
            and params["group"] * bm in (1024, 2048)  # rows of A that concurrent blocks share
        )

    return allowed


def _tunable(dtype: str, k_major: bool, fast: bool = False) -> Tunable:
    """The product in `dtype`, its tiles and hints left to a search."""
    name = f"{'k_major' if k_major else 'matmul'}_{dtype}{'_fast' if fast else ''}_tuned"

    def kernel(params: Mapping[str, int]) -> Kernel:
        tiles = _searched(params)
        return _k_major(dtype, tiles, _FOUND, name, fast) if k_major else _row_major(dtype, tiles, _FOUND, name)

    space = {
        "bm": (64, 128, 256),
        "bn": (64, 128, 256),
        "bk": (128 // DTYPES[dtype], 256 // DTYPES[dtype]),  # rows of one or two 128-byte swizzle spans
        "group": (8, 16),
        "num_worker_warps": (0, 8),
        "occupancy": (0, 2),
        "num_ctas": (1, 2),
    }
    return Tunable(f"cutile.{name}", space, _fits(dtype, 2 if dtype.startswith("fp8") and not fast else 1), kernel)


def _persistent_tunable(dtype: str, k_major: bool, fast: bool = False) -> Tunable:
    """The persistent product, with the large tiles and eight worker warps that it needs to be of use."""
    name = f"persistent_{dtype}{'_fast' if fast else ''}_tuned"

    def kernel(params: Mapping[str, int]) -> Kernel:
        return _persistent(dtype, _searched(params), _FOUND, k_major, name, fast)

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


def _resident_fits(dtype: str) -> Callable[[Mapping[str, int]], bool]:
    """A filter for blocks that stay: constants that sm_90's machine code shows neither to spill nor to wait for each
    wgmma. Two blocks per SM hold 128 x 128 sums and at most two stages."""

    def allowed(params: Mapping[str, int]) -> bool:
        bm, bn, latency, crowd = params["bm"], params["bn"], params["latency"], params["occupancy"] or 1
        warps, stage = params["num_worker_warps"] or 4, (bm + bn) * params["bk"] * DTYPES[dtype]
        return (
            bm * bn // (32 * warps) == 128
            and (latency <= 2 and warps == 4 if crowd == 2 else latency >= 3)
            and latency * stage <= 200 * 1024
            and params["group"] * bm in (1024, 2048)
        )

    return allowed


def _resident_tunable(dtype: str, k_major: bool, fast: bool = False) -> Tunable:
    """Blocks that stay, one or two per SM, with the number of their stages."""
    name = f"pairs_{dtype}{'_fast' if fast else ''}_tuned"

    def kernel(params: Mapping[str, int]) -> Kernel:
        return _resident(_searched(params), dtype, _FOUND, name, k_major, params["latency"], int(fast))

    space = {
        "bm": (128, 256),
        "bn": (128, 256),
        "bk": (128 // DTYPES[dtype],),
        "group": (4, 8, 16),
        "latency": (1, 2, 3, 4, 5, 6),
        "num_worker_warps": (0, 8),
        "occupancy": (0, 2),
        "num_ctas": (1,),
    }
    return Tunable(f"cutile.{name}", space, _resident_fits(dtype), kernel)


TUNABLES = (
    *(_tunable(dtype, False) for dtype in ("fp16", "bf16", "tf32", "int8")),
    *(_tunable(dtype, True) for dtype in ("bf16", "tf32", "int8", "fp8_e4m3")),
    _tunable("fp8_e4m3", True, fast=True),
    *(_persistent_tunable(dtype, False) for dtype in ("fp16", "bf16")),
    *(_persistent_tunable(dtype, True) for dtype in ("tf32", "int8")),
    _persistent_tunable("fp8_e4m3", True, fast=True),
    *(_resident_tunable(dtype, False) for dtype in ("fp16", "bf16")),
    _resident_tunable("int8", True),
    _resident_tunable("fp8_e4m3", True, fast=True),
)
"""The same sources with constants that the article does not have. Nothing is built of them before a search."""

KERNELS = (*_WRITTEN, *(kernel for tunable in TUNABLES for kernel in tuned(tunable)))
