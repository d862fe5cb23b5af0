"""R17 of `crt`, loaded once for each GPU, and its launches in order.

The record launches all of R17's kernels whatever the device decides. Here the host reads the decision, 12 bytes,
before it goes on, and launches the product that it takes: of all tiles, or of those that a list names. Only the host
can launch cuBLAS's DGEMM where no tile takes residues, and tiles in double beside the passes over A and B, which leave
tensor cores idle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gemmrepro import registry
from gemmrepro.build.key import build_key
from gemmrepro.build.record import read_build
from gemmrepro.core.dtypes import STORAGE
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.gpu.loaded import fat_binaries, launch_config
from gemmrepro.operands import encoded
from gemmrepro.operations import Shape
from gemmrepro.ozaki import decided
from gemmrepro.registry import Kernel, Launch, Step, TensorMap, card
from gemmrepro_blas import library
from gemmrepro_blas.matrices import Matrix

KERNEL = "crt.first_wave"
BUILT = ROOT / "results" / "build" / "cuda13"
NATIVES = {(False, False): "nn", (False, True): "nt", (True, False): "tn", (True, True): "tt"}
"""Endings of the entry points in double, by whether A and B are transposed."""

NATIVE_SHARED = {(a, b): 5 * 8 * ((16 * 132 if a else 128 * 20) + (96 * 20 if b else 16 * 100)) for a, b in NATIVES}
"""Bytes of their rings: 5 stages of 128 x 16 and 16 x 96 doubles, rows padded by 4 in the order they are stored in."""

CHUNK, DEPTH, LINES = 256, 128, 32
"""Elements of a column that a block measures and reduces to residues, and columns of a block."""

PADDING = 32
"""Shared tiles gain 2 to 10 %; they are taken where padding C to whole clusters adds at most 1 row of tiles per 32."""

KEPT = 64
"""Shapes whose lengths, and arrays whose tensor maps, are kept from one call to the next."""

_int = np.int32
SIGNS = {"a": _int(1), "b": _int(-1)}
"""Of the inner exponents: A's k are multiplied by what B's are divided by."""
ONCE = Launch((1, 1, 1), (1024, 1, 1))
"""Of settle_inner and decide."""


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True)
class Factors:
    """One product: C[m,n] = alpha A[m,k] B[k,n] + beta C, C by rows.

    Attributes:
        loosened: `decided.decide`'s.
    """

    a: Matrix
    b: Matrix
    c: Matrix
    alpha: float
    beta: float
    loosened: int

    @property
    def shape(self) -> Shape:
        return Shape(self.a.rows, self.b.columns, self.a.columns)

    @property
    def tiles(self) -> int:
        """Tiles of C."""
        height, width = decided.TILE
        return _ceil(self.a.rows, height) * _ceil(self.b.columns, width)


@dataclass(frozen=True)
class Plan:
    """What the device decided: moduli, 13 to 16, or 0; tiles of 128 x 192 of C that take residues, and in double."""

    moduli: int
    tiles: int
    native_tiles: int


@cache
def _kernel() -> Kernel:
    return registry.kernel(KERNEL)


@cache
def launches() -> Mapping[str, Step]:
    """The record's launches by entry point."""
    return {step.entry: step for step in _kernel().own_launches}


@dataclass(frozen=True)
class Layout:
    """Where the arrays of a workspace lie.

    Attributes:
        arrays: first byte, element type and lengths of each.
        total: bytes of them all.
    """

    arrays: Mapping[str, tuple[int, str, tuple[int, ...]]]
    total: int


def laid_out(lengths: Mapping[str, tuple[str, tuple[int, ...]]]) -> Layout:
    """Arrays of these types and lengths one after the other, each at a multiple of 256 bytes."""
    arrays, start = {}, 0
    for name, (dtype, each) in lengths.items():
        arrays[name] = (start, dtype, each)
        start += _ceil(math.prod(each) * np.dtype(STORAGE[dtype]).itemsize, 256) * 256
    return Layout(arrays, start)


@lru_cache(maxsize=KEPT)
def layout(shape: Shape, held: str = "") -> Layout:
    """The workspace of a product of this shape; `held`: the side, "a" or "b", whose arrays are kept elsewhere."""
    lengths = {name: (array.dtype, array.lengths(shape)) for name, array in _kernel().run.workspace.items()}
    widest = max(shape.m, shape.n)  # a transposed A is measured as B is, in the same arrays
    lengths |= {"partial": ("fp64", (_ceil(shape.k, CHUNK), 3 * widest)), "largest": ("int32", (widest,))}
    return laid_out({name: each for name, each in lengths.items() if not (held and name.endswith(f"_{held}"))})


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
        return tuple(self.addresses[name] for name in names)

    def with_arrays_of(self, other: Workspace) -> Workspace:
        """The same, but for those arrays that `other` has, which its owner keeps alive."""
        return replace(self, addresses={**self.addresses, **other.addresses}, lengths={**self.lengths, **other.lengths})

    def plan(self, cupy_stream: Any) -> Plan:
        """What the device decided, once it has."""
        import cupy

        size = 3 * _int().itemsize
        words = cupy.cuda.alloc_pinned_memory(size)
        runtime = cupy.cuda.runtime
        runtime.memcpyAsync(words.ptr, self.addresses["plan"], size, runtime.memcpyDeviceToHost, cupy_stream.ptr)
        cupy_stream.synchronize()
        return Plan(*map(int, np.frombuffer(words, _int, 3)))


@dataclass(frozen=True)
class Held:
    """What is kept of a factor that many products share, for one stretch of k.

    Attributes:
        side: "a" or "b".
        measures: inner exponents, and the bytes, norms and sums of its lines.
        residues: its residues and exponents, by the number of moduli; a product that takes another number adds them.
    """

    side: str
    measures: Workspace
    residues: dict[int, Workspace]


def on_hopper(product: str, device: int) -> None:
    """Make a GPU current, whose SMs the launches count from now on.

    Raises:
        UserError: it is not of compute capability 9.0; `product` is what was called.
    """
    import cupy
    from cuda.core import Device

    properties = cupy.cuda.runtime.getDeviceProperties(device)
    if (properties["major"], properties["minor"]) != (9, 0):
        raise UserError(
            f"{product} runs on Hopper (compute capability 9.0) and GPU {device} has {properties['major']}."
            f"{properties['minor']}; use the library's own product there."
        )
    Device(device).set_current()
    card.use(card.described({"sm_count": properties["multiProcessorCount"]}))


def loaded(name: str, path: Path, device: int, entries: Iterable[str]) -> Any:
    """The code of a fat binary, whose kernels `entries` are loaded. Raises UserError if the driver cannot load them."""
    from cuda.core import ObjectCode

    try:
        (image,) = fat_binaries(path.read_bytes())
        code = ObjectCode.from_fatbin(image, name=name)
        for entry in entries:
            code.get_kernel(entry)  # which loads it
    except Exception as error:
        raise UserError(f"{path} cannot be loaded on GPU {device} ({error}); build it again.") from None
    return code


class Program:
    """The loaded kernels of one GPU."""

    def __init__(self, path: Path, device: int) -> None:
        """Load them from a fat binary.

        Raises:
            UserError: the GPU is not of compute capability 9.0, or its driver cannot load the binary.
        """
        on_hopper("dgemm", device)
        self._code = loaded(KERNEL, path, device, ["multiply_whole"])
        self._device, self._functions = device, dict[str, Any]()
        self._steps = launches()
        self._map = lru_cache(maxsize=KEPT)(self._encoded)
        self._one: Any = None

    def workspace(self, factors: Factors, held: Held | None = None) -> Workspace:
        """Arrays beside A, B and C, and beside those of `held`, on the current stream of CuPy.

        Raises:
            UserError: the GPU has too little memory left.
        """
        arrays = layout(factors.shape, held.side if held else "")
        return self.allocated(arrays, f"dgemm needs {{}} GiB beside A, B and C for {factors.shape}")

    def allocated(self, arrays: Layout, need: str) -> Workspace:
        """Memory for `arrays`, on the current stream of CuPy. `need` says what for, {} standing for the size in GiB.

        Raises:
            UserError: the GPU has too little memory left.
        """
        import cupy

        try:
            memory = cupy.empty(arrays.total, np.uint8)
        except cupy.cuda.memory.OutOfMemoryError:
            raise UserError(
                f"{need.format(f'{arrays.total / 2**30:.1f}')}, which GPU {self._device} does not have left; free "
                "arrays, or multiply in blocks."
            ) from None
        start = int(memory.data.ptr)
        addresses = {name: start + first for name, (first, _, _) in arrays.arrays.items()}
        return Workspace(memory, addresses, {name: lengths for name, (_, _, lengths) in arrays.arrays.items()})

    def run(self, factors: Factors, arrays: Workspace, stream: Any, cupy_stream: Any, held: Held | None = None) -> Plan:
        """Launch everything, and wait until the device has decided.

        `stream` and `cupy_stream` are one stream, as cuda.core and as CuPy know it. `held` is what one of the factors
        has been prepared to.
        """
        if held is None:
            self._settle(factors, arrays, stream)
        else:
            arrays = arrays.with_arrays_of(held.measures)
            _copy(arrays, "settled", "plan", cupy_stream)
        self._decide(factors, arrays, stream, held)
        plan = arrays.plan(cupy_stream)
        if plan.moduli == 0:
            library.multiply(factors.a, factors.b, factors.c, factors.alpha, factors.beta)
            return plan
        done = self._natively_beside(factors, arrays, cupy_stream) if plan.native_tiles else None
        arrays = self._with_residues(factors, arrays, stream, plan.moduli, held)
        self._multiply(factors, arrays, stream, cupy_stream, _shares_tiles(factors, plan))
        if done is not None:
            cupy_stream.wait_event(done)
        return plan

    def held(self, side: str, one: Matrix, stream: Any) -> Held:
        """The lines of a factor, measured beside ones: rows of A (side "a") or columns of B, as `Factors` has them.

        Raises:
            UserError: the GPU has too little memory left.
        """
        lines = _lines(side, one)
        shape = Shape(lines.rows, lines.rows, lines.columns)  # of which only this side's arrays are wanted
        whole = layout(shape).arrays
        need = f"preparing {side.upper()} takes {{}} GiB for {one.rows} x {one.columns}"
        kept = {name: whole[name][1:] for name in ("inner", f"coarse_{side}", f"summaries_{side}", f"gauges_{side}")}
        measures = self.allocated(laid_out(kept | {"settled": whole["plan"][1:]}), need)
        passing = self.allocated(laid_out({name: whole[name][1:] for name in ("partial", "largest")}), need)
        arrays = passing.with_arrays_of(measures)
        arrays = replace(arrays, addresses={**arrays.addresses, "plan": measures.addresses["settled"]})
        other = (self._ones(), _int(0), _int(0))
        steps = (*_steps(one), *other) if side == "a" else (*other, *_steps(one))
        m, n = (lines.rows, 1) if side == "a" else (1, lines.rows)
        around = (*steps, arrays.at("inner"), _int(m), _int(n), _int(lines.columns))
        self._launch(stream, "sample_inner", self._steps["sample_inner"].launch(shape), *around)
        self._launch(stream, "settle_inner", ONCE, arrays.at("inner", "plan"), _int(lines.columns))
        self._measure(side, lines, arrays, stream)
        return Held(side, measures, {})

    def _ones(self) -> int:
        """The address of a one in double, which stands for every element of the other factor."""
        import cupy

        if self._one is None:
            self._one = cupy.ones(1)
            cupy.cuda.get_current_stream().synchronize()  # other streams will read it
        return int(self._one.data.ptr)

    def _settle(self, factors: Factors, arrays: Workspace, stream: Any) -> None:
        """Inner exponents, and a plan that has not been made yet."""
        m, n, k = map(_int, (factors.shape.m, factors.shape.n, factors.shape.k))
        steps = (*_steps(factors.a), *_steps(factors.b))
        grid = self._steps["sample_inner"].launch(factors.shape)
        self._launch(stream, "sample_inner", grid, *steps, arrays.at("inner"), m, n, k)
        self._launch(stream, "settle_inner", ONCE, arrays.at("inner", "plan"), k)

    def _natively_beside(self, factors: Factors, arrays: Workspace, cupy_stream: Any) -> Any:
        """Launch the tiles in double on a stream of their own; the event after them."""
        import cupy
        from cuda.core import Stream

        beside = cupy.cuda.Stream(non_blocking=True)
        beside.wait_event(cupy_stream.record())
        self._natively(factors, arrays, Stream.from_handle(beside.ptr))
        return beside.record()

    def _decide(self, factors: Factors, arrays: Workspace, stream: Any, held: Held | None) -> None:
        shape = factors.shape
        m, n, k = map(_int, (shape.m, shape.n, shape.k))
        for side, one in (("a", factors.a), ("b", factors.b)):
            if held is None or held.side != side:
                self._measure(side, _lines(side, one), arrays, stream)
        gauges = arrays.at("gauges_a", "gauges_b", "worst")
        first, others = (self._steps[entry].launch(shape) for entry in ("bound_first_wave", "bound_others"))
        maps = self._maps("bound_others", arrays)
        choice = (_int(factors.loosened), _int(0))  # and not eager
        self._launch(stream, "bound_first_wave", first, *maps, gauges, m, n, k)
        self._launch(stream, "bound_others", others, *maps, arrays.at("plan"), gauges, m, n, k, choice)
        lists = arrays.at("worst", "plan", "some", "list", "natives", "kinds")
        self._launch(stream, "decide", ONCE, lists, m, n, k, choice)

    def _measure(self, side: str, lines: Matrix, arrays: Workspace, stream: Any) -> None:
        """Norms, sums and bytes of a factor's lines, the rows of `lines`."""
        count, k = _int(lines.rows), _int(lines.columns)
        before = (lines.pointer, _int(lines.ld), arrays.at("inner"), SIGNS[side], arrays.at("plan", f"coarse_{side}"))
        measures = arrays.at(f"summaries_{side}", f"gauges_{side}")
        if not lines.by_columns:
            self._launch(stream, "measure_rows", Launch((lines.rows, 1, 1), (256, 1, 1)), *before, measures, k)
            return
        grid = Launch((_ceil(lines.rows, LINES), _ceil(lines.columns, CHUNK), 1), (256, 1, 1))
        halves, joined = arrays.at("partial", "largest"), Launch((_ceil(lines.rows, 128), 1, 1), (128, 1, 1))
        self._launch(stream, "measure_columns", grid, *before, halves, count, k)
        self._launch(stream, "join_columns", joined, arrays.at("plan"), halves, measures, count, k)

    def _with_residues(
        self, factors: Factors, arrays: Workspace, stream: Any, moduli: int, held: Held | None
    ) -> Workspace:
        """The workspace with the residues of both factors: those that are held, where there are any."""
        for side, one in (("a", factors.a), ("b", factors.b)):
            lines = _lines(side, one)
            if held is None or held.side != side:
                self._to_residues(side, lines, arrays, stream)
                continue
            if moduli not in held.residues:
                pitch = arrays.lengths[f"coarse_{side}"][1]
                wanted = {
                    f"residues_{side}": ("int8", (moduli * lines.rows, pitch)),
                    f"exponents_{side}": ("int32", (lines.rows,)),
                }
                need = f"the residues of {side.upper()} for {moduli} moduli take {{}} GiB"
                held.residues[moduli] = self.allocated(laid_out(wanted), need)
                self._to_residues(side, lines, arrays.with_arrays_of(held.residues[moduli]), stream)
            arrays = arrays.with_arrays_of(held.residues[moduli])
        return arrays

    def _to_residues(self, side: str, lines: Matrix, arrays: Workspace, stream: Any) -> None:
        entry = "columns_to_residues" if lines.by_columns else "rows_to_residues"
        columns = (_ceil(lines.rows, LINES), _ceil(lines.columns, DEPTH))
        blocks = columns if lines.by_columns else (lines.rows, 1)
        self._launch(
            stream,
            entry,
            Launch((*blocks, 1), (256, 1, 1)),
            *(lines.pointer, _int(lines.ld), arrays.at("inner"), SIGNS[side]),
            arrays.at("plan", f"summaries_{side}", f"exponents_{side}", f"residues_{side}"),
            *(_int(lines.rows), _int(lines.columns)),
        )

    def _multiply(self, factors: Factors, arrays: Workspace, stream: Any, cupy_stream: Any, whole: bool) -> None:
        """The product of the residues, of all tiles at once or of the listed ones, and C from it."""
        shape, c = factors.shape, factors.c
        m, n, k = map(_int, (shape.m, shape.n, shape.k))
        entry, given = ("multiply_whole", "meeting") if whole else ("multiply", "list")
        if whole:
            _clear(arrays, "meeting", cupy_stream)
        product = self._steps[entry].launch(shape)
        self._launch(stream, entry, product, *self._maps(entry, arrays), arrays.at("plan", given, "residues"), m, n, k)
        self._launch(
            stream,
            "reconstruct",
            self._steps["reconstruct"].launch(shape),
            arrays.at("plan", "kinds", "residues", "exponents_a", "exponents_b"),
            *(c.pointer, _int(c.ld), m, n, np.float64(factors.alpha), np.float64(factors.beta)),
        )

    def _natively(self, factors: Factors, arrays: Workspace, stream: Any) -> None:
        shape, a, b, c = factors.shape, factors.a, factors.b, factors.c
        transposed = (a.by_columns, b.by_columns)
        usual = self._steps["native_nn"].launch(shape)
        self._launch(
            stream,
            f"native_{NATIVES[transposed]}",
            Launch(usual.grid, usual.block, shared_bytes=NATIVE_SHARED[transposed]),
            *(a.pointer, _int(a.ld), b.pointer, _int(b.ld), arrays.at("plan", "natives")),
            *(c.pointer, _int(c.ld), *map(_int, (shape.m, shape.n, shape.k))),
            *(np.float64(factors.alpha), np.float64(factors.beta)),
        )

    def _maps(self, entry: str, arrays: Workspace) -> list[Any]:
        return [
            self._map(wanted.box, wanted.swizzle, arrays.addresses[name], arrays.lengths[name], name)
            for name, wanted in self._steps[entry].tensor_maps.items()
        ]

    def _encoded(self, box: tuple[int, int], swizzle: int, address: int, lengths: tuple[int, ...], name: str) -> Any:
        """The tensor map of bytes at an address. It owns no memory: which array lies there is the caller's matter."""
        import cupy

        memory = cupy.cuda.UnownedMemory(address, math.prod(lengths), None, self._device)
        array = cupy.ndarray(lengths, np.int8, cupy.cuda.MemoryPointer(memory, 0))
        return encoded(array, "int8", TensorMap(box, swizzle), KERNEL, name)

    def _launch(self, stream: Any, entry: str, shape: Launch, *arguments: Any) -> None:
        from cuda.core import launch

        flat = [value for each in arguments for value in (each if isinstance(each, tuple) else (each,))]
        launch(stream, _configured(shape), self._function(entry, shape.shared_bytes), *flat)

    def _function(self, entry: str, shared_bytes: int) -> Any:
        if entry not in self._functions:
            try:
                function = self._code.get_kernel(entry)
            except Exception as error:
                raise UserError(f"the binary of {KERNEL} has no launch '{entry}' ({error}); build it again.") from None
            if shared_bytes:
                from cuda.bindings import driver

                attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                handle = driver.CUkernel(int(function.handle))
                (status,) = driver.cuKernelSetAttribute(attribute, shared_bytes, handle, driver.CUdevice(self._device))
                if status != driver.CUresult.CUDA_SUCCESS:
                    raise UserError(
                        f"GPU {self._device} refuses {shared_bytes} bytes of shared memory ({status.name})."
                    )
            self._functions[entry] = function
        return self._functions[entry]


@lru_cache(maxsize=16 * KEPT)
def _configured(shape: Launch) -> Any:
    return launch_config(shape, KERNEL)


def _copy(arrays: Workspace, source: str, to: str, cupy_stream: Any) -> None:
    """Copy one array of integers to another."""
    import cupy

    runtime = cupy.cuda.runtime
    size = math.prod(arrays.lengths[to]) * _int().itemsize
    runtime.memcpyAsync(*arrays.at(to, source), size, runtime.memcpyDeviceToDevice, cupy_stream.ptr)


def _shares_tiles(factors: Factors, plan: Plan) -> bool:
    """Whether the product is made on shared tiles: where the kernel's `is_shared` lets it, and few rows are padding."""
    shape, params = factors.shape, _kernel().params
    rows, per_cluster = _ceil(shape.m, params["bm"]), params["cluster"] * params["tall"] // params["bm"]
    padding = -rows % per_cluster
    return plan.native_tiles == 0 and shape.k >= params["long"] and padding * PADDING <= rows


def _clear(arrays: Workspace, name: str, cupy_stream: Any) -> None:
    """Set an array of integers to zero."""
    import cupy

    size = math.prod(arrays.lengths[name]) * _int().itemsize
    cupy.cuda.runtime.memsetAsync(*arrays.at(name), 0, size, cupy_stream.ptr)


def _lines(side: str, one: Matrix) -> Matrix:
    """The lines along k that a factor is measured by, as rows: A's rows, B's columns."""
    return one if side == "a" else one.transposed


def _steps(one: Matrix) -> tuple[Any, ...]:
    """Address of a factor, and elements from one row and from one column to the next."""
    row, column = (1, one.ld) if one.by_columns else (one.ld, 1)
    return one.pointer, _int(row), _int(column)


def _build_it(name: str) -> str:
    return f"`envs/run snakemake --use-singularity --cores 1 results/build/cuda13/{name}.fatbin`"


def usable(binary: str | Path | None, built: Path = BUILT, name: str = KERNEL) -> Path:
    """The fat binary of the kernel `name` to load: `binary`, or by default the one in `built`.

    Raises:
        UserError: there is none; or that of the build stage is of other sources than today's, whose launches it gets.
    """
    path = Path(binary) if binary is not None else built / f"{name}.fatbin"
    if not path.is_file():
        raise UserError(f"the binary {path} is missing; build it with {_build_it(name)}, or pass binary=.")
    if binary is None:
        _check_sources(built, name)
    return path


@cache  # hashing takes longer than a small product; what is raised is not kept
def _check_sources(built: Path, name: str) -> None:
    """Raise UserError unless the build stage compiled the binary in `built` from what is in the tree."""
    kernel = registry.kernel(name)
    record = read_build(kernel, built.parent, built.name)
    if record.build_key != build_key(kernel, record.toolkit_version, record.packages):
        raise UserError(
            f"{name} in {built} was built from other sources than today's; build it again with {_build_it(name)}."
        )


@cache
def program(path: Path, device: int) -> Program:
    """The loaded kernels; see `Program`."""
    return Program(path, device)
