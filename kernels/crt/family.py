"""Chinese remainders: FP64 products from INT8 tensor cores, by scheme II, against cuBLAS's DGEMM.

A kernel here takes several launches (`Kernel.steps`), which hand on residues and exponents in a workspace. All rungs
have 15 moduli; R6 and R7 also come with 14 and 16, R9 with 16. See `gemmrepro.ozaki.scheme2` for the mathematics:
rounding to nearest, in its fast mode with exponents from norms; R8 in its accurate mode, with one more product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gemmrepro.operations import Problem, Shape
from gemmrepro.ozaki import decided, moduli, residues, scheme2
from gemmrepro.ozaki.accumulate import set_aside
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
    LibraryStep,
    Platform,
    Promises,
    Run,
    Step,
    Story,
    TensorMap,
    Timing,
    card,
)

FAMILY = Family(
    name="crt",
    title="FP64 by Chinese remainders on INT8",
    article=None,
    summary="C = A B in FP64, row-major, from 14 to 16 INT8 products, one per modulus, against DGEMM.",
    figures=("ratio",),
)

COUNT = 15
"""Moduli with which the error is below DGEMM's for elements (u - 1/2) exp(phi g) up to phi = 1; phi = 2 takes 16."""
CHUNK, DEPTH = 256, 128
"""Rows of B that one block reads for the norms, and for the residues (columns.cuh)."""
ROW = 24 * 1024
"""Elements of a row that the single pass over A keeps in shared memory (6_fused.cu)."""
BM = 128
"""Rows of the product's tile."""
SEVEN, SOME, HALF_DEPTH = 7, 16, 128
"""Products per modulus of R9; columns and rows of each tile of B that a thread block transposes (9_winograd.cu)."""
SIGNED_K, UNSIGNED_K = moduli.LONGEST_K, 2**16
"""The longest sums that 32 bits hold: of products of -127 to 127, and of 0 to 254."""
GATE_SHAPES = (Shape(700, 1030, 600), Shape(140, 200, 4112))
"""Several tiles; a K of 16 times an odd number, whose residues are padded by 112 bytes a row."""
MARGIN = 1 + 2.0**-10
"""Slack of the bound: the device's radius is 2^-22 below the reference's, its reconstruction exact to 2^-76 M."""


@dataclass(frozen=True)
class _Ring:
    """The shared-memory ring of the product: columns of its tile, and stages of 128 bytes along K."""

    bn: int
    stages: int


_WIDE = _Ring(bn=256, stages=4)
_NARROW = _Ring(bn=192, stages=5)
"""Of R7 and R9."""


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _pitch(k: int) -> int:
    """Bytes from one row of residues to the next (residues.cuh)."""
    return _ceil(k, 128) * 128


def _padded(n: int) -> int:
    """Columns of the library's sums: it wants multiples of 16."""
    return _ceil(n, 16) * 16


def _grid(
    grid: Callable[[Shape], tuple[int, int]], block: tuple[int, int], shared: Callable[[Shape], int] = lambda shape: 0
) -> Callable[[Shape], Launch]:
    """A launch with a two-dimensional grid and block."""

    def launch(shape: Shape) -> Launch:
        return Launch(grid=(*grid(shape), 1), block=(*block, 1), shared_bytes=shared(shape))

    return launch


_ROW_EXPONENTS = Step("row_exponents", _grid(lambda s: (s.m, 1), (256, 1)), ("a", "exponents_a", "k"))
_ROW_RESIDUES = Step(
    "row_residues",
    _grid(lambda s: (s.m, 1), (256, 1)),
    ("a", "exponents_a", "residues_a", "m", "k"),
    expects=(
        Expect(r"IDP\.4A\.U8\.U8", "an integer's bytes are weighted four at a time", least=8 * (COUNT - 2)),
        Expect(r"I2F(\..*)?", "no conversion per element (of k alone): quotients are rounded by adding 1.5 2^23", 0, 2),
    ),
)
_COLUMN_NORMS = Step(
    "column_norms", _grid(lambda s: (_ceil(s.n, 32), _ceil(s.k, CHUNK)), (32, 8)), ("b", "norms", "n", "k")
)
_COLUMN_EXPONENTS = Step(
    "column_exponents", _grid(lambda s: (_ceil(s.n, 128), 1), (128, 1)), ("norms", "exponents_b", "n", "k")
)
_COLUMN_RESIDUES = Step(
    "column_residues",
    _grid(lambda s: (_ceil(s.n, 32), _ceil(_pitch(s.k), DEPTH)), (256, 1)),
    ("b", "exponents_b", "residues_b", "n", "k"),
    expects=_ROW_RESIDUES.expects,
)
_TWO_PASSES = (_ROW_EXPONENTS, _COLUMN_NORMS, _COLUMN_EXPONENTS, _ROW_RESIDUES, _COLUMN_RESIDUES)
_ROW_PASS = Step(
    "row_pass",
    _grid(lambda s: (s.m, 1), (512, 1), lambda s: 8 * _pitch(s.k) if s.k <= ROW else 0),
    ("a", "exponents_a", "residues_a", "m", "k"),
    expects=_ROW_RESIDUES.expects,
)
_ONE_PASS = (_ROW_PASS, _COLUMN_NORMS, _COLUMN_EXPONENTS, _COLUMN_RESIDUES)

_NEVER = (
    Expect(r"LDG\..*", "no thread loads from A or B", least=0, most=0),
    Expect(r"(LDS|LDSM)(\..*)?", "no thread reads a tile from shared memory", least=0, most=0),
    Expect(r"(STL|LDL)(\..*)?", "nothing spills", least=0, most=0),
    Expect(r"I?MMA\..*|HMMA.*|DMMA.*", "no older tensor core instruction", least=0, most=0),
)


def _reduces(least: int) -> Expect:
    return Expect(r"IDP\.4A\.U8\.U8", "sums are reduced modulo p in registers", least=least)


def _multiply_expects(kind: str, ring: _Ring, cluster: int, epilogue: Expect | None) -> tuple[Expect, ...]:
    multicast = Expect(r"UTMALDG\.2D\.MULTICAST", "tiles of B are loaded once for the whole cluster")
    return (
        Expect(rf"IGMMA\.64x{ring.bn}x32\.{kind}\.{kind}", "wgmma on 8-bit integers", least=4),
        Expect(r"UTMALDG\.2D(\..*)?", "TMA loads the tiles", least=2),
        *((multicast,) if cluster > 1 else ()),
        Expect(r"SYNCS\.PHASECHK\..*TRYWAIT.*", "producer and consumers wait on mbarriers", least=2),
        Expect(r"USETMAXREG\..*", "the producer releases registers to the consumers", least=2),
        *((epilogue,) if epilogue else ()),
        *_NEVER,
    )


def _multiply(
    out: str,
    kind: str,
    cluster: int,
    epilogue: Expect | None,
    ring: _Ring = _WIDE,
    order_barriers: int = 0,
    factors: str = "residues",
    products: int = COUNT,
    part: Callable[[Shape], Shape] = lambda shape: shape,
) -> Step:
    """The products for all moduli: residues of `kind` (S8 or U8), sums or their residues to array `out`.

    Arguments:
        epilogue: what its machine code must hold of the epilogue.
        order_barriers: barriers by which ping-pong consumers alternate.
        factors: prefix of the arrays that are multiplied.
        products, part: how many products there are, and the shape of each.
    """
    first, second = f"{factors}_a", f"{factors}_b"
    shared = ring.stages * (BM + ring.bn) * 128 + (2 * ring.stages + order_barriers) * 8

    def launch(whole: Shape) -> Launch:
        shape = part(whole)
        tiles = products * _ceil(shape.m, cluster * BM) * _ceil(shape.n, ring.bn)
        return Launch(
            grid=(min(card.sms() // cluster, tiles) * cluster, 1, 1),
            block=(384, 1, 1),
            cluster=(cluster, 1, 1) if cluster > 1 else None,
            shared_bytes=shared,
        )

    return Step(
        "multiply",
        launch,
        (f"map:{first}", f"map:{second}", out, "m", "n", "k"),
        tensor_maps={first: TensorMap((BM, 128)), second: TensorMap((ring.bn // cluster, 128))},
        expects=_multiply_expects(kind, ring, cluster, epilogue),
    )


def _tile_rows(shape: Shape, cluster: int) -> int:
    return _ceil(shape.m, cluster * BM) * cluster


def _tiles(shape: Shape, ring: _Ring = _NARROW) -> int:
    return _tile_rows(shape, 1) * _ceil(shape.n, ring.bn)


def _reconstruct(entry: str, source: str, cluster: int, ring: _Ring = _WIDE) -> Step:
    """One block takes 32 columns of a tile of 8-bit residues, or 64 of a tile of 32-bit sums, part by part."""
    columns = 64 if source == "sums" else 32
    return Step(
        entry,
        _grid(lambda s: (_tile_rows(s, cluster) * _ceil(s.n, ring.bn) * ring.bn // columns, 1), (32, 8)),
        (source, "exponents_a", "exponents_b", "c", "m", "n"),
        expects=(Expect(r"DFMA(\..*)?", "two fp64 multiply-adds per modulus", least=8 * COUNT),),
    )


def _workspace(count: int, cluster: int, out: str, rows_beyond: int = 0, ring: _Ring = _WIDE) -> dict[str, Buffer]:
    """Arrays that the steps pass on: exponents, norms of B per chunk, residues, and what the product writes."""

    def written(shape: Shape) -> tuple[int, ...]:
        if cluster == 0:  # the library's, row by row
            return (count, shape.m, _padded(shape.n))
        return (count, _tile_rows(shape, cluster) * BM, _ceil(shape.n, ring.bn) * ring.bn)

    return {
        "exponents_a": Buffer("int32", lambda s: (s.m,)),
        "exponents_b": Buffer("int32", lambda s: (s.n,)),
        "norms": Buffer("fp64", lambda s: (_ceil(s.k, CHUNK), 2 * s.n)),
        "residues_a": Buffer("int8", lambda s: (count * s.m, _pitch(s.k))),
        "residues_b": Buffer("int8", lambda s: (count * s.n + rows_beyond, _pitch(s.k))),
        out: Buffer("int32" if out == "sums" else "int8", written),
    }


def _error(count: int) -> Callable[[Any, Any, Any], Any]:
    """|C - AB| <= 4 sqrt(k) ||a_i|| ||b_j|| / R and one rounding, for any finite A and B (`scheme2.fast_bound`)."""

    return lambda a, b, xp: MARGIN * scheme2.fast_bound(a, b, count)


def _accurate_error(a: Any, b: Any, xp: Any) -> Any:
    """The error of rounding A and B to integers with the exponents of the accurate mode, plus one bit of margin."""
    a, b, _, _ = set_aside(a, b)
    s, t = residues.exponents_by_products(a, b, COUNT, "nearest")
    step_a, step_b = xp.ldexp(xp.ones(s.shape), 1 - s), xp.ldexp(xp.ones(t.shape), 1 - t)
    sum_a, sum_b = xp.abs(a).sum(axis=1, keepdims=True), xp.abs(b).sum(axis=0, keepdims=True)
    return MARGIN * (0.5 * (step_a * sum_b + sum_a * step_b) + 0.25 * a.shape[1] * step_a * step_b)


def _kernel(
    number: int,
    name: str,
    title: str,
    story: Story,
    run: Run,
    main: Step,
    headers: tuple[str, ...] = ("rows",),
    count: int = COUNT,
    longest_k: int = SIGNED_K,
    ring: _Ring = _WIDE,
) -> Kernel:
    """Rung R`number`; `main` is the step of `run` that the record itself describes."""
    product = main.entry == "multiply"
    common = ("element", "mbarrier", "tma", "wgmma", "wgmma_int8") if product else ()
    own = ("columns", "moduli", "reconstruction", "residues", *headers, "scaling")
    tile = {"bm": BM, "bn": ring.bn, "bk": 128, "stages": ring.stages} if product else {}
    return Kernel(
        id=f"crt.{name}" if count == COUNT else f"crt.{name}_{count}",
        rung=f"R{number}",
        title=title if count == COUNT else f"{title}, {count} moduli",
        source=f"{number}_{name}.cu",
        compute=Compute(dtype_in="fp64", dtype_acc="int32", dtype_out="fp64"),
        code=Code(
            main.entry,
            params={"moduli": count, **tile},
            defines={"NUMBERS": str(count)},
            headers=(*(f"common/{header}.cuh" for header in common), *(f"crt/{header}.cuh" for header in own)),
        ),
        launch=main.launch,
        call=Call(arguments=main.arguments, tensor_maps=main.tensor_maps),
        platform=Platform(min_capability=(9, 0), targets=("90a",)),
        accepts=Accepts(at_most={"k": longest_k}),
        run=run,
        promises=Promises(expects=main.expects, error=_error(count), spoils=True, gate_shapes=GATE_SHAPES),
        timing=Timing(baseline="cublas.gemm"),
        story=story,
    )


def _story(idea: str, gain_over: str = "") -> Story:
    return Story(idea=idea, evidence=("gpu__time_duration.sum", "lts__t_bytes.sum"), gain_over=gain_over)


_RECONSTRUCT_ROWS = Step(
    "reconstruct_rows",
    _grid(lambda s: (s.m * _ceil(s.n, 256), 1), (256, 1)),
    ("sums", "exponents_a", "exponents_b", "c", "m", "n"),
    expects=(Expect(r"DFMA(\..*)?", "two fp64 multiply-adds per modulus", least=2 * COUNT),),
)
_LIBRARY_PRODUCT = LibraryStep(
    problem=Problem("gemm", "int8", "int32", "row,col,row"),
    # n rounded up to 16: the columns beyond it multiply whatever lies below B's residues, and nobody reads them.
    shape=lambda s: Shape(s.m, _padded(s.n), _pitch(s.k)),
    arrays=("residues_a", "residues_b", "sums"),
    strides=lambda s: (s.m * _pitch(s.k), s.n * _pitch(s.k), s.m * _padded(s.n)),
    count=COUNT,
)
_SUMS = _multiply("sums", "S8", 1, Expect(r"STG\.E\.128(\..*)?", "sums are stored 16 bytes at a time", least=32))
_RESIDUES = _multiply("residues", "S8", 1, _reduces(_WIDE.bn // 2))
_SHARED = _multiply("residues", "S8", 2, _reduces(_WIDE.bn // 2))
_POSITIVE = _multiply("residues", "U8", 2, _reduces(_WIDE.bn // 2))


_ping_pong_product = partial(_multiply, "residues", "U8", 1, _reduces(_NARROW.bn), ring=_NARROW, order_barriers=2)
"""The product by consumers that alternate, a tile each (in_turn.cuh)."""
_PING_PONG = _ping_pong_product()


def _fused(count: int) -> Kernel:
    steps = (*_ONE_PASS, _POSITIVE, _reconstruct("reconstruct_residues", "residues", 2))
    return _kernel(
        6,
        "fused",
        "One pass over A",
        _story(
            "A is read once; the reconstruction takes eight elements at a time.",
            gain_over="" if count == COUNT else "crt.fused",
        ),
        Run(steps=steps, workspace=_workspace(count, 2, "residues")),
        _POSITIVE,
        headers=("eight",),
        count=count,
        longest_k=UNSIGNED_K,
    )


def _ping_pong(count: int) -> Kernel:
    steps = (*_ONE_PASS, _PING_PONG, _reconstruct("reconstruct_residues", "residues", 1, _NARROW))
    return _kernel(
        7,
        "ping_pong",
        "One consumer per tile",
        _story(
            "One consumer multiplies a whole tile while the other reduces and stores its previous one.",
            gain_over="crt.fused" if count == COUNT else "crt.ping_pong",
        ),
        Run(steps=steps, workspace=_workspace(count, 1, "residues", ring=_NARROW)),
        _PING_PONG,
        headers=("eight", "in_turn"),
        count=count,
        longest_k=UNSIGNED_K,
        ring=_NARROW,
    )


PEERS, COLUMNS, KEPT, NEIGHBOURS = 8, 16, 512, 8
"""Blocks of a cluster, columns of B that it keeps, rows of them per block, K per thread at a time (one_pass.cuh)."""


def _column_pass() -> Step:
    """Exponents and residues of B's columns, by clusters that keep them."""

    def launch(shape: Shape) -> Launch:
        return Launch(
            grid=(PEERS * _ceil(shape.n, COLUMNS), 1, 1),
            block=(256, 1, 1),
            cluster=(PEERS, 1, 1),
            shared_bytes=COLUMNS * (KEPT + 2) * 8,
        )

    return Step(
        "column_pass",
        launch,
        ("b", "exponents_b", "residues_b", "n", "k"),
        expects=(
            *_ROW_RESIDUES.expects,
            Expect(r"LDGSTS\.E\.64(\..*)?", "copies of 8 bytes, which transpose on their way", least=4),
            Expect(r"UCGABAR_ARV(\..*)?", "blocks of the cluster meet", least=2),
            Expect(r"(STL|LDL)(\..*)?", "nothing spills", least=0, most=0),
        ),
    )


def _one_pass() -> Kernel:
    """R7 with passes that read A and B once."""
    before = _ping_pong(COUNT)

    def by_length(shape: Shape) -> Launch:
        """Few threads per row while several rows fit an SM's shared memory."""
        return replace(_ROW_PASS.launch(shape), block=(256 if shape.k <= PEERS * KEPT else 512, 1, 1))

    units = BM // 16 * (_NARROW.bn // 32)
    reconstruct = replace(
        before.run.steps[-1],
        launch=_grid(lambda s: (_tiles(s) * units // 2, 1), (128, 1)),
    )
    own = ("common/cp_async.cuh", "crt/instructions.cuh", "crt/one_pass.cuh", "crt/peers.cuh")
    headers = (*before.code.headers, *own)
    return replace(
        before,
        id="crt.one_pass",
        rung="R15",
        title="One pass over B",
        source="15_one_pass.cu",
        code=replace(
            before.code,
            headers=tuple(sorted(header for header in headers if header != "crt/columns.cuh")),
            params={**before.code.params, "peers": PEERS, "columns": COLUMNS, "kept": KEPT},
        ),
        run=replace(
            before.run,
            steps=(replace(_ROW_PASS, launch=by_length), _column_pass(), _PING_PONG, reconstruct),
            workspace={name: array for name, array in before.run.workspace.items() if name != "norms"},
        ),
        story=_story(
            "A cluster keeps columns of B in its shared memory, so that B is read once.", gain_over="crt.ping_pong"
        ),
    ).with_promises(gate_shapes=(*before.promises.gate_shapes, Shape(300, 136, PEERS * KEPT + 600)))


_TWO_WIDTHS = _Ring(bn=208, stages=5)
"""Of R16, whose tiles are as wide as this or as those of R7."""


def _two_widths() -> Kernel:
    """R15 with tiles of two widths."""
    before = _one_pass()
    multiply = _ping_pong_product(ring=_TWO_WIDTHS)
    narrow = Expect(rf"IGMMA\.64x{_NARROW.bn}x32\.U8\.U8", "wgmma for the narrower tiles", least=4)
    multiply = replace(multiply, expects=(*multiply.expects, narrow))
    units, together = BM // 16 * (_TWO_WIDTHS.bn // 16), 4
    reconstruct = replace(
        before.run.steps[-1],
        launch=_grid(lambda s: (_tiles(s, _TWO_WIDTHS) * units // together, 1), (32, together)),
    )
    passes = before.run.steps[:2]
    residues = _workspace(COUNT, 1, "residues", ring=_TWO_WIDTHS)["residues"]
    headers = {*before.code.headers, "crt/two_widths.cuh", "crt/wgmma_208.cuh"} - {"crt/in_turn.cuh"}
    return replace(
        before,
        id="crt.two_widths",
        rung="R16",
        title="Tiles of two widths",
        source="16_two_widths.cu",
        code=replace(
            before.code,
            headers=tuple(sorted(headers)),
            params={
                **{name: value for name, value in before.code.params.items() if name != "bn"},
                **{"wide": _TWO_WIDTHS.bn, "narrow": _NARROW.bn},
            },
        ),
        launch=multiply.launch,
        call=Call(arguments=multiply.arguments, tensor_maps=multiply.tensor_maps),
        run=replace(
            before.run,
            steps=(*passes, multiply, reconstruct),
            workspace={**before.run.workspace, "residues": residues},
        ),
        story=_story(
            "Tiles of 208 and of 192 columns make up C, so that nothing is multiplied in vain.",
            gain_over="crt.one_pass",
        ),
    ).with_promises(expects=multiply.expects, gate_shapes=(*before.promises.gate_shapes, Shape(260, 800, 200)))


def _half(shape: Shape) -> Shape:
    """Shape of the blocks that R9 multiplies: even columns, rows of residues as `_pitch` has them (9_winograd.cu)."""
    return Shape(_ceil(shape.m, 2), 2 * _ceil(shape.n, 4), _pitch(_ceil(shape.k, 2)))


def _column_blocks(shape: Shape) -> tuple[int, int]:
    half = _half(shape)
    return _ceil(half.n, SOME), _ceil(half.k, HALF_DEPTH)


def _output_blocks(shape: Shape) -> tuple[int, int]:
    return _tiles(_half(shape)) * _NARROW.bn // 32 * 4, 1


def _winograd_steps(count: int, multiply: Step) -> tuple[Step, ...]:
    combined = Expect(r"VIADDMNMX\.U16x2", "residues are added modulo p two at a time", least=8 * (count - 1))
    return (
        Step(
            "row_factors",
            _grid(lambda s: (_half(s).m, 1), (512, 1)),
            ("a", "exponents_a", "factors_a", "m", "k"),
            expects=(*_ROW_RESIDUES.expects, combined),
        ),
        _COLUMN_NORMS,
        _COLUMN_EXPONENTS,
        Step(
            "column_factors",
            _grid(_column_blocks, (512, 1), lambda s: 4 * SOME * (HALF_DEPTH + 2) * 8),
            ("b", "exponents_b", "factors_b", "n", "k"),
            expects=(*_ROW_RESIDUES.expects, combined),
        ),
        multiply,
        Step(
            "reconstruct_blocks",
            _grid(_output_blocks, (32, 8)),
            ("residues", "exponents_a", "exponents_b", "c", "m", "n"),
            expects=(
                Expect(r"DFMA(\..*)?", "two fp64 multiply-adds per modulus and element", least=2 * 16 * count),
                replace(combined, least=14 * (count - 1)),
            ),
        ),
    )


def _winograd_workspace(count: int) -> dict[str, Buffer]:
    products = SEVEN * count
    whole, half = _workspace(count, 1, "residues"), _workspace(products, 1, "residues", ring=_NARROW)
    return {name: whole[name] for name in ("exponents_a", "exponents_b", "norms")} | {
        "factors_a": Buffer("int8", lambda s: (products * _half(s).m, _half(s).k)),
        "factors_b": Buffer("int8", lambda s: (products * _half(s).n, _half(s).k)),
        "residues": Buffer("int8", lambda s: half["residues"].lengths(_half(s))),
    }


def _winograd(count: int) -> Kernel:
    multiply = _ping_pong_product(factors="factors", products=SEVEN * count, part=_half)
    return _kernel(
        9,
        "winograd",
        "Seven products for eight",
        _story(
            "Winograd's step is exact in modular arithmetic: 7/8 of the products, with no loss of accuracy.",
            gain_over="crt.ping_pong" if count == COUNT else f"crt.ping_pong_{count}",
        ),
        Run(steps=_winograd_steps(count, multiply), workspace=_winograd_workspace(count)),
        multiply,
        headers=("in_turn", "winograd"),
        count=count,
        longest_k=2 * UNSIGNED_K,
        ring=_NARROW,
    )


_MEETS = (
    Expect(r"LDG\..*", "the one ordinary load looks who has come to a meeting", least=1, most=1),
    Expect(r"(RED|ATOM)G?\..*", "producers are counted by atomics, at meetings and at the end", least=2, most=2),
    Expect(r"STG\.E", "the one ordinary store of a word sets their counter back", least=1, most=1),
    Expect(r"NANOSLEEP(\..*)?", "who waits for others sleeps between looks", least=1),
)
_MEETING = {"meeting": Buffer("int32", lambda s: (2,), zeroed=True)}
"""Counters of the meetings (lockstep.cuh)."""
EVERY, SHARED_EVERY = 64, 32
"""Steps of K between meetings: on tiles of 128 x 192, and on those of twice the rows."""


def _product(kernel: Kernel) -> Step:
    """The launch that multiplies residues."""
    return next(step for step in kernel.run.steps if isinstance(step, Step) and step.entry == "multiply")


def _meeting_product(
    before: Kernel,
    multiply: Step,
    number: int,
    name: str,
    title: str,
    story: Story,
    headers: tuple[str, ...],
    params: dict[str, int],
) -> Kernel:
    """`before` with R`number`'s product, whose producers meet every params["every"] steps.

    `headers`: what it includes of kernels/crt beside the source of `before`.
    """
    product = _product(before)
    loads = _NEVER[0].opcode
    multiply = replace(
        multiply,
        arguments=(*product.arguments[:2], "meeting", *product.arguments[2:]),
        expects=(*(expect for expect in multiply.expects if expect.opcode != loads), *_MEETS),
    )
    steps = tuple(multiply if step is product else step for step in before.run.steps)
    included = (f"crt/{before.source}", *(f"crt/{header}.cuh" for header in headers))
    return replace(
        before,
        id=f"crt.{name}",
        rung=f"R{number}",
        title=title,
        source=f"{number}_{name}.cu",
        code=replace(
            before.code,
            headers=(*before.code.headers, *included),
            params={**before.code.params, **params},
            defines={**before.code.defines, **({} if params["every"] == EVERY else {"EVERY": str(params["every"])})},
        ),
        launch=multiply.launch,
        call=Call(arguments=multiply.arguments, tensor_maps=multiply.tensor_maps),
        run=replace(before.run, steps=steps, workspace={**before.run.workspace, **_MEETING}),
        story=story,
    ).with_promises(expects=multiply.expects)


def _lockstep() -> Kernel:
    """R9 with R12's product."""
    before = _winograd(COUNT)
    story = Story(
        idea="Producers meet every 64 steps of K, so that the L2 still holds what the others need.",
        evidence=("dram__bytes.sum", "gpu__time_duration.sum"),
        gain_over=before.id,
    )
    headers, params = ("lockstep",), {"every": EVERY}
    return _meeting_product(before, _product(before), 12, "lockstep", "Blocks in lockstep", story, headers, params)


CLUSTER, TALL, TALL_STAGES = 2, 2 * BM, 4
"""Blocks that share a tile of B; rows of a tile that both consumers share, and stages of its ring (shared_tile.cuh)."""
_SHARED_HEADERS = ("lockstep", "shared_tile")
_SHARED_PARAMS = {"tall": TALL, "tall_stages": TALL_STAGES, "cluster": CLUSTER, "every": SHARED_EVERY}


def _shared_product(
    products: int, part: Callable[[Shape], Shape] = lambda shape: shape, factors: str = "residues"
) -> Step:
    """The product on tiles of 256 x 192: `products` of them, and the shape of each."""

    def launch(whole: Shape) -> Launch:
        shape = part(whole)
        clusters = products * _ceil(shape.m, CLUSTER * TALL) * _ceil(shape.n, _NARROW.bn)
        return Launch(
            grid=(min(card.sms() // CLUSTER, clusters) * CLUSTER, 1, 1),
            block=(384, 1, 1),
            cluster=(CLUSTER, 1, 1),
            shared_bytes=TALL_STAGES * ((TALL + _NARROW.bn) * 128 + 2 * 8),
        )

    return replace(
        _ping_pong_product(factors=factors, products=products, part=part),
        launch=launch,
        tensor_maps={
            f"{factors}_a": TensorMap((TALL, 128)),
            f"{factors}_b": TensorMap((_NARROW.bn // CLUSTER, 128)),
        },
        expects=_multiply_expects("U8", _NARROW, CLUSTER, _reduces(_NARROW.bn)),
    )


def _shared() -> Kernel:
    """R9 with R13's product."""
    story = _story(
        "Both consumers multiply one tile of 256 x 192, and two blocks share B: fewer bytes, at the power cap.",
        gain_over="crt.lockstep",
    )
    multiply, title = _shared_product(SEVEN * COUNT, _half, "factors"), "A tile for both consumers, B for two blocks"
    return _meeting_product(_winograd(COUNT), multiply, 13, "shared", title, story, _SHARED_HEADERS, _SHARED_PARAMS)


_PEAKS = replace(
    _multiply("coarse", "U8", 2, None),
    entry="find_peaks",
    # The tiles of one product instead of one per modulus: blocks without a tile exit at once.
    arguments=("map:coarse_a", "map:coarse_b", "peaks_a", "peaks_b", "m", "n", "k"),
    tensor_maps={"coarse_a": TensorMap((BM, 128)), "coarse_b": TensorMap((_WIDE.bn // 2, 128))},
    expects=(
        Expect(r"IGMMA\.64x256x32\.U8\.U8", "wgmma on 8-bit integers", least=4),
        Expect(r"UTMALDG\.2D\.MULTICAST", "tiles of B are loaded for the whole cluster", least=1),
        Expect(
            r"(RED|ATOM)G?\.E\.MAX(\..*)?",
            "the product writes the maxima of rows and columns, and nothing else",
            least=66,
        ),
        Expect(r"STG\..*", "nothing else is stored", least=0, most=0),
        *_NEVER,
    ),
)


def _chosen(axis: str, side: str) -> Step:
    """Exponents of one side from the maxima of the coarse product."""
    return Step(
        "choose_exponents",
        _grid(lambda s: (_ceil(getattr(s, axis), 128), 1), (128, 1)),
        (f"peaks_{side}", f"coarse_exponents_{side}", f"exponents_{side}", axis),
    )


def _accurate() -> Kernel:
    steps = (
        Step(
            "row_coarse",
            _grid(lambda s: (s.m, 1), (256, 1)),
            ("a", "coarse_exponents_a", "peaks_a", "coarse_a", "k"),
        ),
        Step(
            "column_peaks",
            _grid(lambda s: (_ceil(s.n, 32), _ceil(s.k, CHUNK)), (32, 8)),
            ("b", "chunks", "n", "k"),
        ),
        Step(
            "column_coarse",
            _grid(lambda s: (_ceil(s.n, 32), _ceil(_pitch(s.k), DEPTH)), (256, 1)),
            ("b", "chunks", "coarse_exponents_b", "peaks_b", "coarse_b", "n", "k"),
        ),
        _PEAKS,
        _chosen("m", "a"),
        _chosen("n", "b"),
        _ROW_RESIDUES,
        _COLUMN_RESIDUES,
        _POSITIVE,
        _reconstruct("reconstruct_residues", "residues", 2),
    )
    workspace = {name: array for name, array in _workspace(COUNT, 2, "residues").items() if name != "norms"} | {
        "coarse_exponents_a": Buffer("int32", lambda s: (s.m,)),
        "coarse_exponents_b": Buffer("int32", lambda s: (s.n,)),
        "peaks_a": Buffer("int32", lambda s: (s.m,)),
        "peaks_b": Buffer("int32", lambda s: (s.n,)),
        "chunks": Buffer("int32", lambda s: (_ceil(s.k, CHUNK), s.n)),
        "coarse_a": Buffer("int8", lambda s: (s.m, _pitch(s.k))),
        "coarse_b": Buffer("int8", lambda s: (s.n, _pitch(s.k))),
    }
    kernel = _kernel(
        8,
        "accurate",
        "Exponents from a product",
        _story("One INT8 product of magnitudes bounds how far rows and columns may be scaled.", gain_over="crt.fused"),
        Run(steps=steps, workspace=workspace),
        _POSITIVE,
        headers=("coarse", "eight", "rows"),
        longest_k=UNSIGNED_K,
    )
    # A and B without Inf and NaN, the magnitudes of both, twice, and their product as it is converted.
    return kernel.with_promises(error=_accurate_error, error_copies=4)


LEAST, MOST = 13, 16
"""Moduli that R10 chooses from on the device; its arrays have room for the most."""
MEASURE, SUMMARY, PLAN = 3, 2, 6
"""Doubles of a partial measure and of a summary (measures.cuh), and ints of the plan (10_certified.cu)."""
NATIVE_SHARED = 5 * (BM * (16 + 4) + 16 * (96 + 4)) * 8
"""The ring of native_nn: 5 stages of 128 x 16 and 16 x 96 doubles, rows padded by 4."""


_BOUND = replace(
    _multiply("coarse", "U8", 1, None, _NARROW, order_barriers=2, factors="coarse", products=1),
    entry="bound_tiles",
    arguments=("map:coarse_a", "map:coarse_b", "plan", "gauges_a", "gauges_b", "worst", "m", "n", "k"),
    expects=(
        Expect(r"QGMMA\.64x192x32\.F32\.E5M2\.E5M2", "wgmma on e5m2", least=4),
        Expect(r"UTMALDG\.2D(\..*)?", "TMA loads the tiles", least=2),
        Expect(r"STG\..*", "a number a warp is stored", least=1, most=1),
        *(never for never in _NEVER if never.opcode != r"LDG\..*"),
    ),
)
_LISTED = replace(
    _PING_PONG,
    arguments=("map:residues_a", "map:residues_b", "plan", "list", "residues", "m", "n", "k"),
    expects=tuple(expect for expect in _PING_PONG.expects if expect.opcode != r"LDG\..*"),
)


def _certified_steps() -> tuple[Step, ...]:
    """Row-major A and B, alpha and beta; tiles take residues where the bound allows it (`decide`'s last argument)."""
    rows = _grid(lambda s: (s.m, 1), (256, 1))
    columns = _grid(lambda s: (_ceil(s.n, 32), _ceil(s.k, CHUNK)), (256, 1))
    once = _grid(lambda s: (1, 1), (1024, 1))
    return (
        Step(
            "sample_inner",
            _grid(lambda s: (_ceil(s.k, 32), 1), (256, 1)),
            ("a", "k", 1, "b", "n", 1, "inner", "m", "n", "k"),
        ),
        Step("settle_inner", once, ("inner", "plan", "k")),
        Step(
            "glance",
            _grid(lambda s: (8, 8), (384, 1)),
            ("a", "k", 1, "b", "n", 1, "inner", "plan", "m", "n", "k", 0, 1),
        ),
        Step("measure_rows", rows, ("a", "k", "inner", 1, "plan", "coarse_a", "summaries_a", "gauges_a", "k")),
        Step("measure_columns", columns, ("b", "n", "inner", -1, "plan", "coarse_b", "partial", "largest", "n", "k")),
        Step(
            "join_columns",
            _grid(lambda s: (_ceil(s.n, 128), 1), (128, 1)),
            ("plan", "partial", "largest", "summaries_b", "gauges_b", "n", "k"),
        ),
        _BOUND,
        Step("decide", once, ("worst", "plan", "list", "natives", "kinds", "m", "n", "k", 0, 1)),
        Step(
            "rows_to_residues",
            rows,
            ("a", "k", "inner", 1, "plan", "summaries_a", "exponents_a", "residues_a", "m", "k"),
            expects=_ROW_RESIDUES.expects,
        ),
        Step(
            "columns_to_residues",
            _grid(lambda s: (_ceil(s.n, 32), _ceil(_pitch(s.k), DEPTH)), (256, 1)),
            ("b", "n", "inner", -1, "plan", "summaries_b", "exponents_b", "residues_b", "n", "k"),
            expects=_ROW_RESIDUES.expects,
        ),
        _LISTED,
        Step(
            "reconstruct",
            _grid(lambda s: (_tiles(s) * _NARROW.bn // 32, 1), (256, 1)),
            ("plan", "kinds", "residues", "exponents_a", "exponents_b", "c", "n", "m", "n", "alpha", "beta"),
            expects=(Expect(r"DFMA(\..*)?", "two fp64 multiply-adds per modulus", least=8 * sum(range(LEAST, MOST))),),
        ),
        Step(
            "native_nn",
            _grid(lambda s: (min(card.sms(), 2 * _tiles(s)), 1), (256, 1), lambda s: NATIVE_SHARED),
            ("a", "k", "b", "n", "plan", "natives", "c", "n", "m", "n", "k", "alpha", "beta"),
            expects=(
                Expect(r"DMMA\.16x8x8", "doubles on tensor cores", least=24),
                Expect(r"LDGSTS\.E\.64(\..*)?", "copies of 8 bytes, which need no alignment", least=14),
                Expect(r"(STL|LDL)(\..*)?", "nothing spills", least=0, most=0),
            ),
        ),
    )


def _certified_workspace() -> dict[str, Buffer]:
    whole = _workspace(MOST, 1, "residues", ring=_NARROW)
    sides = {"a": lambda s: s.m, "b": lambda s: s.n}
    by_side = {
        f"{name}_{side}": Buffer(dtype, lambda s, of=of, lengths=lengths: lengths(s, of(s)))
        for side, of in sides.items()
        for name, dtype, lengths in (
            ("coarse", "int8", lambda s, lines: (lines, _pitch(s.k))),
            ("summaries", "fp64", lambda s, lines: (lines, SUMMARY)),
            ("gauges", "fp32", lambda s, lines: (lines, 2)),
        )
    }
    return (
        {name: array for name, array in whole.items() if name != "norms"}
        | by_side
        | {
            "inner": Buffer("int32", lambda s: (_pitch(s.k),)),
            "plan": Buffer("int32", lambda s: (PLAN,)),
            "partial": Buffer("fp64", lambda s: (_ceil(s.k, CHUNK), s.n * MEASURE)),
            "largest": Buffer("int32", lambda s: (s.n,)),
            "worst": Buffer("fp32", lambda s: (_tiles(s), 4)),
            "list": Buffer("int32", lambda s: (_tiles(s),)),
            "natives": Buffer("int32", lambda s: (_tiles(s),)),
            "kinds": Buffer("int8", lambda s: (_tiles(s),)),
        }
    )


def _certified_error(a: Any, b: Any, xp: Any) -> Any:
    """2 sqrt(k) u |A||B| and one rounding; tiles in double have an ordinary sum's bound, which every gate allows."""
    left, right = (xp.where(xp.isfinite(x), xp.abs(x), 0.0) for x in (a, b))
    return decided.gamma(a.shape[1]) * (left @ right)


def _certified() -> Kernel:
    kernel = _kernel(
        10,
        "certified",
        "A bound for every element",
        _story(
            "The device bounds each element's error and takes 13 to 16 moduli as it needs, or double if it must.",
            gain_over="crt.ping_pong_14",
        ),
        Run(steps=_certified_steps(), workspace=_certified_workspace()),
        _LISTED,
        headers=("counted", "instructions", "listed", "measures", "native"),
        count=MOST,
        longest_k=UNSIGNED_K,
        ring=_NARROW,
    )
    code = replace(
        kernel.code,
        headers=(*(name for name in kernel.code.headers if "columns" not in name), "common/cp_async.cuh"),
    )
    # `decide` weighs residues against double by an H200's times.
    platform = replace(kernel.platform, tuned_sms=132)
    return replace(
        kernel, id="crt.certified", title="A bound for every element", code=code, platform=platform
    ).with_promises(error=_certified_error, spoils=False, error_copies=3)


BOUND_GAUGES = 2 * (BM + _NARROW.bn) * 8
"""Gauges of a tile's rows and columns, for each of two consumers of the bound in R11 and R17, behind the ring."""
THIRD_SHARED = 4 * (BM + 64) * 16 * 8
"""The ring of native_nn_early: 4 stages of 128 x 16 and 16 x 64 doubles."""


def _early(step: Step, number: int) -> Step:
    """R11's launch for the `number`-th of R10's: all but the first begin while the one before ends (early.cuh)."""

    def launch(shape: Shape) -> Launch:
        return replace(step.launch(shape), early=number > 0)

    waits = Expect(r"ACQBULK", "it waits for the launch before", least=1)
    starts = Expect(r"PREEXIT", "it lets the next launch begin", least=1)
    return replace(step, entry=f"{step.entry}_early", launch=launch, expects=(*step.expects, waits, starts))


def _with_gauges(shape: Shape) -> Launch:
    launch = _BOUND.launch(shape)
    return replace(launch, shared_bytes=launch.shared_bytes + BOUND_GAUGES)


_GAUGED_BOUND = replace(
    _BOUND,
    launch=_with_gauges,
    expects=(
        *(expect for expect in _BOUND.expects if not expect.opcode.startswith("(LDS")),
        Expect(r"LDS\.128", "gauges of two columns are read from shared memory at once", least=24),
    ),
)


def _overlapped_steps() -> tuple[Step, ...]:
    """R10's, of which two are new: the bound, and the tiles in double, each cut into three parts of 128 x 64."""
    few_loads = Expect(r"LDG\..*", "no element waits for a gauge: two numbers each, and the plan", most=12)
    bound = replace(_GAUGED_BOUND, expects=(*_GAUGED_BOUND.expects, few_loads))
    native = _grid(lambda s: (min(2 * card.sms(), 3 * _tiles(s)), 1), (256, 1), lambda s: THIRD_SHARED)
    new = {"bound_tiles": bound}
    steps = [new.get(step.entry, step) for step in _certified_steps()]
    last = replace(
        steps[-1],
        launch=native,
        expects=(
            Expect(r"DMMA\.16x8x8", "doubles on tensor cores", least=8),
            Expect(r"LDGSTS\.E\.64(\..*)?", "copies of 8 bytes, which need no alignment", least=4),
            Expect(r"(STL|LDL)(\..*)?", "nothing spills", least=0, most=0),
        ),
    )
    return tuple(_early(step, number) for number, step in enumerate((*steps[:-1], last)))


def _overlapped() -> Kernel:
    """R10's record with R11's source and launches."""
    before, steps = _certified(), _overlapped_steps()
    main = next(step for step in steps if step.entry == "multiply_early")
    headers = (*before.code.headers, "crt/10_certified.cu", "crt/early.cuh", "crt/thirds.cuh")
    return replace(
        before,
        id="crt.overlapped",
        rung="R11",
        title="Less between the products",
        source="11_overlapped.cu",
        code=replace(before.code, entry=main.entry, headers=headers),
        launch=main.launch,
        call=Call(arguments=main.arguments, tensor_maps=main.tensor_maps),
        platform=replace(before.platform, toolkits=("cuda13",)),
        run=replace(before.run, steps=steps),
        story=_story(
            "Launches overlap, the bound's comparison is hidden, and double is cut as cuBLAS cuts it.",
            gain_over="crt.certified",
        ),
    ).with_promises(expects=main.expects)


def _certified_shared_steps() -> tuple[Step, ...]:
    """R10's, with two products: of the tiles in the list, and of all on shared tiles."""
    steps = {step.entry: step for step in _certified_steps()}
    decide, listed = steps["decide"], steps["multiply"]
    product = _shared_product(MOST)
    whole = replace(
        product,
        entry="multiply_whole",
        arguments=("map:residues_a", "map:residues_b", "plan", "meeting", "residues", "m", "n", "k"),
        expects=(
            *(expect for expect in product.expects if expect.opcode != _NEVER[0].opcode),
            Expect(r"LDG\..*", "it looks into the plan, and who has come to a meeting", least=2, most=4),
            *(expect for expect in _MEETS if not expect.opcode.startswith("LDG")),
        ),
    )
    steps["decide"] = replace(decide, arguments=(*decide.arguments[:2], "some", *decide.arguments[2:]))
    steps["multiply"] = replace(listed, arguments=("map:residues_a", "map:residues_b", "some", *listed.arguments[3:]))
    after = list(steps).index("multiply") + 1
    return (*list(steps.values())[:after], whole, *list(steps.values())[after:])


LONG = 6144
"""The least K of which R14 multiplies whole products on shared tiles."""


def _certified_shared() -> Kernel:
    """R10's record with R14's source and launches."""
    before, steps = _certified(), _certified_shared_steps()
    main = next(step for step in steps if step.entry == "multiply_whole")
    included = (before.source, *(f"{header}.cuh" for header in ("in_turn", *_SHARED_HEADERS)))
    headers = (*before.code.headers, *(f"crt/{name}" for name in included))
    workspace = {**before.run.workspace, **_MEETING, "some": Buffer("int32", lambda s: (2,))}
    return replace(
        before,
        id="crt.certified_shared",
        rung="R14",
        title="A bound for every element, on shared tiles",
        source="14_certified_shared.cu",
        code=replace(
            before.code,
            entry=main.entry,
            headers=headers,
            params={**before.code.params, **_SHARED_PARAMS, "long": LONG},
            defines={**before.code.defines, "EVERY": str(SHARED_EVERY)},
        ),
        launch=main.launch,
        call=Call(arguments=main.arguments, tensor_maps=main.tensor_maps),
        run=replace(before.run, steps=steps, workspace=workspace),
        story=_story("Where all tiles take residues and K is long, tiles are shared.", gain_over="crt.certified"),
    ).with_promises(expects=main.expects, gate_shapes=(*before.promises.gate_shapes, Shape(700, 1030, LONG + 56)))


def _first_wave_steps() -> tuple[Step, ...]:
    """R14's without the glance, and with the bound in two launches of one grid."""
    maps = ("map:coarse_a", "map:coarse_b")
    gauges = ("gauges_a", "gauges_b", "worst", "m", "n", "k")
    stores = Expect(r"STG\..*", "a number a warp is stored, and in the plan that C goes to double", least=3, most=3)
    bound = (
        replace(_GAUGED_BOUND, entry="bound_first_wave", arguments=(*maps, *gauges)),
        replace(
            _GAUGED_BOUND,
            entry="bound_others",
            arguments=(*maps, "plan", *gauges, 0, 1),
            expects=(*(expect for expect in _GAUGED_BOUND.expects if not expect.opcode.startswith("STG")), stores),
        ),
    )
    kept = [step for step in _certified_shared_steps() if step.entry != "glance"]
    return tuple(new for step in kept for new in (bound if step.entry == "bound_tiles" else (step,)))


def _first_wave() -> Kernel:
    """R14's record with R17's source and launches."""
    before = _certified_shared()
    return replace(
        before,
        id="crt.first_wave",
        rung="R17",
        title="The first wave decides",
        source="17_first_wave.cu",
        code=replace(before.code, headers=(*before.code.headers, f"crt/{before.source}")),
        run=replace(before.run, steps=_first_wave_steps()),
        story=_story(
            "A first wave of tiles, spread over C, tells whether double is faster; no glance comes before.",
            gain_over="crt.certified_shared",
        ),
    ).with_promises(gate_shapes=(*before.promises.gate_shapes, Shape(2100, 1700, 100)))  # 153 tiles, more than a wave


KERNELS = (
    _kernel(
        1,
        "library",
        "The library's INT8 products",
        _story("Exponents, residues, 15 library products, reconstruction."),
        Run(
            steps=(*_TWO_PASSES, _LIBRARY_PRODUCT, _RECONSTRUCT_ROWS),
            workspace=_workspace(COUNT, 0, "sums", rows_beyond=16),
        ),
        _RECONSTRUCT_ROWS,
    ),
    _kernel(
        2,
        "batched",
        "One launch for all moduli",
        _story("int8 wgmma for all moduli in one launch; sums are stored in register order."),
        Run(
            steps=(*_TWO_PASSES, _SUMS, _reconstruct("reconstruct_sums", "sums", 1)),
            workspace=_workspace(COUNT, 1, "sums"),
        ),
        _SUMS,
    ),
    _kernel(
        3,
        "reduced",
        "Residues out of the epilogue",
        _story("The epilogue reduces sums to residues: a quarter of the bytes."),
        Run(
            steps=(*_TWO_PASSES, _RESIDUES, _reconstruct("reconstruct_residues", "residues", 1)),
            workspace=_workspace(COUNT, 1, "residues"),
        ),
        _RESIDUES,
    ),
    _kernel(
        4,
        "multicast",
        "Clusters share B",
        _story("Two blocks of a cluster load each tile of B once."),
        Run(
            steps=(*_TWO_PASSES, _SHARED, _reconstruct("reconstruct_residues", "residues", 2)),
            workspace=_workspace(COUNT, 2, "residues"),
        ),
        _SHARED,
    ),
    _kernel(
        5,
        "unsigned",
        "Unsigned residues",
        _story("Sums only grow, so the accumulators' upper bits do not toggle."),
        Run(
            steps=(*_TWO_PASSES, _POSITIVE, _reconstruct("reconstruct_residues", "residues", 2)),
            workspace=_workspace(COUNT, 2, "residues"),
        ),
        _POSITIVE,
        longest_k=UNSIGNED_K,
    ),
    *(_fused(count) for count in (COUNT, 14, 16)),
    *(_ping_pong(count) for count in (COUNT, 14, 16)),
    _accurate(),
    *(_winograd(count) for count in (COUNT, 16)),
    _certified(),
    _overlapped(),
    _lockstep(),
    _shared(),
    _certified_shared(),
    _one_pass(),
    _two_widths(),
    _first_wave(),
)
"""Workspace of C[m,n] = A[m,k] B[k,n]: about COUNT (m k + n k + m n) bytes, with 4 m n instead of m n in R1 and R2,
and 7/4 of that in R9 and R12."""
