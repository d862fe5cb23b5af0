"""Memory-bound kernels: copies by access width, histograms by where they count, and tree reductions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gemmrepro.operations import Shape
from gemmrepro.registry import (
    Accepts,
    Buffer,
    Code,
    Compute,
    Expect,
    Family,
    Kernel,
    Launch,
    Promises,
    Run,
    Step,
    Story,
    Timing,
    card,
    parameters,
)

FAMILY = Family(
    name="memory",
    title="Histogram, copy and reduction",
    article="gpu-notes",
    summary="Memory-bound kernels: copies by access width, histograms by where they count, tree reductions.",
)

ANY = 1 << 62
"""`Accepts.max_elements` of kernels that index in 64 bits."""


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _grid(threads: int, each: int, most: int = ANY, per_sm: int = 0) -> Callable[[Shape], Launch]:
    """At most `most` blocks, or `per_sm` an SM, of `threads` threads, for `threads` x `each` elements at a time."""

    def launch(shape: Shape) -> Launch:
        limit = per_sm * card.sms() or most
        return Launch(grid=(min(_ceil(shape.n, threads * each), limit), 1, 1), block=(threads, 1, 1))

    return launch


def _second_pass(elements: int, bins: int = 1) -> Shape:
    """A shape for the numerical gate on which a grid that covers `elements` per pass takes a second pass."""
    return Shape(1, elements + 4099, bins)


def _second_passes(per_sm: int, *bins: int) -> card.PerCard[Shape]:
    """Such shapes of a grid that covers `per_sm` elements an SM, one for each number of bins."""
    return card.PerCard(lambda: [_second_pass(per_sm * card.sms(), count) for count in bins])


# Copies ---------------------------------------------------------------------------------------------------------------

_NO_SHARED = Expect(r"(LDS|STS|ATOMS).*", "nothing goes through shared memory", least=0, most=0)
_OPCODES = {16: r"{}\.E\.U16(\..*)?", 32: r"{}\.E", 64: r"{}\.E\.64(\..*)?", 128: r"{}\.E\.128(\..*)?"}


def _accesses(bits: int) -> tuple[Expect, ...]:
    """Loads and stores of `bits`, and no wider one."""
    wider = [width for width in _OPCODES if width > bits and width > 32]
    none = [Expect(_OPCODES[width].format("(LDG|STG)"), "no access is wider", least=0, most=0) for width in wider]
    these = [Expect(_OPCODES[bits].format(op), f"elements move {bits} bits per access") for op in ("LDG", "STG")]
    return (*these, *none, _NO_SHARED)


_ELEMENTS = {"half": ("fp16", "fp16", 16), "float": ("fp32", "float", 32)}
"""By name: our dtype, the source's type, bits."""
_COPIES = {
    "scalar": ("C1", "1.0_copy_scalar.cu", 0, "One element per access."),
    "32": ("C2", "1.1_copy_32.cu", 32, "Pointers cast to 32-bit words."),
    "64": ("C3", "1.2_copy_64.cu", 64, "Pointers cast to 64-bit words."),
    "128": ("C4", "1.3_copy_128.cu", 128, "The widest access: a quarter of the requests."),
    "once": (
        "C5",
        "1.4_copy_once.cu",
        128,
        "One access per thread and no loop: blocks start in the order of the array.",
    ),
}

_TITLES = {"scalar": "one element per access", "once": "128 bits, one access per thread"}


def _copy(name: str, element: str) -> Kernel:
    rung, source, width, idea = _COPIES[name]
    dtype, cpp, bits = _ELEMENTS[element]
    width = width or bits
    each = width // bits
    # As in the article: at most 4096 blocks of 1024 threads. The last version launches as many as it needs.
    launch = _grid(256, each, ANY) if name == "once" else _grid(1024, each, 4096)
    return Kernel(
        id=f"memory.copy_{name}_{element}",
        rung=f"{rung} {element}",
        title=f"{element}, {_TITLES.get(name, f'{width} bits per access')}",
        source=source,
        compute=Compute(op="vector_copy", dtype_in=dtype, dtype_acc=dtype, dtype_out=dtype, layout="vector"),
        code=Code(f"copy_{name}", defines={"ELEMENT": cpp}, headers=("common/element.cuh",)),
        launch=launch,
        accepts=Accepts(max_elements=ANY),
        promises=Promises(
            expects=_accesses(width), gate_shapes=() if name == "once" else (_second_pass(4096 * 1024 * each),)
        ),
        timing=Timing(baseline="cuda.memcpy"),
        story=Story(article="gpu-notes", idea=idea),
    )


COPIES = tuple(_copy(name, element) for element in _ELEMENTS for name in _COPIES)

WHOLE = 128
"""Elements of which a length is a multiple in the printed copies: fp32 holds each such length below 2^31 exactly."""
_INTS = {"32": "int", "64": "int2", "128": "int4"}


def _printed(name: str, element: str) -> Kernel:
    """A copy as the article prints it, with its types, conversions and launch. Only an experiment times it."""
    dtype, cpp, bits = _ELEMENTS[element]
    width = int(name) if name in _INTS else bits
    each = width // bits
    wide = {"WIDE": _INTS[name]} if name in _INTS else {}
    return Kernel(
        id=f"memory.printed_{name}_{element}",
        rung=f"{'P1' if name == 'scalar' else 'P2'} {name} {element}",
        title=f"{element}, {_TITLES.get(name, f'{width} bits per access')}, as printed",
        source="1.6_printed_vector.cu" if wide else "1.5_printed_scalar.cu",
        compute=Compute(op="whole_copy", dtype_in=dtype, dtype_acc=dtype, dtype_out=dtype, layout="vector"),
        code=Code(
            "printed_vector" if wide else "printed_scalar",
            defines={"ELEMENT": cpp, **wide},
            headers=("common/element.cuh",),
        ),
        launch=_grid(1024, each, 4096),
        accepts=Accepts(multiple_of={"n": WHOLE}, max_elements=2**31 - 4096 * 1024),
        promises=Promises(expects=_accesses(width), gate_shapes=(Shape(1, 4096 * 1024 * each + 33 * WHOLE, 1),)),
        timing=Timing(baseline=None, timed=False),
        story=Story(
            article="gpu-notes",
            idea="The printed kernel: an int index, and of wide accesses a length divided in fp32.",
        ),
    )


PRINTED = tuple(_printed(name, element) for element in _ELEMENTS for name in ("scalar", *_INTS))

# Histograms -----------------------------------------------------------------------------------------------------------

SHARED_BINS = 12 * 1024 - 1
"""4-byte counters in the 48 KB of shared memory that every GPU gives a block, less the one for ids out of range."""
ARTICLE_THREADS = 1024
ARTICLE_BLOCKS = 1024
"""The most blocks of the author's third version; the first two have a block for every 1024 ids."""
ARTICLE_BINS = ARTICLE_THREADS - 1
"""The article's blocks clear and store a bin a thread; less the one for ids out of range."""
PARTIAL_PLACES = 512
"""Places of a partial histogram of the third version, and threads of its merge: a power of two."""
LANE_BINS = 256
HISTOGRAM_BLOCKS = 16
"""An SM's blocks, which count one wave after the other."""
_COUNTS = Compute("histogram", dtype_in="int32", dtype_acc="int32", dtype_out="int32", layout="vector")
_AGAINST_CUB = Timing("cub.histogram")
_COUNTED = {"n": 2**31 - 1}
"""So many ids that counts fit a signed 32-bit integer, as in the libraries."""
_RED = Expect(r"(RED|REDG|ATOMG)\..*", "an id is counted in global memory by an atomic")
_ATOMS = Expect(r"ATOMS(\..*)?", "ids are counted in shared memory")
_NO_ATOMS = Expect(r"ATOMS(\..*)?", "nothing is counted in shared memory", least=0, most=0)
_NO_RED = Expect(_RED.opcode, "no atomic goes to global memory", least=0, most=0)


def _article_launch(most: int, counters: bool) -> Callable[[Shape], Launch]:
    """The author's launch: 1024 threads, at most `most` blocks; `counters`: a histogram in shared memory."""
    grid = _grid(ARTICLE_THREADS, 1, most)
    return lambda shape: replace(grid(shape), shared_bytes=4 * (shape.k + 1) * counters)


_AN_ID_A_THREAD = _article_launch(ANY, counters=False)
_BLOCK_COUNTS = _article_launch(ANY, counters=True)
_CAPPED = _article_launch(ARTICLE_BLOCKS, counters=True)


def _waves_launch(shape: Shape) -> Launch:
    launch = _grid(256, 1, per_sm=HISTOGRAM_BLOCKS)(shape)
    return Launch(grid=launch.grid, block=launch.block, shared_bytes=4 * (shape.k + 1))


def _clear(shape: Shape) -> Step:
    launch = Launch(grid=(_ceil(shape.k + 1, 256), 1, 1), block=(256, 1, 1))
    return Step("clear_counts", lambda shape: launch, ("k", "c"))


def _cleared(entry: str, launch: Callable[[Shape], Launch]) -> Callable[[Shape], tuple[Step, ...]]:
    """Clear the counts, then count."""
    return lambda shape: (_clear(shape), Step(entry, launch, ("a", "n", "k", "c")))


def _merged(shape: Shape, count: Callable[[Shape], Launch] = _CAPPED) -> tuple[Step, ...]:
    """Partial histograms by the launch `count`, then their sum, by the article's merge: a block a bin."""
    merge = Launch(grid=(shape.k + 1, 1, 1), block=(PARTIAL_PLACES, 1, 1))
    return (
        _clear(shape),
        Step("histogram_merged", count, ("a", "n", "k", "partials")),
        Step("merge_counts", lambda shape: merge, (count(shape).grid[0], "partials", "c")),
    )


def _merged_waves(shape: Shape) -> tuple[Step, ...]:
    """Partial histograms, then their sum: a block for 32 bins."""
    merge = Launch(grid=(_ceil(shape.k + 1, 32), 1, 1), block=(256, 1, 1))
    return (
        Step("histogram_merged_waves", _waves_launch, ("a", "n", "k", "partials")),
        Step("merge_counts", lambda shape: merge, (_waves_launch(shape).grid[0], "k", "partials", "c")),
    )


_RANGES = {"threads": 512, "loads": 8, "slots": 8, "ranges": 264}
_TILE = 4 * _RANGES["threads"] * _RANGES["loads"]
RANGE_BINS = 24 * 1024
"""Counters of a range that fit, with one more, the 99 KB that every GPU since the A100 can give a block."""


def _tiles(shape: Shape) -> int:
    return _ceil(shape.n, _TILE)


def _ranges_launch(shape: Shape) -> Launch:
    """Two blocks per SM, each with the counters of a range and one for the padding of a segment."""
    launch = _grid(_RANGES["threads"], 8, per_sm=2)(shape)
    counters = max(_ceil(shape.k + 1, _RANGES["ranges"]), 2)
    return Launch(grid=launch.grid, block=launch.block, shared_bytes=4 * (counters + 1))


def _sorted_by_range(shape: Shape) -> tuple[Step, ...]:
    """Clear the counts, sort every tile of ids by range, count range by range."""
    threads = _RANGES["threads"]
    clear = Launch(grid=(_ceil(max(shape.k + 1, _RANGES["ranges"]), threads), 1, 1), block=(threads, 1, 1))
    sort = Launch(grid=(min(_tiles(shape), 2 * card.sms()), 1, 1), block=(threads, 1, 1))
    return (
        Step("clear_ranges", lambda shape: clear, ("k", "c", "totals")),
        Step(
            "sort_ranges",
            lambda shape: sort,
            ("a", "n", "k", "sorted", "segments", "totals"),
            expects=(
                Expect(r"LDG\.E(\..*)?\.128(\..*)?", "ids are loaded 128 bits per lane, all in flight", least=8),
                Expect(r"ATOMS(\..*)?", "an id is counted and placed by atomics in shared memory", least=2 * 32),
                Expect(r"STS\.U16", "16 bits per id are stored in its place", least=32),
                Expect(r"STG\.E\.128(\..*)?", "a sorted tile is written 128 bits per lane"),
                Expect(r"ATOMG(\..*)?", "no atomic in global memory returns a value", least=0, most=0),
            ),
        ),
        Step("histogram_ranges", _ranges_launch, ("sorted", "segments", "totals", "n", "k", "c")),
    )


_LANES = {"threads": 1024, "unroll": 4}
_LANES_LAUNCH = _grid(_LANES["threads"], 4 * _LANES["unroll"], per_sm=2)


def _histogram(
    rung: str,
    name: str,
    title: str,
    idea: str,
    launch: Callable[[Shape], Launch],
    expects: tuple[Expect, ...],
    run: Run,
    bins: int,
    *,
    article: bool = True,
    published: str | None = None,
    gate_shapes: tuple[Shape, ...] = (),
) -> Kernel:
    return Kernel(
        id=f"memory.histogram_{name}",
        rung=rung,
        title=title,
        source=f"2.{rung.removeprefix('v')}_histogram_{name}.cu",
        compute=_COUNTS,
        code=Code(f"histogram_{name}"),
        launch=launch,
        accepts=Accepts(max_elements=ANY, at_most={**_COUNTED, "k": bins}),
        run=run,
        promises=Promises(expects=expects, gate_shapes=gate_shapes),
        story=Story(article="gpu-notes" if article else None, published_system=published, idea=idea),
        timing=_AGAINST_CUB,
    )


HISTOGRAMS = (
    Kernel(
        id="memory.histogram_global",
        rung="v1",
        title="Atomics in global memory",
        source="2.1_histogram_global.cu",
        compute=_COUNTS,
        code=Code("histogram_global"),
        launch=_AN_ID_A_THREAD,
        accepts=Accepts(max_elements=ANY, at_most=_COUNTED),
        run=Run(steps=_cleared("histogram_global", _AN_ID_A_THREAD)),
        promises=Promises(expects=(_RED, _NO_ATOMS)),
        story=Story(article="gpu-notes", published_system="global atomics", idea="counts[ids[i]] += 1 by an atomic."),
        timing=_AGAINST_CUB,
    ),
    _histogram(
        "v2",
        "shared",
        "Atomics in shared memory",
        "One histogram per block in shared memory, added to the global one at the end; a block for every 1024 ids.",
        _BLOCK_COUNTS,
        (_ATOMS, _RED),
        Run(steps=_cleared("histogram_shared", _BLOCK_COUNTS)),
        ARTICLE_BINS,
        published="shared-memory atomics",
    ),
    _histogram(
        "v2.1",
        "shared_waves",
        "Atomics in shared memory, one wave of blocks",
        "v2 with one wave, 16 blocks an SM, instead of 262,144 blocks.",
        _waves_launch,
        (_ATOMS, _RED),
        Run(steps=_cleared("histogram_shared_waves", _waves_launch)),
        SHARED_BINS,
        article=False,
        gate_shapes=_second_passes(HISTOGRAM_BLOCKS * 256, 256),
    ),
    _histogram(
        "v3",
        "merged",
        "Partial histograms and a merge",
        "At most 1024 blocks write their histograms to memory; a second kernel adds them up, a block per bin.",
        _CAPPED,
        (_ATOMS, _NO_RED),
        Run(
            steps=_merged,
            workspace={"partials": Buffer("int32", lambda shape: (_CAPPED(shape).grid[0], PARTIAL_PLACES))},
        ),
        PARTIAL_PLACES - 1,
        published="shared memory + reduction",
        gate_shapes=(_second_pass(ARTICLE_BLOCKS * ARTICLE_THREADS, 256),),
    ),
    _histogram(
        "v3.1",
        "merged_waves",
        "Partial histograms and a merge, one wave of blocks",
        "v3 with one wave, 16 blocks an SM, and a merge that reads whole lines.",
        _waves_launch,
        (_ATOMS, _NO_RED),
        Run(
            steps=_merged_waves,
            workspace={"partials": Buffer("int32", lambda shape: (_waves_launch(shape).grid[0], shape.k + 1))},
        ),
        SHARED_BINS,
        article=False,
    ),
    Kernel(
        id="memory.histogram_lanes",
        rung="v4",
        title="One bank per lane",
        source="2.4_histogram_lanes.cu",
        compute=_COUNTS,
        code=Code("histogram_lanes", params=_LANES, defines=parameters(_LANES)),
        launch=_LANES_LAUNCH,
        accepts=Accepts(max_elements=ANY, at_most={**_COUNTED, "k": LANE_BINS}),
        run=Run(steps=_cleared("histogram_lanes", _LANES_LAUNCH)),
        promises=Promises(
            expects=(
                Expect(r"ATOMS(\..*)?", "four ids of each of four loads are counted in shared memory", least=16),
                Expect(r"LDG\.E(\..*)?\.128(\..*)?", "ids are loaded 128 bits per lane, four loads in flight", least=4),
            ),
            gate_shapes=_second_passes(2 * 1024 * 16, 256),
        ),
        story=Story(
            article="gpu-notes",
            idea="32 interleaved histograms per block: lanes of a warp never conflict, whatever the ids.",
        ),
        timing=_AGAINST_CUB,
    ),
    Kernel(
        id="memory.histogram_ranges",
        rung="v5",
        title="Sorted by ranges of bins",
        source="2.5_histogram_ranges.cu",
        compute=_COUNTS,
        code=Code("histogram_ranges", params=_RANGES, defines=parameters(_RANGES)),
        launch=_ranges_launch,
        accepts=Accepts(max_elements=ANY, at_most={**_COUNTED, "k": _RANGES["ranges"] * RANGE_BINS - 1}),
        run=Run(
            steps=_sorted_by_range,
            workspace={
                "sorted": Buffer("int32", lambda shape: (_tiles(shape), 4 * (_TILE // 8 + _RANGES["ranges"]))),
                "segments": Buffer("int32", lambda shape: (_RANGES["ranges"], _tiles(shape))),
                "totals": Buffer("int32", lambda shape: (_RANGES["ranges"],)),
            },
        ),
        promises=Promises(
            expects=(
                Expect(
                    r"LDG\.E(\..*)?\.128(\..*)?",
                    "eight ids per lane are loaded at once, three loads in flight",
                    least=3,
                ),
                Expect(r"ATOMS(\..*)?", "they are counted in shared memory", least=24),
                Expect(r"ATOMG(\..*)?", "no atomic in global memory returns a value", least=0, most=0),
            ),
            gate_shapes=_second_passes(2 * _TILE, 256, 5_000_000),
        ),
        story=Story(
            article="gpu-notes",
            idea="Tiles of ids sorted by range of bins, so that millions of bins are counted in shared memory too.",
        ),
        timing=_AGAINST_CUB,
    ),
)

V2, V3 = HISTOGRAMS[1], HISTOGRAMS[3]
EXCHANGED = (
    replace(
        V2,
        id="memory.histogram_shared_few",
        rung="v2.2",
        title="Atomics in shared memory, on v3's grid",
        launch=_CAPPED,
        run=Run(steps=_cleared("histogram_shared", _CAPPED)),
        promises=replace(V2.promises, gate_shapes=V3.promises.gate_shapes),
        timing=Timing(baseline=None, timed=False),
        story=Story(idea="v2's kernel by v3's launch: at most 1024 blocks, so a 256th of the additions."),
    ),
    replace(
        V3,
        id="memory.histogram_merged_many",
        rung="v3.2",
        title="Partial histograms and a merge, on v2's grid",
        launch=_BLOCK_COUNTS,
        run=Run(
            steps=lambda shape: _merged(shape, _BLOCK_COUNTS),
            workspace={"partials": Buffer("int32", lambda shape: (_BLOCK_COUNTS(shape).grid[0], PARTIAL_PLACES))},
        ),
        timing=Timing(baseline=None, timed=False),
        story=Story(idea="v3's kernels by v2's launch: a block for every 1024 ids, and no addition in global memory."),
    ),
)
"""Versions 2 and 3 each by the other's launch: with equal grids they differ in how blocks' counts are added up."""

# Sums -----------------------------------------------------------------------------------------------------------------

_ADDS = Compute("reduce", layout="vector")
REDUCTION_BLOCKS = 16
"""Blocks an SM."""
_WIDE = {"threads": 512, "unroll": 4}
WIDE_BLOCKS = 4
"""Blocks an SM."""


def _passes(
    entry: str, each: int, per_sm: int = 0, threads: int = 256
) -> tuple[Callable[[Shape], tuple[Step, ...]], dict[str, Buffer]]:
    """(steps, workspace) of a tree of passes in which a block sums `threads` x `each` elements.

    A pass reads the sums that the previous one wrote to one of two buffers; the last writes the result. If `per_sm` is
    given, there are at most so many blocks an SM, which loop, and a single block sums up to that many elements.
    """

    def blocks(n: int) -> int:
        most = per_sm * card.sms() or ANY
        return 1 if per_sm and n <= most else min(_ceil(n, threads * each), most)

    def steps(shape: Shape) -> tuple[Step, ...]:
        passes: list[Step] = []
        n, source = shape.n, "a"
        while True:
            launch = Launch(grid=(blocks(n), 1, 1), block=(threads, 1, 1))
            target = "c" if blocks(n) == 1 else f"sums_{len(passes) % 2}"
            passes.append(Step(entry, lambda shape, launch=launch: launch, (source, f"n={n}", target)))
            if target == "c":
                return tuple(passes)
            n, source = blocks(n), target

    return steps, {name: Buffer("fp32", lambda shape: (blocks(shape.n),)) for name in ("sums_0", "sums_1")}


_SHFL = Expect(r"SHFL\.(DOWN|BFLY)", "the last warp reduces by shuffles", least=5)
_TREE = (Expect(r"STS", "partial sums go through shared memory"), Expect(r"LDG\.E(\..*)?", "elements are loaded"))


def _sum(
    rung: str, name: str, title: str, idea: str, each: int, expects: tuple[Expect, ...], per_sm: int = 0
) -> Kernel:
    number = f"3.{rung.removeprefix('R')}"
    steps, workspace = _passes(f"reduce_{name}", each, per_sm)
    return Kernel(
        id=f"memory.reduce_{name}",
        rung=rung,
        title=title,
        source=f"{number}_reduce_{name}.cu",
        compute=_ADDS,
        code=Code(f"reduce_{name}"),
        launch=_grid(256, each, per_sm=per_sm),
        accepts=Accepts(max_elements=ANY),
        run=Run(steps=steps, workspace=workspace),
        promises=Promises(expects=(*_TREE, *expects)),
        story=Story(article="gpu-notes", idea=idea),
        timing=Timing("cub.reduce"),
    )


_WIDE_EACH = 4 * _WIDE["unroll"]
_WIDE_STEPS, _WIDE_WORKSPACE = _passes("reduce_wide", _WIDE_EACH, WIDE_BLOCKS, _WIDE["threads"])

SUMS = (
    _sum("R1", "divergent", "Divergent tree", "Threads 2, 4, 8 ... apart add: every warp stays busy.", 1, ()),
    _sum("R2", "strided", "Strided tree", "The first threads add, with strides of 2, 4, 8 ...: bank conflicts.", 1, ()),
    _sum("R3", "sequential", "Sequential addressing", "The upper half is added to the lower: no conflict.", 1, ()),
    _sum("R4", "first_add", "First addition on loading", "Two elements per thread before the tree.", 2, ()),
    _sum(
        "R5", "last_warp", "Shuffles in the last warp", "Shuffles instead of shared memory and barriers.", 2, (_SHFL,)
    ),
    _sum("R6", "unrolled", "Unrolled", "The tree is unrolled.", 2, (_SHFL,)),
    _sum(
        "R7",
        "many",
        "Many elements per thread",
        "A grid-stride loop before one tree per block.",
        1,
        (_SHFL,),
        REDUCTION_BLOCKS,
    ),
    Kernel(
        id="memory.reduce_wide",
        rung="R8",
        title="Bound by memory alone",
        source="3.8_reduce_wide.cu",
        compute=_ADDS,
        code=Code("reduce_wide", params=_WIDE, defines=parameters(_WIDE)),
        launch=_grid(_WIDE["threads"], _WIDE_EACH, per_sm=WIDE_BLOCKS),
        accepts=Accepts(max_elements=ANY),
        run=Run(steps=_WIDE_STEPS, workspace=_WIDE_WORKSPACE),
        promises=Promises(
            expects=(
                Expect(
                    r"LDG\.E(\..*)?\.128(\..*)?", "elements are loaded 128 bits per lane, four loads in flight", least=4
                ),
                Expect(r"SHFL\.(DOWN|BFLY)", "lanes exchange their sums", least=10),
            ),
            gate_shapes=_second_passes(WIDE_BLOCKS * 512 * 16, 1),
        ),
        story=Story(
            article="gpu-notes",
            idea="128-bit loads, many in flight, four sums per thread, one barrier per block.",
        ),
        timing=Timing("cub.reduce"),
    ),
)

KERNELS = (*COPIES, *HISTOGRAMS, *SUMS, *PRINTED, *EXCHANGED)
