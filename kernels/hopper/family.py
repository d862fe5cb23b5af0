"""Hopper: the article's level 8 as it sketches it, and fifteen rungs from there to a GEMM at the power cap."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

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
    Variant,
    card,
)

FAMILY = Family(
    name="hopper",
    title="Hopper: wgmma and TMA",
    article="ladder",
    summary=(
        "C = A B against the fastest cuBLAS: the article's sketch in fp16 with fp16 sums, then bf16 (and fp16) with "
        "fp32 sums, B K-major, one new idea per rung."
    ),
    figures=("shapes",),
    main_dtype="bf16",
)

SLOTS = 132
"""Blocks that take part in 11_stream_k.cu, at most: all of any card that has wgmma. Others do nothing."""

_HEADERS = ("common/element.cuh", "common/mbarrier.cuh", "common/tma.cuh", "common/wgmma.cuh")
_STAGE = (128 + 256) * 64 * 2
"""Bytes per stage of the ring: a 128 x 64 tile of A, a 256 x 64 tile of B."""
_PIECES = 8 * 2 * 16 * 64 * 2
"""Bytes in which eight warps stage two pieces each of C."""
_BARRIERS = 2 * 4 * 8
"""Bytes of the barriers of a ring of four stages."""
_TO_MEMORY = ("map:a", "map:b", "c", "m", "n", "k")
_TO_TMA = ("map:a", "map:b", "map:c", "m", "n", "k")
_SHARED_BY_BLOCKS = {
    "lockstep": {"meeting": Buffer("int32", lambda shape: (2,), zeroed=True)},
    "stream_k": {
        "handed": Buffer("fp32", lambda shape: (min(card.sms(), SLOTS), 8, 32, 32, 4)),
        "ready": Buffer("int32", lambda shape: (min(card.sms(), SLOTS), 8), zeroed=True),
    },
}
"""Memory through which the blocks of a launch work together, by rung. stream_k: per block, warp, 8 columns, lane."""


SWIZZLED_128 = (0, 1, 0, 1024)
"""Arguments of hopper.layouts for the layout of hopper.sketch: layout, mode, leading and stride in bytes."""


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _tiled(bm: int, bn: int, threads: int, shared_bytes: int = 0) -> Callable[[Shape], Launch]:
    """One block per tile of bm x bn, x over columns and y over rows of C."""

    def launch(shape: Shape) -> Launch:
        grid = (_ceil(shape.n, bn), _ceil(shape.m, bm), 1)
        return Launch(grid=grid, block=(threads, 1, 1), shared_bytes=shared_bytes)

    return launch


def _persistent(bm: int, bn: int, shared_bytes: int, cluster: int = 1) -> Callable[[Shape], Launch]:
    """As many blocks as fit the GPU, or fewer on small problems; a cluster's tile is bm x bn."""

    def launch(shape: Shape) -> Launch:
        clusters = min(card.sms() // cluster, _ceil(shape.m, bm) * _ceil(shape.n, bn))
        return Launch(
            grid=(clusters * cluster, 1, 1),
            block=(384, 1, 1),
            cluster=(cluster, 1, 1) if cluster > 1 else None,
            shared_bytes=shared_bytes,
        )

    return launch


# Opcodes as cuobjdump prints them.
def _hgmma(shape: str, element: str, least: int) -> Expect:
    kind = {"bf16": r"\.BF16", "fp16": ""}[element]
    return Expect(rf"HGMMA\.{shape}\.F32{kind}", f"wgmma {shape}, from shared memory into fp32", least=least)


_LOADS = Expect(r"UTMALDG\.2D", "TMA loads tiles of A and B", least=2)
_LOAD_A = Expect(r"UTMALDG\.2D", "TMA loads tiles of A", least=1)
_MULTICAST = Expect(r"UTMALDG\.2D\.MULTICAST", "tiles of B are loaded once for the whole cluster", least=1)
_NO_MULTICAST = Expect(r"UTMALDG.*MULTICAST.*", "no multicast: each block loads its own tiles", least=0, most=0)
_WAITS = Expect(r"SYNCS\.PHASECHK\..*TRYWAIT.*", "threads wait on mbarriers", least=1)
_RING = Expect(r"SYNCS\.PHASECHK\..*TRYWAIT.*", "the producer waits for empty stages, consumers for full ones", least=2)
_ARRIVES = Expect(r"SYNCS\.ARRIVE\..*", "a barrier is told how many bytes TMA will deliver", least=1)
_REGISTERS = Expect(r"USETMAXREG\..*", "the producer releases registers to the consumers", least=2)
_TMA_STORES = (
    Expect(r"STSM\.16\.M88\.4(\..*)?", "stmatrix stages the sums", least=16),
    Expect(r"UTMASTG\.2D", "TMA stores C", least=4),
)
_NO_STG = (Expect(r"STG\..*", "no thread stores to C", least=0, most=0),)
_GRID_BARRIER = (
    Expect(r"STG\..*", "the one ordinary store resets the counter of the grid barrier", least=1, most=1),
    Expect(r"LDG\..*", "the one ordinary load polls that counter", least=1, most=1),
    Expect(r"(RED|ATOM)G?\..*", "producers arrive by atomics, at barriers and at the end", least=2),
)
_PARTIAL_SUMS = (
    Expect(r"STG\.E\.128\..*", "partial sums of a tile's last part are stored 16 bytes at a time", least=32, most=32),
    Expect(r"LDG\.E\.128\..*", "and loaded by the block that has its first part", least=32, most=32),
    Expect(r"STG\..*", "besides, a flag is set and cleared", least=34, most=34),
    Expect(r"LDG\..*", "and polled", least=33, most=33),
)
_THREADS_STORE = Expect(r"STG\.E", "C is stored two elements at a time", least=16)
_NO_SPILL = Expect(r"(STL|LDL)(\..*)?", "nothing spills", least=0, most=0)
_NEVER = (
    Expect(r"LDG\..*", "no thread loads from A or B", least=0, most=0),
    Expect(r"(LDS|LDSM)(\..*)?", "no thread reads a tile from shared memory", least=0, most=0),
    _NO_SPILL,
    Expect(r"[HF]?MMA\..*|HMMA.*", "no older tensor core instruction", least=0, most=0),
)
_DRAM = "dram__bytes_read.sum"
_L2 = "lts__t_bytes.sum"
_TENSOR = "sm__inst_executed_pipe_tensor_op_gmma.sum"
_TIME = "gpu__time_duration.sum"


def _kernel(
    name: str,
    rung: str,
    title: str,
    source: str,
    entry: str,
    launch: Callable[[Shape], Launch],
    boxes: dict[str, tuple[int, int]],
    hgmma: tuple[str, int],
    expects: tuple[Expect, ...],
    params: dict[str, int],
    idea: str,
    evidence: tuple[str, ...],
    element: str = "bf16",
) -> Kernel:
    """A rung. `hgmma`: shape and least number of its wgmma. With a box of C, TMA stores C."""
    suffix, title_suffix = ("_fp16", ", fp16") if element == "fp16" else ("", "")
    shared = _SHARED_BY_BLOCKS.get(name, {})
    return Kernel(
        id=f"hopper.{name}{suffix}",
        rung=rung,
        title=title + title_suffix,
        source=source,
        compute=Compute(dtype_in=element, dtype_out=element, layout="row,col,row"),
        code=Code(entry, params=params, defines={"ELEMENT": element} if element == "fp16" else {}, headers=_HEADERS),
        launch=launch,
        call=Call(
            arguments=(*_TO_TMA[:3], *shared, *_TO_TMA[3:]) if "c" in boxes else _TO_MEMORY,
            tensor_maps={operand: TensorMap(box=box, swizzle=128) for operand, box in boxes.items()},
        ),
        platform=Platform(min_capability=(9, 0), targets=("90a",)),
        accepts=Accepts(multiple_of={"n": 8, "k": 8}),
        promises=Promises(expects=(_hgmma(hgmma[0], element, hgmma[1]), *expects)),
        run=Run(workspace=shared),
        timing=Timing(baseline="cublas.gemm"),
        story=Story(idea=idea, evidence=evidence),
    )


_HALF = Compute(dtype_in="fp16", dtype_acc="fp16", dtype_out="fp16", layout="col,row,row")
_HALF_HEADERS = (*_HEADERS, "common/wgmma_f16.cuh")
_HALF_WGMMA = Expect(r"HGMMA\.64x64x16\.F16", "wgmma 64x64x16, from shared memory into fp16", least=4)

_SKETCH = Kernel(
    id="hopper.sketch",
    rung="L8",
    title="WGMMA, as sketched",
    source="0_sketch.cu",
    compute=_HALF,
    code=Code("sketch", params={"bm": 64, "bn": 64, "bk": 64}, headers=_HALF_HEADERS),
    launch=_tiled(64, 64, 128),
    call=Call(
        arguments=_TO_MEMORY,
        tensor_maps={"a": TensorMap(box=(64, 64), swizzle=128), "b": TensorMap(box=(64, 64), swizzle=128)},
    ),
    platform=Platform(min_capability=(9, 0), targets=("90a",)),
    accepts=Accepts(multiple_of={"m": 8, "n": 8}),
    promises=Promises(expects=(_HALF_WGMMA, _LOADS, _NO_MULTICAST, _WAITS, _ARRIVES, _THREADS_STORE, *_NEVER)),
    # Beyond, the bound on fp16 sums takes longer to compute than everything else.
    timing=Timing(baseline="cublas.gemm_half_sums", timed_to=8192),
    story=Story(
        article="ladder",
        idea="The article's atom: fp16 operands contiguous along M and N, fp16 sums, each step waited for.",
        evidence=(_TENSOR, _TIME, _L2),
    ),
)

_LAYOUTS = Kernel(
    id="hopper.layouts",
    rung="layouts",
    title="Layouts of operands in shared memory",
    source="0.1_layouts.cu",
    compute=_HALF,
    code=Code(
        "layouts",
        params={"bm": 64, "bn": 64, "bk": 64},
        headers=tuple(header for header in _HALF_HEADERS if header != "common/tma.cuh"),
    ),
    launch=_tiled(64, 64, 128),
    call=Call(arguments=("a", "b", "c", "m", "n", "k", *SWIZZLED_128)),
    platform=Platform(min_capability=(9, 0), targets=("90a",)),
    accepts=Accepts(multiple_of={"m": 64, "n": 64, "k": 64}),
    promises=Promises(expects=(_HALF_WGMMA, _NEVER[-1], _NO_SPILL)),
    timing=Timing(baseline=None, timed=False),
    story=Story(idea="The sketch's instruction on tiles that threads write, in four layouts."),
)


def _wgmma(element: str) -> Kernel:
    return _kernel(
        name="wgmma",
        rung="H1",
        title="wgmma and TMA",
        source="1_wgmma.cu",
        entry="wgmma_tma",
        launch=_tiled(64, 64, 128),
        boxes={"a": (64, 64), "b": (64, 64)},
        hgmma=("64x64x16", 4),
        expects=(_LOADS, _NO_MULTICAST, _WAITS, _ARRIVES, _THREADS_STORE, *_NEVER),
        params={"bm": 64, "bn": 64, "bk": 64},
        idea="Four warps issue one instruction; TMA loads its operands.",
        evidence=(_TENSOR, _TIME, _L2),
        element=element,
    )


_WIDE = {"bm": 128, "bn": 256, "bk": 64, "stages": 4}
_RING_OF_TWO_WARPGROUPS = (_RING, _ARRIVES, _REGISTERS)


def _stored_by_tma(
    number: int,
    name: str,
    entry: str,
    title: str,
    idea: str,
    evidence: tuple[str, ...],
    wgmmas: int,
    element: str = "bf16",
) -> Kernel:
    """One of the rungs H7 to H11: clusters of two, C stored by TMA."""
    by_threads = {"lockstep": _GRID_BARRIER, "stream_k": _PARTIAL_SUMS}.get(name)
    constants = {"lockstep": {"every": 4}, "stream_k": {"worth": 48}}.get(name, {})
    return _kernel(
        name=name,
        rung=f"H{number}",
        title=title,
        source=f"{number}_{name}.cu",
        entry=entry,
        launch=_persistent(256, 256, 4 * _STAGE + _PIECES + _BARRIERS, cluster=2),
        boxes={"a": (128, 64), "b": (128, 64), "c": (16, 64)},
        hgmma=("64x256x16", wgmmas),
        expects=(
            _LOAD_A,
            _MULTICAST,
            *_RING_OF_TWO_WARPGROUPS,
            *(by_threads or _NO_STG),
            *_TMA_STORES,
            *(_NEVER[1:] if by_threads else _NEVER),
        ),
        params={**_WIDE, "group": 8, "cluster": 2, **constants},
        idea=idea,
        evidence=evidence,
        element=element,
    )


def _overlapped(element: str) -> Kernel:
    return _stored_by_tma(
        9,
        "overlapped",
        "overlapped",
        "Overlapped epilogue",
        "A finished tile is rounded into its own registers and stored while the next one is multiplied.",
        (_TIME,),
        20,
        element,
    )


def _lockstep(element: str) -> Kernel:
    return _stored_by_tma(
        10,
        "lockstep",
        "lockstep",
        "Blocks in lockstep",
        "Producers synchronize before every fourth tile, so that the L2 still holds what the others need.",
        (_DRAM, _TIME),
        20,
        element,
    )


def _stream_k(element: str) -> Kernel:
    kernel = _stored_by_tma(
        11,
        "stream_k",
        "stream_k",
        "Stream-K last wave",
        "Tiles of a partial last wave are split along K, so that every cluster has the same amount of work.",
        (_TIME,),
        20,
        element,
    )

    def cut() -> tuple[Shape, ...]:
        """Few tiles more than clusters, as many K iterations as splitting pays from. 66 clusters: 72 tiles, 54 each.

        Eight rows of tiles; nine where eight fill whole waves. One cluster never cuts.
        """
        if (clusters := min(card.sms(), SLOTS) // 2) < 2:
            return ()
        rows = 8 if 8 % clusters else 9
        columns = clusters // rows + 1
        steps = _ceil(49 * clusters, -rows * columns % clusters)
        return (Shape(256 * rows, 256 * columns, 64 * steps - 56),)

    return kernel.with_promises(gate_shapes=card.PerCard(cut))


@dataclass(frozen=True)
class _Tile:
    """A tile of C of levels H12 and H13, and the constants that go with it in the source."""

    bm: int
    bn: int
    stages: int
    piece: int
    group: int

    def cycles(self, shape: Shape) -> int:
        """Cycles per K iteration of all waves of a tile per SM, the last wave counted as full."""
        waves = _ceil(_ceil(shape.m, self.bm) * _ceil(shape.n, self.bn), card.sms())
        # 2048 multiply-adds per cycle, and the measured overhead of an iteration.
        return waves * (self.bm * self.bn * 64 // 2048 + 14)

    def variant(self, entry: str) -> Variant:
        ring = self.stages * (self.bm + self.bn) * 64 * 2
        shared = ring + 8 * 16 * self.piece * 2 + (2 * self.stages + 2) * 8
        halves = self.bm // 64
        pieces = halves * self.bn // self.piece
        stored = TensorMap(box=(16, self.piece), swizzle=128 if self.piece == 64 else 0)
        return Variant(
            entry=entry,
            launch=_persistent(self.bm, self.bn, shared),
            params={"bm": self.bm, "bn": self.bn, "bk": 64, "stages": self.stages, "group": self.group},
            tensor_maps={"a": TensorMap(box=(self.bm, 64)), "b": TensorMap(box=(self.bn, 64)), "c": stored},
            expects=(
                Expect(rf"HGMMA\.64x{self.bn}x16\.F32(\.BF16)?", "wgmma spans the width of the tile", least=4 * halves),
                Expect(r"UTMASTG\.2D", "TMA stores C", least=pieces),
                Expect(r"STSM\.16\.M88\.4(\..*)?", "stmatrix stages the sums", least=pieces * (self.piece // 16)),
            ),
        )


_PING_PONG = _Tile(128, 128, stages=6, piece=64, group=8)
_TILES = (
    _Tile(64, 128, stages=8, piece=64, group=8),
    _Tile(128, 112, stages=7, piece=56, group=8),
    _PING_PONG,
    _Tile(128, 144, stages=6, piece=72, group=12),
    _Tile(128, 192, stages=5, piece=64, group=16),
)
"""The tiles of level H13, smallest first."""
_SEVERAL_TILES = (Shape(2300, 3208, 200), Shape(2300, 3208, 1000))
"""More than two waves of the largest tile, so that both consumers work; fewer K iterations than stages, and more."""


def best_tile(shape: Shape) -> int:
    """Index of the H13 tile whose waves take the fewest cycles."""
    return min(range(len(_TILES)), key=lambda index: _TILES[index].cycles(shape))


def _alternating(
    name: str, rung: str, title: str, source: str, variants: tuple[Variant, ...], idea: str, element: str = "bf16"
) -> Kernel:
    """H12 and H13: one consumer per tile, no clusters. The record itself is the first of `variants`."""
    first = variants[0]
    return _kernel(
        name=name,
        rung=rung,
        title=title,
        source=source,
        entry=first.entry,
        launch=first.launch,
        boxes={operand: made.box for operand, made in first.tensor_maps.items()},
        hgmma=(f"64x{first.params['bn']}x16", 4),
        expects=(_LOADS, _NO_MULTICAST, *_RING_OF_TWO_WARPGROUPS, *_NO_STG, *_NEVER),
        params=dict(first.params),
        idea=idea,
        evidence=(_TIME, _L2),
        element=element,
    )


def _ping_pong(element: str) -> Kernel:
    variant = _PING_PONG.variant("ping_pong")
    kernel = _alternating(
        "ping_pong",
        "H12",
        "Ping-pong consumers",
        "12_ping_pong.cu",
        (variant,),
        "One consumer multiplies a whole tile while the other stores its previous one; no clusters.",
        element,
    )
    return kernel.with_promises(expects=(*kernel.promises.expects[1:], *variant.expects), gate_shapes=_SEVERAL_TILES)


def _by_size(element: str) -> Kernel:
    variants = tuple(tile.variant(f"tile_{tile.bm}x{tile.bn}") for tile in _TILES)
    kernel = _alternating(
        "by_size",
        "H13",
        "Tile chosen by size",
        "13_by_size.cu",
        variants,
        "Of five tiles the host picks the one whose waves take the least time.",
        element,
    )
    return replace(
        kernel,
        launch=lambda shape: variants[best_tile(shape)].launch(shape),
        code=replace(
            kernel.code,
            params={"bk": 64, "tiles": len(variants)},
            headers=(*_HEADERS, "common/wgmma_widths.cuh"),
        ),
        # Every variant expects its own width.
        promises=Promises(expects=kernel.promises.expects[1:], gate_shapes=_SEVERAL_TILES),
        run=Run(variants=variants, choose=lambda shape: variants[best_tile(shape)]),
    )


_ERROR = 1.01
"""Forms whose times differ by less than this factor count as equally fast."""
CLOCK = 1.98e9
"""The highest clock in Hz, at which `_Form.cycles` become seconds."""
LAUNCH_CYCLES = {"own": 5_000, "shared": 12_000}
"""Cycles of a launch beside its steps, by kind of form."""
GROUP_CYCLES = {"own": 14, "shared": 63}
"""Cycles of a group of wgmma beside those of its multiplications."""
STORE_CYCLES = 2_500
"""Cycles in which a shared tile is stored where nothing is multiplied meanwhile."""
PJ_MULTIPLY, PJ_READ, PJ_FED, PJ_DRAM = 1.93, 21.8, 19.7, 131.0
"""Energy at the highest clock, in pJ: of a multiply-add, of a byte of A that wgmma reads from shared memory, of a byte
written there, and of one read from or written to DRAM. NOTES.md says how these constants follow from measured times."""
HELD = 40e6
"""Bytes of A and B that stay in L2 from one launch to the next."""


@dataclass(frozen=True)
class _Form:
    """A form of level H14: how a block's consumers share its tile of C, and the constants of `Form` in the source."""

    kind: str
    """own: a tile for each consumer; shared: one tile for both."""
    bm: int
    bn: int
    stages: int
    piece: int
    group: int
    cluster: int = 1
    unit: int = 1
    every: int = 0
    buffers: int = 1
    narrow: int = 0
    """Width of the last columns of tiles, as many as keep tiles from reaching beyond C; 0: all are `bn` wide."""

    @property
    def keeps(self) -> bool:
        """Whether a finished tile is stored while the next one is multiplied."""
        return self.kind == "own" or self.bm * self.bn <= 128 * 256

    def tiles(self, shape: Shape) -> int:
        """Tiles of a cluster that a problem has, cut ones included."""
        return _ceil(shape.m, self.cluster * self.bm) * _ceil(shape.n, self.bn)

    def waves(self, shape: Shape) -> int:
        """Tiles of the busiest cluster."""
        return _ceil(self.tiles(shape), max(1, card.sms() // self.cluster))

    def width(self, shape: Shape) -> float:
        """Mean columns of a tile."""
        count = _ceil(shape.n, self.bn)
        fewer = self.bn - self.narrow
        narrow = min(count, (count * self.bn - shape.n) // fewer) if self.narrow else 0
        return self.bn - narrow * fewer / count

    def cycles(self, shape: Shape) -> float:
        """Cycles of a launch: whole waves at 2048 multiply-adds a cycle, groups, stores, and the launch itself."""
        groups = _ceil(shape.k, 64 * self.unit)
        tile = groups * (self.unit * self.bm * self.width(shape) * 64 / 2048 + GROUP_CYCLES[self.kind])
        stores = 0 if self.keeps else STORE_CYCLES
        return LAUNCH_CYCLES[self.kind] + self.waves(shape) * (tile + stores)

    def moved(self, shape: Shape) -> tuple[float, float, float]:
        """Bytes written to shared memory, requested from L2, and exchanged with DRAM."""
        tiles = self.tiles(shape)
        row = 2.0 * 64 * self.unit * _ceil(shape.k, 64 * self.unit)
        fed = tiles * row * self.cluster * (self.bm + self.bn)
        requested = tiles * row * (self.cluster * self.bm + self.bn)
        operands, out = 2.0 * shape.k * (shape.m + shape.n), 2.0 * shape.m * shape.n
        if operands + out <= HELD:
            return fed, requested, 0.0
        # Blocks that nothing holds in step drift apart, and read again what has left the L2.
        drift = 1.1 if self.every else 1 + 0.6 * (shape.k / 16384) ** 2
        height = min(shape.m, self.group * self.cluster * self.bm)
        panels = self.waves(shape) * (height + card.sms() * self.bm * self.bn / height) * 2 * shape.k * drift
        return fed, requested, max(operands, panels) + out

    def joules(self, shape: Shape) -> float:
        """Energy of a launch at the highest clock, in J.

        A wgmma of BN columns reads its 64 rows of A from shared memory: 2 / BN bytes per multiply-add. For B they are
        2 / 64 in every form.
        """
        fed, _, dram = self.moved(shape)
        multiplied = self.tiles(shape) * self.cluster * self.bm * self.width(shape) * shape.k
        return 1e-12 * ((PJ_MULTIPLY + PJ_READ * 2 / self.width(shape)) * multiplied + PJ_FED * fed + PJ_DRAM * dram)

    def seconds(self, shape: Shape) -> float:
        """Time of a launch in a sustained run.

        Power grows as the square of the clock. So a launch that would draw more at the highest clock than the card may
        takes longer by the square root of its excess, and energy and cycles count alike.
        """
        fastest = self.cycles(shape) / CLOCK
        return fastest * max(1.0, math.sqrt(self.joules(shape) / (fastest * card.watts())))

    @property
    def entry(self) -> str:
        return f"{self.kind}_{self.bm}x{self.bn}"

    def variant(self) -> Variant:
        ring = self.stages * (self.bm + self.bn) * 64 * 2
        shared = ring + 8 * self.buffers * 16 * self.piece * 2 + (2 * self.stages + 2) * 8
        halves = self.bm // (64 if self.kind == "own" else 128)
        pieces = halves * self.bn // self.piece
        stored = TensorMap(box=(16, self.piece), swizzle=128 if self.piece == 64 else 0)
        loads = (_LOAD_A, _MULTICAST) if self.cluster > 1 else (_LOADS, _NO_MULTICAST)
        persistent = _persistent(self.cluster * self.bm, self.bn, shared, self.cluster)
        return Variant(
            entry=self.entry,
            launch=lambda shape: replace(persistent(shape), early=True),
            params={
                **{"bm": self.bm, "bn": self.bn, "bk": 64, "stages": self.stages},
                **{"group": self.group, "cluster": self.cluster, "unit": self.unit, "every": self.every},
                **({"narrow": self.narrow} if self.narrow else {}),
            },
            tensor_maps={
                "a": TensorMap(box=(self.bm, 64)),
                "b": TensorMap(box=(self.bn // self.cluster, 64)),
                "c": stored,
            },
            expects=(
                Expect(
                    rf"HGMMA\.64x{self.bn}x16\.F32(\.BF16)?",
                    "wgmma spans the width of the tile",
                    least=4 * halves * self.unit,
                ),
                *loads,
                *(_GRID_BARRIER if self.every else _NO_STG),
                *(_NEVER[1:] if self.every else _NEVER),
                Expect(r"UTMASTG\.2D", "TMA stores C", least=pieces),
                Expect(r"STSM\.16\.M88\.4(\..*)?", "stmatrix stages the sums", least=pieces * (self.piece // 16)),
            ),
        )


_FORMS = (
    _Form("own", 64, 128, stages=8, piece=64, group=8, unit=2),
    _Form("own", 128, 128, stages=6, piece=64, group=8, unit=2),
    _Form("own", 128, 144, stages=6, piece=72, group=12, unit=2),
    _Form("own", 128, 192, stages=5, piece=64, group=16),
    _Form("own", 128, 200, stages=5, piece=40, group=16, narrow=192),
    _Form("shared", 128, 256, stages=4, piece=64, group=8, cluster=2, every=4, buffers=2),
    _Form("shared", 256, 192, stages=3, piece=64, group=8, every=4, buffers=3),
)
"""The forms of level H14."""
FORMS = tuple(form.variant() for form in _FORMS)
"""Their entry points."""


def best_form(shape: Shape) -> int:
    """Index of the H14 form with the fewest cycles of those that take the least time in a sustained run.

    From rest the clock is high at first, and cycles decide.
    """
    least = min(form.seconds(shape) for form in _FORMS)
    fastest = [index for index, form in enumerate(_FORMS) if form.seconds(shape) <= _ERROR * least]
    return min(fastest, key=lambda index: _FORMS[index].cycles(shape))


_EARLY = (
    Expect(r"ACQBULK.*", "a launch waits for the kernel before it", least=1),
    Expect(r"PREEXIT.*", "and lets the next one begin", least=1),
)


def _by_energy() -> Kernel:
    kernel = _alternating(
        "by_energy",
        "H14",
        "Form chosen by energy",
        "14_by_energy.cu",
        FORMS,
        "Of seven forms the host picks the one whose cycles and energy together cost the least time at the power cap.",
    )
    return replace(
        kernel,
        platform=replace(kernel.platform, tuned_sms=132),  # energies and overheads are an H200's
        launch=lambda shape: FORMS[best_form(shape)].launch(shape),
        code=replace(
            kernel.code,
            params={"bk": 64, "forms": len(FORMS)},
            headers=(*_HEADERS, "common/wgmma_widths.cuh", "hopper/wgmma_200.cuh"),
        ),
        call=replace(kernel.call, arguments=(*_TO_TMA[:3], "meeting", *_TO_TMA[3:])),
        promises=Promises(expects=(*_RING_OF_TWO_WARPGROUPS, *_EARLY), gate_shapes=_SEVERAL_TILES),
        run=Run(
            variants=FORMS,
            choose=lambda shape: FORMS[best_form(shape)],
            workspace={"meeting": Buffer("int32", lambda shape: (2,), zeroed=True)},
        ),
    )


@dataclass(frozen=True)
class _Costs:
    """What the model of level H16 charges, in cycles at 1.9 GHz unless it says so; NOTES.md says how it was fitted."""

    group: Mapping[str, float]
    """Of a group of wgmma beside its products, by kind of form."""
    row: Mapping[int, float]
    """Of a row of 128 bytes that a block requests, by the bytes that rows of A and B are a multiple of."""
    crowd: float
    """A request costs this share of it at least, and the rest by how many of the SMs load as well; see `step`."""
    written: float
    """Of a row that lands in a block's shared memory."""
    boxed: float
    """Of a row of the boxes that a block loads, beyond the matrix or not."""
    shared: float
    """Of a step whose tiles blocks share ..."""
    sharer: float
    """... and of every sharer after the first."""
    overlap: float
    """Exponent of the norm that joins multiplying and loading."""
    stored: float
    """Of an element of a tile that is stored."""
    turned: float
    """Factor of that where operands are exchanged."""
    tile: float
    """Of a tile besides."""
    parts: float
    """Of exchanging sums among parts of K ..."""
    part: float
    """... and of each element of the tile besides."""
    launch: float
    cluster: float
    """Of a launch in clusters besides ..."""
    doubled: float
    """... and of every doubling of their size."""
    bandwidth: float
    """Of DRAM, in 10^12 bytes a second."""
    kept: float
    """Megabytes that L2 keeps from one launch to the next ..."""
    missed: float
    """... and how many more until it keeps none."""
    sparse: float
    """How much slower DRAM is where a tile's rows lie beyond the matrix."""
    memory: float
    """Exponent of the norm that joins all this and DRAM."""


COSTS = _Costs(
    group={"alternating": 6.1, "joint": 107.6, "kept": 69.1},
    row={128: 1.323, 64: 1.596, 32: 2.029, 16: 3.586},
    crowd=0.084,
    written=0.711,
    boxed=0.179,
    shared=32.6,
    sharer=4.94,
    overlap=2.414,
    stored=0.0499,
    turned=1.289,
    tile=355,
    parts=545,
    part=0.428,
    launch=4142,
    cluster=160,
    doubled=22.2,
    bandwidth=4.58,
    kept=3.05,
    missed=4.15,
    sparse=1.452,
    memory=1.789,
)

CLUSTERS_OF = {1: 132, 2: 66, 3: 39, 4: 30, 6: 17, 8: 15}
"""Clusters of a size that run at once on the 132 SMs of an H200, whose groups of SMs they do not fill, as its driver
says; with other numbers of SMs in proportion."""


@dataclass(frozen=True)
class _Shaped:
    """A form of level H16: the constants of `Form` in the source."""

    kind: str
    """joint: a tile for both consumers of a block; alternating: one for each."""
    bm: int
    bn: int
    stages: int
    unit: int = 1
    exchanged: bool = False
    group: int = 8
    keeps: bool = False
    every: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    """Of the launches that the gate judges; parts of K only where they fit one wave."""

    @property
    def entry(self) -> str:
        return f"{self.kind}_{self.bm}x{self.bn}" + ("_x" if self.exchanged else "")

    @property
    def consumer(self) -> tuple[int, int]:
        """Rows and columns of a tile that one consumer multiplies."""
        if self.kind == "alternating":
            return self.bm, self.bn
        return (self.bm // 2, self.bn) if self.bm >= 128 else (self.bm, self.bn // 2)

    def divides(self, parts: int) -> bool:
        """Whether `parts` of K may share a tile: their sums must find room where the ring was."""
        rows, cols = self.consumer
        groups = rows // 64 * cols // 8
        room = self.stages * (self.bm + self.bn) * 128 // 4096
        joint = self.kind == "joint" and not self.keeps and groups + 7 <= room
        return parts == 1 or (joint and parts * _ceil(groups, parts) <= room)

    @property
    def clusters(self) -> Iterator[tuple[int, int, int]]:
        """The clusters that a launch may have: rows and columns of blocks that share tiles, and parts of K."""
        for rows, cols, parts in itertools.product((1, 2, 4), (1, 2, 4), (1, 2, 3, 4, 6, 8)):
            if rows * cols * parts in CLUSTERS_OF and self.bn % rows == 0 and self.divides(parts):
                yield rows, cols, parts


@dataclass(frozen=True)
class _Plan:
    """A form of level H16 and the cluster in which its blocks are launched."""

    form: _Shaped
    cluster: tuple[int, int, int]

    def tiles(self, shape: Shape) -> tuple[int, int]:
        """Rows and columns of tiles of a cluster."""
        high, wide = (shape.n, shape.m) if self.form.exchanged else (shape.m, shape.n)
        rows, cols, _ = self.cluster
        return _ceil(_ceil(high, self.form.bm), rows), _ceil(_ceil(wide, self.form.bn), cols)

    def fit(self, sms: int) -> int:
        """Clusters that run at once."""
        return max(1, CLUSTERS_OF[math.prod(self.cluster)] * sms // CLUSTERS_OF[1])

    def step(self, shape: Shape, busy: float) -> float:
        """Cycles of a step of K, where this share of the SMs is busy."""
        form, (rows, cols, _) = self.form, self.cluster
        high, wide = (shape.n, shape.m) if form.exchanged else (shape.m, shape.n)
        consumers, (r, c) = (1 if form.kind == "alternating" else 2), form.consumer
        # Tensor cores do 2048 multiply-adds a cycle and read 128 bytes of shared memory, 64 rows and c columns a wgmma.
        multiply = max(form.bm * form.bn * 64 / 2048, consumers * r // 64 * (64 + c))
        multiply += COSTS.group["kept" if form.keeps else form.kind] / form.unit
        requested = high / _ceil(high, form.bm) / cols + wide / _ceil(wide, form.bn) / rows
        aligned = next(step for step in (128, 64, 32, 16) if 2 * shape.k % step == 0)
        load = requested * COSTS.row[aligned] * (COSTS.crowd + busy) / (COSTS.crowd + 1)
        load += COSTS.written * (form.bm + form.bn) + COSTS.boxed * (form.bm / cols + form.bn / rows)
        sharers = rows + cols - 2
        shared = COSTS.shared + COSTS.sharer * (sharers - 1) if sharers else 0
        return _norm(multiply, load, COSTS.overlap) + shared

    def seconds(self, shape: Shape, sms: int) -> float:
        """Time of a launch among others on `sms` SMs."""
        form, size, parts = self.form, math.prod(self.cluster), self.cluster[2]
        clusters, fit = math.prod(self.tiles(shape)), self.fit(sms)
        steps = _ceil(_ceil(shape.k, 64 * form.unit), parts) * form.unit
        main = steps * self.step(shape, min(clusters, fit) * size / sms)
        put = form.bm * form.bn * COSTS.stored * (COSTS.turned if form.exchanged else 1)
        if form.kind == "alternating":
            tile = max(main, (main + put) / 2)
        else:
            tile = max(main, put) if form.keeps else main + put
        tile += COSTS.tile
        if parts > 1:
            tile += COSTS.parts + COSTS.part * form.bm * form.bn
        last = put if form.keeps or form.kind == "alternating" else 0
        cluster = COSTS.cluster + COSTS.doubled * math.log2(size) if size > 1 else 0
        cycles = COSTS.launch + cluster + _ceil(clusters, fit) * tile + last
        return _norm(cycles / 1.9e9, self._memory(shape), COSTS.memory)

    def _memory(self, shape: Shape) -> float:
        """Seconds that DRAM takes."""
        form = self.form
        high, wide = (shape.n, shape.m) if form.exchanged else (shape.m, shape.n)
        moved = 2.0 * (shape.k * (shape.m + shape.n) + shape.m * shape.n)
        missed = min(1.0, max(0.0, (moved / 1e6 - COSTS.kept) / COSTS.missed))
        used = high / _ceil(high, form.bm) + wide / _ceil(wide, form.bn)
        return missed * moved / (COSTS.bandwidth * 1e12) * (1 + COSTS.sparse * (1 - used / (form.bm + form.bn)))

    def launch(self, shape: Shape) -> Launch:
        """As many clusters as run at once; all of them where K is in parts, whose blocks do not go on to another."""
        rows, cols, parts = self.cluster
        clusters = math.prod(self.tiles(shape))
        if parts == 1:
            clusters = min(clusters, self.fit(card.sms()))
        form = self.form
        ring = form.stages * (form.bm + form.bn) * 64 * 2
        return Launch(
            grid=(clusters * rows, cols, parts),
            block=(384, 1, 1),
            cluster=self.cluster if math.prod(self.cluster) > 1 else None,
            shared_bytes=ring + 8 * (2 if form.keeps else 1) * 16 * 64 * 2 + (2 * form.stages + 2) * 8,
            early=True,
        )

    def variant(self) -> Variant:
        form, (rows, cols, _) = self.form, self.cluster
        c, halves = form.consumer[1], form.consumer[0] // 64
        piece = min(c, 64)
        high, wide = TensorMap(box=(form.bm // cols, 64)), TensorMap(box=(form.bn // rows, 64))
        a, b = (wide, high) if form.exchanged else (high, wide)
        stored = TensorMap(box=(piece, 64)) if form.exchanged else TensorMap(box=(16, piece), swizzle=2 * piece)
        pieces = halves * _ceil(c, piece)
        return Variant(
            entry=form.entry,
            launch=self.launch,
            params={
                "bm": form.bm,
                "bn": form.bn,
                "bk": 64,
                "stages": form.stages,
                "unit": form.unit,
                "group": form.group,
            },
            tensor_maps={"a": a, "b": b, "c": stored},
            expects=(
                Expect(
                    rf"HGMMA\.64x{c}x16\.F32\.BF16",
                    "wgmma spans the columns of a consumer",
                    least=4 * halves * form.unit,
                ),
                Expect(r"UTMASTG\.2D", "TMA stores C", least=pieces),
                Expect(
                    rf"STSM\.16\.{'MT88' if form.exchanged else 'M88'}\.4(\..*)?",
                    "stmatrix stages the sums, transposed if operands are exchanged",
                    least=pieces * (piece // 16),
                ),
            ),
        )


def _norm(one: float, other: float, exponent: float) -> float:
    """The larger of two times that overlap, and some of the smaller."""
    return (one**exponent + other**exponent) ** (1 / exponent)


_SHAPED = (
    _Shaped("joint", 64, 64, stages=12, unit=2, cluster=(2, 2, 2)),
    _Shaped("joint", 128, 32, stages=10, unit=2, exchanged=True, cluster=(1, 1, 4)),
    _Shaped("joint", 128, 64, stages=8, unit=2, cluster=(1, 1, 8)),
    _Shaped("joint", 128, 96, stages=7, unit=2, cluster=(1, 2, 3)),
    _Shaped("joint", 128, 128, stages=6, unit=2, cluster=(2, 1, 2)),
    _Shaped("joint", 128, 192, stages=5, cluster=(2, 1, 4)),
    _Shaped("joint", 128, 256, stages=4, keeps=True, every=4, cluster=(2, 1, 1)),
    _Shaped("joint", 256, 192, stages=3, every=4, cluster=(1, 2, 1)),
    _Shaped("alternating", 64, 72, stages=12, unit=2, cluster=(4, 1, 1)),
    _Shaped("alternating", 64, 96, stages=10, unit=2, cluster=(1, 4, 1)),
    _Shaped("alternating", 64, 96, stages=10, unit=2, exchanged=True, cluster=(2, 2, 1)),
    _Shaped("alternating", 64, 128, stages=8, unit=2),
    _Shaped("alternating", 64, 144, stages=8, unit=2, exchanged=True, cluster=(4, 2, 1)),
    _Shaped("alternating", 64, 168, stages=7, cluster=(2, 4, 1)),
    _Shaped("alternating", 64, 168, stages=7, exchanged=True, cluster=(4, 2, 1)),
    _Shaped("alternating", 64, 192, stages=6, exchanged=True, cluster=(1, 2, 1)),
    _Shaped("alternating", 128, 112, stages=7, unit=2, exchanged=True, cluster=(4, 2, 1)),
    _Shaped("alternating", 128, 128, stages=6, unit=2, cluster=(2, 1, 1)),
    _Shaped("alternating", 128, 144, stages=6, exchanged=True, group=12, cluster=(2, 4, 1)),
    _Shaped("alternating", 128, 160, stages=5, group=12),
    _Shaped("alternating", 128, 160, stages=5, exchanged=True, group=12, cluster=(2, 2, 1)),
    _Shaped("alternating", 128, 176, stages=5, exchanged=True, group=12, cluster=(4, 1, 1)),
    _Shaped("alternating", 128, 192, stages=5, group=16, cluster=(2, 2, 1)),
)
"""The forms of level H16."""
_PLANS = tuple(_Plan(form, cluster) for form in _SHAPED for cluster in form.clusters)


def _gated(form: _Shaped) -> Variant:
    """The entry point of a form, as the gate launches it: in parts of K where its cluster's tiles fit one wave."""
    divided, whole = _Plan(form, form.cluster), _Plan(form, (*form.cluster[:2], 1))

    def launch(shape: Shape) -> Launch:
        one_wave = math.prod(divided.tiles(shape)) <= divided.fit(card.sms())
        return (divided if one_wave else whole).launch(shape)

    return replace(whole.variant(), launch=launch)


SHAPED = tuple(map(_gated, _SHAPED))
"""Their entry points."""


def best_plan(shape: Shape, sms: int) -> _Plan:
    """The H16 form and cluster that take the least time by the model. A part of K is two groups at least."""
    possible = (
        plan for plan in _PLANS if plan.cluster[2] == 1 or 2 * plan.cluster[2] <= _ceil(shape.k, 64 * plan.form.unit)
    )
    return min(possible, key=lambda plan: plan.seconds(shape, sms))


def _any_shape() -> Kernel:
    kernel = _alternating(
        "any_shape",
        "H16",
        "Any shape",
        "16_any_shape.cu",
        SHAPED,
        "Blocks of a cluster share tiles or divide K, operands change places, and a model of times chooses the form.",
    )
    return replace(
        kernel,
        platform=replace(kernel.platform, tuned_sms=132),  # times of plans are an H200's
        launch=lambda shape: best_plan(shape, card.sms()).launch(shape),
        code=replace(
            kernel.code,
            params={"bk": 64, "forms": len(SHAPED)},
            headers=(
                *_HEADERS,
                "common/wgmma_widths.cuh",
                "hopper/cluster.cuh",
                "hopper/wgmma_any.cuh",
            ),
        ),
        call=replace(kernel.call, arguments=(*_TO_TMA[:3], "c", "meeting", *_TO_TMA[3:])),
        promises=Promises(
            expects=(
                *_RING_OF_TWO_WARPGROUPS,
                *_EARLY,
                Expect(r"UTMALDG\.2D", "TMA loads tiles, for this block", least=2),
                Expect(r"UTMALDG\.2D\.MULTICAST", "or for those that share them", least=2),
                _NO_SPILL,
                _NEVER[-1],
            ),
            gate_shapes=(*_SEVERAL_TILES, Shape(392, 520, 4104)),
        ),
        run=Run(
            variants=SHAPED,
            choose=lambda shape: best_plan(shape, card.sms()).variant(),
            workspace={"meeting": Buffer("int32", lambda shape: (2,), zeroed=True)},
        ),
    )


_EPILOGUE = Compute(op="gemm_epilogue", dtype_in="bf16", dtype_out="bf16", layout="row,col,row")
_EPILOGUE_SHARED = 5 * (128 + 128) * 64 * 2 + 8 * 4 * 16 * 64 * 2 + (2 * 5 + 2 + 8) * 8
"""Bytes of five stages, of four pieces for each of eight warps, and of the barriers."""
_EPILOGUE_MAPS = {"a": TensorMap(box=(128, 64)), "b": TensorMap(box=(128, 64)), "c0": TensorMap(box=(16, 64))}
_EPILOGUE_PARAMS = {"bm": 128, "bn": 128, "bk": 64, "stages": 5, "group": 8}
_TAKES_C = (
    *_RING_OF_TWO_WARPGROUPS,
    _hgmma("64x128x16", "bf16", 8),
    Expect(r"UTMALDG\.2D", "TMA loads tiles of A and B, and pieces of C", least=3),
    Expect(r"LDS(\..*)?", "threads read their elements of C", least=32),
    Expect(r"STSM\.16\.M88\.4(\..*)?", "stmatrix puts those of D in their place", least=16),
    Expect(r"UTMASTG\.2D", "TMA stores D", least=4),
    *_NO_STG,
    _NO_SPILL,
    _NEVER[-1],
)


def _with_epilogue(name: str, rung: str, title: str, entry: str, out: str, idea: str) -> Kernel:
    """A kernel of 15_epilogue.cu, whose products go to the operand `out`."""
    bias = ("bias",) if out == "c" else ()
    return Kernel(
        id=f"hopper.{name}",
        rung=rung,
        title=title,
        source="15_epilogue.cu",
        compute=_EPILOGUE,
        code=Code(entry, params=_EPILOGUE_PARAMS, headers=_HEADERS),
        launch=_persistent(128, 128, _EPILOGUE_SHARED),
        call=Call(
            arguments=("map:a", "map:b", "map:c0", f"map:{out}", *bias, "alpha", "beta", "m", "n", "k"),
            tensor_maps={**_EPILOGUE_MAPS, out: TensorMap(box=(16, 64))},
        ),
        platform=Platform(min_capability=(9, 0), targets=("90a",)),
        accepts=Accepts(multiple_of={"n": 8, "k": 8}),
        timing=Timing(baseline=None, timed=False),
        story=Story(idea=idea),
    )


def _epilogue() -> Kernel:
    kernel = _with_epilogue(
        "epilogue",
        "H15",
        "GELU, bias and C in the epilogue",
        "fused",
        "c",
        "D = GELU(alpha A B + beta C + bias) in one launch: C comes by TMA, and GELU's argument stays in registers.",
    )
    exponential = Expect(r"MUFU\.EX2.*", "erff takes an exponential", least=1)
    return kernel.with_promises(expects=(*_TAKES_C, exponential), gate_shapes=_SEVERAL_TILES)


def _epilogue_apart() -> Kernel:
    kernel = _with_epilogue(
        "epilogue_apart",
        "H15, apart",
        "GELU and bias in a launch of their own",
        "product",
        "z",
        "The same product, which writes alpha A B + beta C, and a pointwise kernel that reads it.",
    )
    product = Step("product", kernel.launch, kernel.call.arguments, expects=_TAKES_C)
    pointwise = Step(
        "bias_gelu",
        lambda shape: Launch(grid=(_ceil(shape.m * shape.n, 8 * 256), 1, 1), block=(256, 1, 1)),
        ("z", "bias", "c", "m", "n"),
        expects=(
            Expect(r"LDG\.E\.128(\..*)?", "16 bytes of z and of the bias a thread", least=2),
            Expect(r"STG\.E\.128(\..*)?", "16 bytes of D", least=1),
            _NO_SPILL,
        ),
    )
    return replace(
        kernel,
        promises=Promises(expects=_TAKES_C, gate_shapes=_SEVERAL_TILES),
        run=Run(
            steps=(product, pointwise),
            workspace={"z": Buffer("bf16", lambda shape: (shape.m, shape.n), multiples=(1, 8))},
        ),
    )


KERNELS = (
    _SKETCH,
    _LAYOUTS,
    _wgmma("bf16"),
    _kernel(
        name="tiles",
        rung="H2",
        title="Larger tiles",
        source="2_tiles.cu",
        entry="tiles",
        launch=_tiled(128, 128, 128),
        boxes={"a": (128, 64), "b": (128, 64)},
        hgmma=("64x128x16", 8),
        expects=(_LOADS, _NO_MULTICAST, _WAITS, _ARRIVES, _THREADS_STORE, *_NEVER),
        params={"bm": 128, "bn": 128, "bk": 64},
        idea="A tile twice as large in both dimensions halves the loads; eight wgmma in flight.",
        evidence=(_L2, _TIME),
    ),
    _kernel(
        name="specialized",
        rung="H3",
        title="Producer and consumer",
        source="3_specialized.cu",
        entry="specialized",
        launch=_tiled(128, 128, 160, shared_bytes=3 * (128 + 128) * 64 * 2 + 2 * 3 * 8),
        boxes={"a": (128, 64), "b": (128, 64)},
        hgmma=("64x128x16", 8),
        expects=(_LOADS, _NO_MULTICAST, _RING, _ARRIVES, _THREADS_STORE, *_NEVER),
        params={"bm": 128, "bn": 128, "bk": 64, "stages": 3},
        idea="One warp keeps a ring of tiles full; four warps multiply.",
        evidence=(_TIME,),
    ),
    _kernel(
        name="two_consumers",
        rung="H4",
        title="Two consumers",
        source="4_two_consumers.cu",
        entry="two_consumers",
        launch=_tiled(128, 256, 384, shared_bytes=4 * _STAGE + _BARRIERS),
        boxes={"a": (128, 64), "b": (256, 64)},
        hgmma=("64x256x16", 4),
        expects=(_LOADS, _NO_MULTICAST, *_RING_OF_TWO_WARPGROUPS, _THREADS_STORE, *_NEVER),
        params=_WIDE,
        idea="Two warpgroups share a tile of B; the producer releases registers to them.",
        evidence=(_TENSOR, _L2, _TIME),
    ),
    _kernel(
        name="persistent",
        rung="H5",
        title="Persistent",
        source="5_persistent.cu",
        entry="persistent",
        launch=_persistent(128, 256, 4 * _STAGE + _BARRIERS),
        boxes={"a": (128, 64), "b": (256, 64)},
        hgmma=("64x256x16", 4),
        expects=(_LOADS, _NO_MULTICAST, *_RING_OF_TWO_WARPGROUPS, _THREADS_STORE, *_NEVER),
        params={**_WIDE, "group": 16},
        idea="Persistent blocks walk tiles in an order that shares rows and columns in the L2.",
        evidence=(_DRAM, _TIME),
    ),
    _kernel(
        name="multicast",
        rung="H6",
        title="Clusters and multicast",
        source="6_multicast.cu",
        entry="multicast",
        launch=_persistent(256, 256, 4 * _STAGE + _BARRIERS, cluster=2),
        boxes={"a": (128, 64), "b": (128, 64)},
        hgmma=("64x256x16", 4),
        expects=(_LOAD_A, _MULTICAST, *_RING_OF_TWO_WARPGROUPS, _THREADS_STORE, *_NEVER),
        params={**_WIDE, "group": 8, "cluster": 2},
        idea="Two blocks each load half a tile of B and multicast it to both.",
        evidence=(_L2, _TIME),
    ),
    _stored_by_tma(
        7,
        "tma_store",
        "tma_store_c",
        "Stored by TMA",
        "Sums go through shared memory, and TMA writes whole lines.",
        (_TIME,),
        4,
    ),
    _stored_by_tma(
        8,
        "in_flight",
        "in_flight",
        "One K iteration in flight",
        "The next iteration's wgmma are issued before the last one's have completed.",
        (_TIME,),
        4,
    ),
    _overlapped("bf16"),
    _lockstep("bf16"),
    _stream_k("bf16"),
    _ping_pong("bf16"),
    _by_size("bf16"),
    _by_energy(),
    _any_shape(),
    _wgmma("fp16"),
    _overlapped("fp16"),
    _lockstep("fp16"),
    _stream_k("fp16"),
    _by_size("fp16"),
    _epilogue(),
    _epilogue_apart(),
)
