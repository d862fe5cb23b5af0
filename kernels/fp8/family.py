"""FP8: products of 8-bit floats by hand, and what it costs to add them accurately."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

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
    Run,
    Story,
    TensorMap,
    Timing,
    Variant,
    card,
)

FAMILY = Family(
    name="fp8",
    title="FP8: e4m3 by hand",
    article=None,
    summary=(
        "C = A B in e4m3 with fp16 results against cublasLt's fast and accurate modes, B K-major: sums left in the "
        "tensor core, added to fp32 ones every 128 of K, and scaled by blocks."
    ),
    figures=("ratio",),
    main_dtype="fp8_e4m3",
)

_HEADERS = (
    "common/element.cuh",
    "common/mbarrier.cuh",
    "common/tma.cuh",
    "common/wgmma.cuh",
    "common/wgmma_e4m3.cuh",
)
_BK = 128
_MAPS = ("map:a", "map:b", "map:c")
_SIZES = ("m", "n", "k")


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True)
class _Tile:
    """A tile of C and the constants that go with it in the source.

    Attributes:
        bn: its columns.
        width: columns that a wgmma multiplies.
        stages: of the ring.
        piece: columns of C that a warp stores at a time.
        buffers: pieces of a warp in shared memory.
        barriers: mbarriers in shared memory.
        scales: numbers in fp32 beside a stage's tiles.
        bm: its rows.
        consumers: warpgroups that multiply.
    """

    bn: int
    width: int
    stages: int
    piece: int
    buffers: int
    barriers: int
    scales: int = 0
    bm: int = 128
    consumers: int = 2

    @property
    def params(self) -> dict[str, int]:
        return {"bm": self.bm, "bn": self.bn, "bk": _BK, "stages": self.stages, "group": 8}

    @property
    def maps(self) -> dict[str, TensorMap]:
        stored = TensorMap(box=(16, self.piece), swizzle={32: 64, 64: 128}.get(self.piece, 0))
        return {"a": TensorMap(box=(self.bm, _BK)), "b": TensorMap(box=(self.bn, _BK)), "c": stored}

    @property
    def launch(self) -> Callable[[Shape], Launch]:
        """As many blocks as fit the GPU, or fewer on small problems: none without a tile."""
        ring = self.stages * ((self.bm + self.bn) * _BK + 4 * self.scales)
        shared = ring + 4 * self.consumers * self.buffers * 16 * self.piece * 2 + self.barriers * 8

        def launch(shape: Shape) -> Launch:
            tiles = _ceil(shape.m, self.bm) * _ceil(shape.n, self.bn)
            threads = 128 * (self.consumers + 1)
            return Launch(grid=(min(card.sms(), tiles), 1, 1), block=(threads, 1, 1), shared_bytes=shared)

        return launch

    @property
    def expects(self) -> tuple[Expect, ...]:
        pieces = self.bn // self.piece
        return (
            Expect(rf"QGMMA\.64x{self.width}x32\.F32\.E4M3\.E4M3", "wgmma of e4m3, from shared memory into fp32", 4),
            Expect(r"UTMASTG\.2D", "TMA stores C", least=pieces),
            Expect(r"STSM\.16\.M88\.4(\..*)?", "stmatrix stages the sums", least=pieces * (self.piece // 16)),
        )

    def waves(self, shape: Shape) -> int:
        """Waves of a tile per SM, the last one counted as full."""
        return _ceil(_ceil(shape.m, self.bm) * _ceil(shape.n, self.bn), card.sms())

    def cycles(self, shape: Shape) -> int:
        """Cycles per K iteration of all waves."""
        # 4096 multiply-adds per cycle, and the overhead of an iteration as measured in bf16.
        return self.waves(shape) * (128 * self.bn * _BK // 4096 + 14)


_ALWAYS = (
    Expect(r"UTMALDG\.2D", "TMA loads tiles of A and B", least=2),
    Expect(r"SYNCS\.PHASECHK\..*TRYWAIT.*", "the producer waits for empty stages, consumers for full ones", least=2),
    Expect(r"USETMAXREG\..*", "the producer releases registers to the consumers", least=2),
    Expect(r"STG\..*", "no thread stores to C", least=0, most=0),
    Expect(r"(STL|LDL)(\..*)?", "nothing spills", least=0, most=0),
    Expect(r"[HQ]?MMA\..*", "no older tensor core instruction", least=0, most=0),
)
_NO_LDG = Expect(r"LDG\..*", "no thread loads from A or B", least=0, most=0)
_NO_LDS = Expect(r"(LDS|LDSM)(\..*)?", "no thread reads a tile from shared memory", least=0, most=0)
_UNREAD = (_NO_LDG, _NO_LDS)
_LEFT = Expect(r"(FADD|FFMA)(\..*)?", "sums stay in the tensor core", least=0, most=0)
_L2, _TIME = "lts__t_bytes.sum", "gpu__time_duration.sum"
_TENSOR = "sm__inst_executed_pipe_tensor_op_gmma.sum"
_SEVERAL_TILES = (Shape(2300, 3208, 112), Shape(2300, 3208, 208), Shape(2300, 3208, 1008))
"""More than two waves of the largest tile; one K iteration, fewer than stages, and more."""


def _promoted(count: int) -> Expect:
    return Expect(r"FADD(\..*)?", "FADDs add what the tensor core leaves", least=count)


def _scaled(count: int) -> Expect:
    return Expect(r"FFMA(\..*)?", "FFMAs scale and add what the tensor core leaves", least=count)


def _kernel(
    number: int,
    name: str,
    title: str,
    tile: _Tile,
    expects: tuple[Expect, ...],
    idea: str,
    evidence: tuple[str, ...] = (_TIME,),
    arguments: tuple[str | int, ...] = (*_MAPS, *_SIZES),
    baseline: str = "cublas.gemm",
    op: str = "gemm",
    headers: tuple[str, ...] = _HEADERS,
) -> Kernel:
    """A rung; its source is named after it."""
    return Kernel(
        id=f"fp8.{name}",
        rung=f"F{number}",
        title=title,
        source=f"{number}_{name}.cu",
        compute=Compute(op=op, dtype_in="fp8_e4m3", dtype_out="fp16", layout="row,col,row"),
        code=Code(name, params=tile.params, headers=headers),
        launch=tile.launch,
        call=Call(arguments=arguments, tensor_maps=tile.maps),
        platform=Platform(min_capability=(9, 0), targets=("90a",), toolkits=("cuda13",)),
        accepts=Accepts(multiple_of={"n": 8, "k": 16}),
        promises=Promises(expects=(*tile.expects, *expects, *_ALWAYS), gate_shapes=_SEVERAL_TILES),
        timing=Timing(baseline=baseline),
        story=Story(idea=idea, evidence=evidence),
    )


_IN_TURN = _Tile(128, 128, stages=6, piece=64, buffers=1, barriers=14)
_WIDE = _Tile(192, 192, stages=5, piece=48, buffers=2, barriers=10)
_HALVED = replace(_WIDE, width=96)
_BY_STEPS = _Tile(128, 128, stages=6, piece=64, buffers=2, barriers=12)
_TILES = (_BY_STEPS, _HALVED)
"""The tiles of level F4, smallest first."""


_RING = (replace(_BY_STEPS, piece=32, buffers=3, scales=129), replace(_HALVED, scales=131))
"""The tiles of level F6, smallest first: those of F4 with a stage's scales."""
_RING_CYCLES = (728, 961)
"""Cycles per K iteration of level F6 with each: its time at 8192 on a hot H200, times the SM clock (NOTES.md)."""
_BULK = (
    _Tile(128, 128, stages=4, piece=32, buffers=3, barriers=8, scales=260, bm=256),
    _Tile(128, 128, stages=4, piece=32, buffers=3, barriers=8, scales=196, bm=192, consumers=3),
)
"""The tiles of level F7."""
_BULK_CYCLES = (1274, 909)
"""Cycles per K iteration of level F7 with each, as of level F6."""


def best_tile(shape: Shape) -> int:
    """Index of the F4 tile whose waves take the fewest cycles."""
    return min(range(len(_TILES)), key=lambda index: _TILES[index].cycles(shape))


def best_ring_tile(shape: Shape) -> int:
    """Index of the F6 tile whose waves take the fewest cycles, by those measured per K iteration."""
    return min(range(len(_RING)), key=lambda index: _RING[index].waves(shape) * _RING_CYCLES[index])


def best_bulk_tile(shape: Shape) -> int:
    """Index of the F7 tile whose waves take the fewest cycles, by those measured per K iteration."""
    return min(range(len(_BULK)), key=lambda index: _BULK[index].waves(shape) * _BULK_CYCLES[index])


def _with_tiles(
    kernel: Kernel,
    tiles: tuple[_Tile, ...],
    best: Callable[[Shape], int],
    expects: Callable[[int], Expect],
) -> Kernel:
    """`kernel` with an entry point for each of `tiles`, of which `best` gives the index for a shape.

    `expects` takes the elements of a tile per consumer's thread, and says what adds them.
    """
    variants = tuple(
        Variant(
            entry=f"tile_{tile.bm}x{tile.bn}",
            launch=tile.launch,
            params=tile.params,
            tensor_maps=tile.maps,
            expects=(*tile.expects, expects(tile.bm * tile.bn // (128 * tile.consumers))),
        )
        for tile in tiles
    )
    return replace(
        kernel,
        launch=lambda shape: variants[best(shape)].launch(shape),
        code=replace(kernel.code, entry=variants[0].entry, params={"bk": _BK, "group": 8}),
        # Every variant expects its own width.
        promises=replace(kernel.promises, expects=kernel.promises.expects[len(tiles[0].expects) :]),
        run=Run(variants=variants, choose=lambda shape: variants[best(shape)]),
    )


KERNELS = (
    _kernel(
        1,
        "fast",
        "Sums left in the tensor core",
        _IN_TURN,
        (_LEFT, *_UNREAD),
        "The bf16 ladder's ping-pong consumers in e4m3: twice the products per cycle, of sums that keep some 14 bits.",
        (_TENSOR, _L2, _TIME),
        baseline="cublas.gemm_fast",
    ),
    _kernel(
        2,
        "promoted",
        "Sums added in fp32",
        _WIDE,
        (_promoted(96), *_UNREAD),
        "After every 128 of K each sum is added to an fp32 one, and the consumer waits for it.",
        (_TENSOR, _TIME),
        arguments=(*_MAPS, *_SIZES, 1),
    ),
    _kernel(
        3,
        "hidden",
        "Additions under wgmma",
        _HALVED,
        (_promoted(192), *_UNREAD),
        "One half of a consumer's tile is added, or stored, while the other half is multiplied.",
        (_TENSOR, _TIME),
    ),
    _with_tiles(
        _kernel(
            4,
            "by_size",
            "Tile chosen by size",
            _BY_STEPS,
            _UNREAD,
            "Of two tiles the host picks the one whose waves take the least time.",
            (_TIME, _L2),
        ),
        _TILES,
        best_tile,
        _promoted,
    ),
    _kernel(
        5,
        "scaled",
        "Scaled by blocks",
        _BY_STEPS,
        (
            _scaled(128),
            _NO_LDS,
            Expect(r"LDG\.E(\..*)?", "threads load scales, two of A and one of B a step", least=6, most=12),
        ),
        "Each 128 of K is scaled when it is added: by row of A, and by 128 x 128 of B.",
        arguments=(*_MAPS, "scale_a", "scale_b", *_SIZES),
        baseline="cublas.gemm_block_scaled",
        op="gemm_scaled",
    ),
    _with_tiles(
        _kernel(
            6,
            "scaled_ring",
            "Scales in the ring",
            _RING[0],
            (
                _NO_LDG,
                Expect(r"LDGSTS\.E(\..*)?", "a warp copies scales into the ring, four of A and one of B a lane", 5),
            ),
            "Scales arrive with the tiles, several steps ahead, for F4's two tiles.",
            arguments=(*_MAPS, "scale_a", "scale_b", *_SIZES),
            baseline="cublas.gemm_block_scaled",
            op="gemm_scaled",
            headers=("common/cp_async_word.cuh", *_HEADERS),
        ),
        _RING,
        best_ring_tile,
        _scaled,
    ),
    _with_tiles(
        replace(
            _kernel(
                7,
                "scaled_bulk",
                "Scales by the copy engine",
                _BULK[0],
                (_NO_LDG, Expect(r"UBLKCP\..*", "the copy engine brings the scales of A and of B", least=2)),
                "One thread asks for scales as for tiles, and consumers add while others multiply larger tiles.",
                arguments=(*_MAPS, "scale_a", "scale_b", *_SIZES),
                baseline="cublas.gemm_block_scaled",
                op="gemm_scaled",
                headers=("common/bulk.cuh", *_HEADERS),
            ),
            accepts=Accepts(multiple_of={"m": 4, "n": 8, "k": 16}),
        ),
        _BULK,
        best_bulk_tile,
        _scaled,
    ),
)
