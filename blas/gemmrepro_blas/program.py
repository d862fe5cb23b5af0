"""R17 of `crt`, loaded once for each GPU, and its launches in order.

The record launches all of R17's kernels whatever the device decides. Here the host reads the decision, 12 bytes,
before it goes on, and launches the product that it takes: of all tiles, or of those that a list names. Only the host
can launch cuBLAS's DGEMM where no tile takes residues, and tiles in double beside the passes over A and B, which leave
tensor cores idle. And it can make C in blocks, where residues of all would take more memory than is granted: what was
decided holds for each of them, so every element has the bits that it has without blocks.
"""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from gemmrepro_blas import driver, library
from gemmrepro_blas.calls import allocated
from gemmrepro_blas.errors import UserError
from gemmrepro_blas.matrices import Matrix
from gemmrepro_blas.replay import Place, Recording, placed
from gemmrepro_blas.table import BYTES, Kernel, Layout, Shape, ceil_div, halved, kernel, laid_out, table, tiles

NATIVES = {(False, False): "nn", (False, True): "nt", (True, False): "tn", (True, True): "tt"}
"""Endings of the entry points in double, by whether A and B are transposed."""

NATIVE_SHARED = {(a, b): 5 * 8 * ((16 * 132 if a else 128 * 20) + (96 * 20 if b else 16 * 100)) for a, b in NATIVES}
"""Bytes of their rings: 5 stages of 128 x 16 and 16 x 96 doubles, rows padded by 4 in the order they are stored in."""

PADDING = 32
"""Shared tiles gain 2 to 10 %; they are taken where padding C to whole clusters adds at most 1 row of tiles per 32."""

KEPT = 64
"""Shapes whose lengths, and arrays whose tensor maps, are kept from one call to the next."""

SIGNS = {"a": 1, "b": -1}
"""Of the inner exponents: A's k are multiplied by what B's are divided by."""

PASSING = ("coarse_a", "coarse_b", "gauges_a", "gauges_b", "partial", "largest", "worst")
"""Arrays that nothing reads once it is decided."""
RESIDUES = ("residues_a", "residues_b", "residues")
"""Arrays of which there is one part per modulus."""


@dataclass(slots=True)
class Factors:
    """One product: C[m,n] = alpha A[m,k] B[k,n] + beta C, C by rows. Nothing changes one that is made.

    Attributes:
        loosened: the bound is 2 sqrt(k) u times 2 to that.
        like: an array of the library whose pool memory comes from.
        workspace: bytes that it may take; None for as many as it needs.
    """

    a: Matrix
    b: Matrix
    c: Matrix
    alpha: float
    beta: float
    loosened: int
    like: Any = None
    workspace: int | None = None

    @property
    def shape(self) -> Shape:
        return Shape(self.a.rows, self.b.columns, self.a.columns)

    def part(self, rows: tuple[int, int], columns: tuple[int, int]) -> Factors:
        """The product of a block of C."""
        return replace(self, a=self.a.from_row(*rows), b=self.b.from_column(*columns), c=self.c.part(rows, columns))


class Plan(NamedTuple):
    """What the device decided: moduli, 13 to 16, or 0; tiles of 128 x 192 of C that take residues, and in double."""

    moduli: int
    tiles: int
    native_tiles: int


def _dgemm() -> Kernel:
    return kernel(table()["dgemm"])


@lru_cache(maxsize=KEPT)
def decision(shape: Shape, held: str = "") -> tuple[Layout, Layout]:
    """The arrays that last for a product, and those that the decision alone needs.

    `held`: the side, "a" or "b", whose arrays are kept elsewhere. A transposed A is measured as B is, in arrays of its
    length.
    """
    wide = shape._replace(n=max(shape.m, shape.n))
    lengths = {
        name: _dgemm().lengths(name, wide if name in ("partial", "largest") else shape)
        for name in _dgemm().arrays
        if name not in RESIDUES and not (held and name.endswith(f"_{held}"))
    }
    passing = {name: each for name, each in lengths.items() if name in PASSING}
    return laid_out({name: each for name, each in lengths.items() if name not in PASSING}), laid_out(passing)


@lru_cache(maxsize=KEPT)
def residues(shape: Shape, moduli: int, held: str = "") -> Layout:
    """The residues of a product, or of a block of it."""
    found = {}
    for name in RESIDUES:
        dtype, (first, *rest) = _dgemm().lengths(name, shape)
        if not (held and name.endswith(f"_{held}")):
            found[name] = (dtype, (first // _dgemm().params["moduli"] * moduli, *rest))
    return laid_out(found)


@dataclass(frozen=True)
class Workspace:
    """Arrays beside A, B and C.

    Attributes:
        memory: what keeps them alive: they are freed with it.
        addresses: where each begins.
        lengths: of each, the last one contiguous.
    """

    memory: Any
    addresses: Mapping[str, int]
    lengths: Mapping[str, tuple[int, ...]]

    def at(self, *names: str) -> tuple[int, ...]:
        return tuple([self.addresses[name] for name in names])

    def __or__(self, other: Workspace) -> Workspace:
        """The arrays of both."""
        return Workspace(
            (self.memory, other.memory),
            {**self.addresses, **other.addresses},
            {**self.lengths, **other.lengths},
        )


@dataclass
class Held:
    """What is kept of a factor that many products share, for one stretch of k. Several threads may use it.

    Attributes:
        side: "a" or "b".
        measures: inner exponents, and the bytes, norms and sums of its lines.
        ready: the event after the launch that wrote them.
        stream: the one whose pool they are of.
        residues: its residues and exponents by number of moduli, and when they were written; a product that takes
            another number adds them.
        uses: the last use on each stream. Memory goes back to its own stream's pool only once all are done.
    """

    side: str
    measures: Workspace
    ready: driver.Event
    stream: int
    residues: dict[int, tuple[Workspace, driver.Event]] = field(default_factory=dict)
    uses: dict[int, driver.Event] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __del__(self) -> None:
        if set(self.uses) - {self.stream}:
            for event in self.uses.values():
                event.wait()


@dataclass(frozen=True)
class _Call:
    """Where a product is launched: stream, multiprocessors, what memory comes from, and what notes launches instead."""

    stream: Any
    sms: int
    like: Any
    recording: Recording | None = None

    def do(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call it, or note the call."""
        if self.recording is None:
            function(*arguments)
        else:
            self.recording(function, *arguments)


class Program:
    """The loaded kernels of one GPU, which is current whenever one is called."""

    def __init__(self, path: Path, device: int) -> None:
        """Load a fat binary. Raises UserError if the driver cannot."""
        self._code = driver.Code(path, device)
        self._device, self._functions = device, dict[str, driver.Function]()
        self._steps = _dgemm().steps
        self._map = lru_cache(maxsize=KEPT)(driver.tensor_map)
        self._recorded = lru_cache(maxsize=KEPT)(self._record)
        self._one: tuple[int, Any] | None = None
        self._beside = 0

    def run(self, factors: Factors, stream: int, held: Held | None = None) -> Plan:
        """Launch everything, and wait until the device has decided. `held`: what a factor was prepared to.

        Raises:
            UserError: the GPU has too little memory left, or `factors.workspace` grants too little.
        """
        if held is None and factors.workspace is None:
            return self._replayed(factors, stream)
        call = _Call(stream, driver.multiprocessors(self._device), factors.like)
        side = held.side if held else ""
        lasting, passing = decision(factors.shape, side)
        self._check(factors, lasting.total + passing.total)
        need = f"dgemm needs {{}} GiB beside A, B and C for {factors.shape}"
        arrays = self._allocated(lasting, call, need)
        plan = self._decided(factors, arrays, self._allocated(passing, call, need), call, held)
        if plan.moduli == 0:
            library.multiply(factors.a, factors.b, factors.c, (factors.alpha, factors.beta), stream)
        else:
            self._by_residues(factors, plan, arrays, call, held)
        return plan

    def _replayed(self, factors: Factors, stream: int) -> Plan:
        """`run` of a product that needs no blocks and has no prepared factor, from what was recorded of its like."""
        a, b, c, shape, like = factors.a, factors.b, factors.c, factors.shape, factors.like
        lasting, passing = decision(shape)
        need = "dgemm needs {} GiB beside A, B and C for " + str(shape)
        kept, memory = allocated(like, lasting.total, self._device, need)
        start, decided = allocated(like, passing.total, self._device, need)
        values = [stream, a.pointer, b.pointer, c.pointer, factors.alpha, factors.beta, kept, start]
        way = shape, factors.loosened, a.ld, b.ld, c.ld, a.by_columns, b.by_columns
        self._recorded(*way, None).replay(values)
        plan = Plan(*driver.read_words(kept + lasting.arrays["plan"][0], 3, stream, self._device))
        del decided
        if plan.moduli == 0:
            library.multiply(a, b, c, (factors.alpha, factors.beta), stream)
        elif plan.native_tiles:
            call = _Call(stream, driver.multiprocessors(self._device), like)
            self._by_residues(factors, plan, _at(lasting, kept, memory), call, None)
        else:
            own = residues(shape, plan.moduli)
            values[-1], _own = allocated(like, own.total, self._device, need)
            self._recorded(*way, plan).replay(values)
        return plan

    def _record(self, shape: Shape, loosened: int, *way: Any) -> Recording:
        """Launches of a product of this shape, of leading dimensions and layouts `way`, with places 0 to 7 of values.

        Its last part is None for those up to the decision, or what was decided for those after it.
        """
        (lda, ldb, ldc, a_by_columns, b_by_columns, plan), recording = way, Recording()
        (m, n, k), at = shape, [Place(index) for index in range(8)]
        a = Matrix(at[1], m, k, lda, a_by_columns, None)  # type: ignore[arg-type]
        b = Matrix(at[2], k, n, ldb, b_by_columns, None)  # type: ignore[arg-type]
        c = Matrix(at[3], m, n, ldc, False, None)  # type: ignore[arg-type]
        factors = Factors(a, b, c, at[4], at[5], loosened)  # type: ignore[arg-type]
        call = _Call(at[0], driver.multiprocessors(self._device), None, recording)
        lasting, passing = decision(shape)
        arrays = _at(lasting, at[6])
        if plan is None:
            arrays = arrays | _at(passing, at[7])
            self._settle(factors, arrays, call)
            self._decide(factors, arrays, call, None)
        else:
            self._whole(factors, plan, arrays | _at(residues(shape, plan.moduli), at[7]), call, "")
        return recording.close()

    def _check(self, factors: Factors, least: int) -> None:
        """Raise UserError if less memory is granted than is needed whatever is decided."""
        if factors.workspace is not None and factors.workspace < least:
            raise UserError(
                f"workspace is {factors.workspace} bytes and deciding how to multiply {factors.shape} takes {least}; "
                "grant more, or pass blocks of A and B."
            )

    def _decided(self, factors: Factors, arrays: Workspace, passing: Workspace, call: _Call, held: Held | None) -> Plan:
        """What the device decides, once it has. `passing` may be freed then."""
        arrays = arrays | passing
        if held is None:
            self._settle(factors, arrays, call)
        else:
            held.ready.hold(call.stream)
            arrays = arrays | held.measures
            size = 4 * math.prod(arrays.lengths["settled"])
            driver.copy(arrays.addresses["plan"], arrays.addresses["settled"], size, call.stream)
        self._decide(factors, arrays, call, held)
        return Plan(*driver.read_words(arrays.addresses["plan"], 3, call.stream, self._device))

    def _by_residues(self, factors: Factors, plan: Plan, arrays: Workspace, call: _Call, held: Held | None) -> None:
        """The product of residues, in one go or in blocks, and tiles in double beside it."""
        shape, side = factors.shape, held.side if held else ""
        granted = factors.workspace
        if granted is not None:
            granted -= decision(shape, side)[0].total
        block = _block(shape, plan.moduli, side, granted)
        need = f"dgemm needs {{}} GiB beside A, B and C for {shape}"
        own = self._allocated(residues(block, plan.moduli, side), call, need)
        lists = None if block == shape else self._allocated(_lists(tiles(block.m, block.n)), call, need)
        if held is not None:
            arrays = arrays | held.measures | self._held_residues(factors, plan.moduli, arrays, call, held)
        done = self._natively_beside(factors, arrays, call) if plan.native_tiles else None
        if lists is None:
            self._whole(factors, plan, arrays | own, call, side)
        else:
            for part, changed, inside in self._blocks(factors, plan, block, (arrays, own, lists), call, side):
                self._reduced(part, inside, call, side, changed)
                self._multiply(part, inside, call, ("multiply", "some", "list"))
        if done is not None:
            done.hold(call.stream)
        if held is not None:
            with held.lock:
                held.uses[call.stream] = driver.Event(call.stream)

    def _whole(self, factors: Factors, plan: Plan, arrays: Workspace, call: _Call, held: str) -> None:
        """The product of residues in one go."""
        self._reduced(factors, arrays, call, held)
        whole = _shares_tiles(factors, plan)
        # `plan`, not `some`, which has no tile where the kernel would share them.
        given = ("multiply_whole", "plan", "meeting") if whole else ("multiply", "plan", "list")
        self._multiply(factors, arrays, call, given)

    def _blocks(
        self,
        factors: Factors,
        plan: Plan,
        block: Shape,
        made: tuple[Workspace, Workspace, Workspace],
        call: _Call,
        held: str,
    ) -> Iterator[tuple[Factors, str, Workspace]]:
        """Blocks of C one after the other in the same memory, each with the sides whose residues change and its arrays.

        `made`: what lasts, residues, and lists of tiles. A block whose tiles are all made in double is left out.
        """
        arrays, own, lists = made
        (height, width), whole = table()["tile"], factors.shape
        kinds = bytes(tiles(whole.m, whole.n))
        if plan.native_tiles:
            kinds = driver.read(arrays.addresses["kinds"], len(kinds), call.stream)
        per_row, last = ceil_div(whole.n, width), -1
        for top, left in product(range(0, whole.m, block.m), range(0, whole.n, block.n)):
            bottom, right = min(whole.m, top + block.m), min(whole.n, left + block.n)
            lines = [
                kinds[row * per_row + left // width : row * per_row + ceil_div(right, width)]
                for row in range(top // height, ceil_div(bottom, height))
            ]
            if all(map(all, lines)):
                continue
            driver.write(lists.addresses["some"], _listed(lines, plan.moduli), call.stream)
            part = factors.part((top, bottom), (left, right))
            moved = {name: arrays.addresses[name] + size * first for name, size, first in _by_line(top, left)}
            inside = arrays | own | lists
            lengths = {**inside.lengths, **residues(part.shape, plan.moduli, held).lengths}
            yield part, "b" if top == last else "ab", Workspace(None, {**inside.addresses, **moved}, lengths)
            last = top

    def held(self, side: str, one: Matrix, stream: int) -> Held:
        """The lines of a factor, measured beside ones: rows of A (side "a") or columns of B, as `Factors` has them.

        Raises:
            UserError: the GPU has too little memory left.
        """
        call = _Call(stream, driver.multiprocessors(self._device), one.owner)
        lines = _lines(side, one)
        shape = Shape(lines.rows, lines.rows, lines.columns)  # of which only this side's arrays are wanted
        need = f"preparing {side.upper()} takes {{}} GiB for {one.rows} x {one.columns}"
        kept = {name: _dgemm().lengths(name, shape) for name in ("inner", *(f"{each}_{side}" for each in _MEASURES))}
        measures = self._allocated(laid_out(kept | {"settled": _dgemm().lengths("plan", shape)}), call, need)
        passing = laid_out({name: _dgemm().lengths(name, shape) for name in ("partial", "largest")})
        arrays = self._allocated(passing, call, need) | measures
        arrays = replace(arrays, addresses={**arrays.addresses, "plan": measures.addresses["settled"]})
        other = (self._ones(call), 0, 0)
        steps = (*_steps(one), *other) if side == "a" else (*other, *_steps(one))
        m, n = (lines.rows, 1) if side == "a" else (1, lines.rows)
        self._launch(call, "sample_inner", shape, *steps, arrays.at("inner"), m, n, lines.columns)
        self._launch(call, "settle_inner", shape, arrays.at("inner", "plan"), lines.columns)
        self._measure(side, lines, arrays, call)
        return Held(side, measures, driver.Event(stream), stream)

    def _allocated(self, layout: Layout, call: _Call, need: str) -> Workspace:
        start, memory = allocated(call.like, max(layout.total, 1), self._device, need)
        return _at(layout, start, memory)

    def _ones(self, call: _Call) -> int:
        """The address of a one in double, which stands for every element of the other factor."""
        if self._one is None:
            address, memory = allocated(call.like, 8, self._device, "preparing a factor takes {} GiB")
            driver.write(address, struct.pack("<d", 1.0), call.stream)
            driver.synchronize(call.stream)  # other streams will read it
            self._one = address, memory
        return self._one[0]

    def _settle(self, factors: Factors, arrays: Workspace, call: _Call) -> None:
        """Inner exponents, and a plan that has not been made yet."""
        shape = factors.shape
        steps = (*_steps(factors.a), *_steps(factors.b))
        self._launch(call, "sample_inner", shape, *steps, arrays.at("inner"), shape.m, shape.n, shape.k)
        self._launch(call, "settle_inner", shape, arrays.at("inner", "plan"), shape.k)

    def _natively_beside(self, factors: Factors, arrays: Workspace, call: _Call) -> driver.Event:
        """Launch the tiles in double on a stream of their own; the event after them."""
        self._beside = self._beside or driver.new_stream()
        driver.Event(call.stream).hold(self._beside)
        self._natively(factors, arrays, replace(call, stream=self._beside))
        return driver.Event(self._beside)

    def _decide(self, factors: Factors, arrays: Workspace, call: _Call, held: Held | None) -> None:
        shape = factors.shape
        m, n, k = shape.m, shape.n, shape.k
        for side, one in (("a", factors.a), ("b", factors.b)):
            if held is None or held.side != side:
                self._measure(side, _lines(side, one), arrays, call)
        gauges = arrays.at("gauges_a", "gauges_b", "worst")
        maps = self._maps("bound_others", arrays)
        choice = (factors.loosened, 0)  # and not eager
        self._launch(call, "bound_first_wave", shape, *maps, gauges, m, n, k)
        self._launch(call, "bound_others", shape, *maps, arrays.at("plan"), gauges, m, n, k, choice)
        lists = arrays.at("worst", "plan", "some", "list", "natives", "kinds")
        self._launch(call, "decide", shape, lists, m, n, k, choice)

    def _measure(self, side: str, lines: Matrix, arrays: Workspace, call: _Call) -> None:
        """Norms, sums and bytes of a factor's lines, the rows of `lines`."""
        count, k = lines.rows, lines.columns
        shape = Shape(count, count, k)
        before = (lines.pointer, lines.ld, arrays.at("inner"), SIGNS[side], arrays.at("plan", f"coarse_{side}"))
        measures = arrays.at(f"summaries_{side}", f"gauges_{side}")
        if not lines.by_columns:
            self._launch(call, "measure_rows", shape, *before, measures, k)
            return
        halves = arrays.at("partial", "largest")
        self._launch(call, "measure_columns", shape, *before, halves, count, k)
        self._launch(call, "join_columns", shape, arrays.at("plan"), halves, measures, count, k)

    def _held_residues(self, factors: Factors, moduli: int, arrays: Workspace, call: _Call, held: Held) -> Workspace:
        """Residues of the prepared factor for so many moduli, which the stream waits for if another one writes them."""
        with held.lock:
            if moduli in held.residues:
                held.residues[moduli][1].hold(call.stream)
                return held.residues[moduli][0]
            side, lines = held.side, _lines(held.side, factors.a if held.side == "a" else factors.b)
            shape = Shape(lines.rows, lines.rows, lines.columns)
            layout = residues(shape, moduli).arrays[f"residues_{side}"][1:]
            wanted = {f"residues_{side}": layout, f"exponents_{side}": ("int32", (lines.rows,))}
            need = f"the residues of {side.upper()} for {moduli} moduli take {{}} GiB"
            made = self._allocated(laid_out(wanted), call, need)
            self._to_residues(side, lines, arrays | held.measures | made, call)
            held.residues[moduli] = made, driver.Event(call.stream)
            return made

    def _reduced(self, factors: Factors, arrays: Workspace, call: _Call, held: str, sides: str = "ab") -> None:
        """Make the residues of the factors on these sides, but for the one that is held."""
        for side, one in (("a", factors.a), ("b", factors.b)):
            if side in sides and side != held:
                self._to_residues(side, _lines(side, one), arrays, call)

    def _to_residues(self, side: str, lines: Matrix, arrays: Workspace, call: _Call) -> None:
        entry = "columns_to_residues" if lines.by_columns else "rows_to_residues"
        self._launch(
            call,
            entry,
            Shape(lines.rows, lines.rows, lines.columns),
            *(lines.pointer, lines.ld, arrays.at("inner"), SIGNS[side]),
            arrays.at("plan", f"summaries_{side}", f"exponents_{side}", f"residues_{side}"),
            *(lines.rows, lines.columns),
        )

    def _multiply(self, factors: Factors, arrays: Workspace, call: _Call, given: tuple[str, str, str]) -> None:
        """The product of the residues and C from it. `given`: entry point, what tells moduli and tiles, and which."""
        shape, c = factors.shape, factors.c
        m, n, k = shape.m, shape.n, shape.k
        entry = given[0]
        if "meeting" in given:
            call.do(driver.clear, arrays.addresses["meeting"], math.prod(arrays.lengths["meeting"]), call.stream)
        self._launch(call, entry, shape, *self._maps(entry, arrays), arrays.at(*given[1:], "residues"), m, n, k)
        self._launch(
            call,
            "reconstruct",
            shape,
            arrays.at("plan", "kinds", "residues", "exponents_a", "exponents_b"),
            *(c.pointer, c.ld, m, n, factors.alpha, factors.beta),
        )

    def _natively(self, factors: Factors, arrays: Workspace, call: _Call) -> None:
        shape, a, b, c = factors.shape, factors.a, factors.b, factors.c
        transposed = (a.by_columns, b.by_columns)
        usual = self._steps["native_nn"].launch(shape, call.sms)
        self._function(f"native_{NATIVES[transposed]}").launch(
            usual._replace(shared_bytes=NATIVE_SHARED[transposed]),
            call.stream,
            *(a.pointer, a.ld, b.pointer, b.ld, *arrays.at("plan", "natives")),
            *(c.pointer, c.ld, shape.m, shape.n, shape.k, factors.alpha, factors.beta),
        )

    def _maps(self, entry: str, arrays: Workspace) -> list[Any]:
        """Tensor maps of bytes at an address. They own no memory: which array lies there is the caller's matter."""
        return [
            placed(self._map, arrays.addresses[name], "int8", box, arrays.lengths[name], arrays.lengths[name][-1])
            for name, box in self._steps[entry].maps.items()
        ]

    def _launch(self, call: _Call, entry: str, shape: Shape, *arguments: Any) -> None:
        flat: list[Any] = []
        for each in arguments:
            if type(each) is tuple:
                flat += each
            else:
                flat.append(each)
        call.do(self._function(entry).launch, self._steps[entry].launch(shape, call.sms), call.stream, *flat)

    def _function(self, entry: str) -> driver.Function:
        if entry not in self._functions:
            self._functions[entry] = driver.Function(self._code, entry)
        return self._functions[entry]


_MEASURES = ("coarse", "summaries", "gauges")
"""What a prepared factor's lines are measured to."""


def _block(shape: Shape, moduli: int, held: str, granted: int | None) -> Shape:
    """The part of C that is made at once in `granted` bytes: whole tiles, or all of C.

    Raises:
        UserError: not even a tile fits, of a factor that is not held.
    """

    def needed(block: Shape) -> int:
        return residues(block, moduli, held).total + (0 if block == shape else _lists(tiles(block.m, block.n)).total)

    block = halved(shape, table()["tile"], needed, granted, "ab".replace(held, ""))
    if granted is not None and needed(block) > granted:
        raise UserError(
            f"workspace grants {max(granted, 0)} bytes to residues of {shape} and a block takes {needed(block)}; grant "
            "more, or pass blocks of A and B."
        )
    return block


def _at(layout: Layout, start: Any, memory: Any = None) -> Workspace:
    """A workspace at an address."""
    addresses = {name: start + first for name, (first, _, _) in layout.arrays.items()}
    return Workspace(memory, addresses, layout.lengths)


def _lists(count: int) -> Layout:
    """Moduli and number of a block's tiles that take residues; those tiles; of all `count`, which ones do not."""
    return laid_out({"some": ("int32", (2,)), "list": ("int32", (count,)), "kinds": ("int8", (count,))})


def _listed(lines: list[bytes], moduli: int) -> bytes:
    """What `_lists` holds of a block whose rows of tiles have these kinds, in the order of what `decide` lists."""
    group = table()["group"]
    wide = len(lines[0])
    places = [
        row << 16 | column
        for first in range(0, len(lines), group)
        for column in range(wide)
        for row in range(first, min(first + group, len(lines)))
        if not lines[row][column]
    ]
    content = {"some": struct.pack("<2i", moduli, len(places)), "list": struct.pack(f"<{len(places)}i", *places)}
    content["kinds"] = b"".join(lines)
    whole = bytearray()
    for name, (start, _, _) in _lists(len(lines) * wide).arrays.items():
        whole += bytes(start - len(whole)) + content[name]
    return bytes(whole)


def _by_line(top: int, left: int) -> Iterator[tuple[str, int, int]]:
    """Arrays with an entry for each row of A or column of B: name, bytes of an entry, and the first that is wanted."""
    for side, first in (("a", top), ("b", left)):
        for name, doubles in (("summaries", 2), ("exponents", 0.5)):
            yield f"{name}_{side}", int(BYTES["fp64"] * doubles), first


def _shares_tiles(factors: Factors, plan: Plan) -> bool:
    """Whether the product is made on shared tiles: where the kernel's `is_shared` lets it, and few rows are padding."""
    shape, params = factors.shape, _dgemm().params
    rows, per_cluster = ceil_div(shape.m, params["bm"]), params["cluster"] * params["tall"] // params["bm"]
    padding = -rows % per_cluster
    return plan.native_tiles == 0 and shape.k >= params["long"] and padding * PADDING <= rows


def _lines(side: str, one: Matrix) -> Matrix:
    """The lines along k that a factor is measured by, as rows: A's rows, B's columns."""
    return one if side == "a" else one.transposed


def _steps(one: Matrix) -> tuple[int, int, int]:
    """Address of a factor, and elements from one row and from one column to the next."""
    row, column = (1, one.ld) if one.by_columns else (one.ld, 1)
    return one.pointer, row, column


@cache
def program(path: Path, device: int) -> Program:
    """The loaded kernels; see `Program`."""
    return Program(path, device)
