"""gemmrepro_blas.dgemm without a GPU: what it takes as a matrix, and what it launches, in which order."""

from __future__ import annotations

import ctypes
import json
import sys
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gemmrepro_blas
from gemmrepro import registry
from gemmrepro.build.key import keyed
from gemmrepro.build.toolkit import Toolkit
from gemmrepro.errors import UserError
from gemmrepro.operations import Shape
from gemmrepro.ozaki import decided
from gemmrepro_blas import calls, certified, library, program
from gemmrepro_blas.matrices import Matrix, matrix


@dataclass
class OnGpu:
    """A NumPy array that says it is on a GPU."""

    array: np.ndarray
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.array.__array_interface__, **self.more}


def read(one: Matrix, i: int, j: int) -> int:
    """The address of an element."""
    return one.pointer + 8 * (i + j * one.ld if one.by_columns else i * one.ld + j)


@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (5, 1), (1, 1), (0, 3)])
@pytest.mark.parametrize("view", ["plain", "transposed", "part", "part of a transpose"])
def test_a_matrix_is_found_where_it_lies(shape: tuple[int, int], view: str) -> None:
    """Every element's address, of rows, of columns, and of stretches of them."""
    whole = np.zeros((shape[0] + 3, shape[1] + 2))
    array = {
        "plain": np.zeros(shape),
        "transposed": np.zeros(shape[::-1]).T,
        "part": whole[2 : shape[0] + 2, 1 : shape[1] + 1],
        "part of a transpose": np.zeros((shape[1] + 2, shape[0] + 3)).T[2 : shape[0] + 2, 1 : shape[1] + 1],
    }[view]
    found = matrix(OnGpu(array), "A")
    assert (found.rows, found.columns) == shape
    for i in range(shape[0]):
        for j in range(shape[1]):
            address = array.ctypes.data + i * array.strides[0] + j * array.strides[1]
            assert read(found, i, j) == read(found.transposed, j, i) == address
            assert read(found.from_column(j, shape[1]), i, 0) == read(found.from_row(i, shape[0]), 0, j) == address


@pytest.mark.parametrize("shape", [(3, 0), (0, 3)])
def test_strides_of_what_is_empty_do_not_matter(shape: tuple[int, int]) -> None:
    """CuPy gives rows of no element a stride of 0."""
    found = matrix(OnGpu(np.zeros(shape), {"strides": (0, 8)}), "A")
    assert (found.rows, found.columns, found.ld, found.by_columns) == (*shape, max(shape[1], 1), False)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (OnGpu(np.zeros((4, 4), np.float32)), "A holds <f4 and dgemm multiplies float64"),
        (OnGpu(np.zeros(4)), "A has 1 dimensions"),
        (OnGpu(np.zeros((8, 8))[::2, ::2]), "neither its rows nor its columns are contiguous"),
        (OnGpu(np.zeros((4, 4))[::-1]), "neither its rows nor its columns are contiguous"),
        (np.zeros((4, 4)), "A is on the host; move it to the GPU"),
        ([[1.0]], "A is a list; dgemm takes arrays of CuPy or PyTorch"),
        (SimpleNamespace(requires_grad=True), r"A requires a gradient.*A\.detach"),
        (OnGpu(np.zeros((4, 4)), {"data": (4, False)}), "A begins at an address that is no multiple of 8"),
        (OnGpu(np.zeros((4, 4)), {"data": (8, True)}), "A is read-only; pass an array that dgemm may write to"),
        (OnGpu(np.zeros((4, 4)), {"shape": (2**31, 1), "strides": None}), "A is 2147483648 x 1; dgemm takes fewer"),
        (OnGpu(np.broadcast_to(np.zeros((1, 4)), (4, 4))), "neither its rows nor its columns are contiguous"),
        (OnGpu(np.zeros((4, 4), ">f8")), "A holds >f8 and dgemm multiplies float64"),
        (OnGpu(np.zeros((4, 4), np.complex128)), "A holds <c16 and dgemm multiplies float64"),
        (OnGpu(np.zeros((2, 4, 4))), "A has 3 dimensions"),
        (type("Tensor", (), {"__module__": "torch", "is_neg": lambda self: True})(), r"give dgemm A\.resolve_neg"),
    ],
)
def test_what_is_no_matrix_on_a_gpu_is_refused(array: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        matrix(array, "A", written=True)


def test_an_array_that_cannot_be_passed_on_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as PyTorch's bfloat16 on a GPU."""
    array = SimpleNamespace(__dlpack_device__=lambda: (2, 0))

    def from_dlpack(array: Any) -> None:
        raise BufferError("no such type")

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(from_dlpack=from_dlpack))
    with pytest.raises(UserError, match=r"B cannot be passed on \(no such type\); give dgemm a float64 array"):
        matrix(array, "B")


def test_what_another_library_still_writes_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy and PyTorch order their own streams; others say on which one an array is written."""
    waited: list[int] = []
    stream = lambda handle: SimpleNamespace(synchronize=lambda: waited.append(handle))  # noqa: E731
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(ExternalStream=stream)))
    for given in (None, 7):
        matrix(OnGpu(np.zeros((4, 4)), {"stream": given}), "A")
    assert waited == [7]


@pytest.mark.parametrize(
    ("shapes", "more", "message"),
    [
        (((3, 4), (5, 6)), {}, "A is 3 x 4 and B is 5 x 6; A needs as many columns"),
        (((3, 4), (4, 6)), {"beta": 1.0}, r"beta is 1\.0, but there is no C"),
        (((3, 4), (4, 6)), {"accuracy": "best"}, "accuracy is 'best'; choose"),
        (((3, 4), (4, 6)), {"accuracy": -1.0}, r"accuracy is -1\.0; choose"),
        (((3, 4), (4, 6)), {"c": OnGpu(np.zeros((6, 3)))}, "C is 6 x 3; pass one of 3 x 6"),
        (((3, 4), (3, 6)), {"transpose_b": True}, "A is 3 x 4 and B is 6 x 3"),
        (((3, 4), (4, 6)), {"accuracy": True}, "accuracy is True; choose"),
        (((3, 4), (4, 6)), {"accuracy": float("inf")}, "accuracy is inf; choose"),
        (((3, 4), (4, 6)), {"alpha": 1j}, "alpha is 1j; pass a real number"),
        (((3, 4), (4, 6)), {"alpha": "2"}, "alpha is '2'; pass a real number"),
        (((3, 4), (4, 6)), {"alpha": np.ones(2)}, r"alpha is array\(.*; pass a real number"),
        (((3, 4), (4, 6)), {"beta": 10**400}, "beta is 10+; pass a real number that a double holds"),
        (
            ((3, 4), (4, 6)),
            {"c": OnGpu(np.zeros((3, 6))), "binary": "none.fatbin"},
            r"the binary none\.fatbin is missing; build it with",
        ),
    ],
)
def test_operands_that_do_not_fit_are_refused(shapes: Any, more: dict[str, Any], message: str) -> None:
    a, b = (OnGpu(np.zeros(shape)) for shape in shapes)
    with pytest.raises(UserError, match=message):
        gemmrepro_blas.dgemm(a, b, **more)


def test_matrices_overlap_where_they_share_an_element() -> None:
    """Blocks of one array, transposed or not, and of one read in longer rows, against the addresses themselves."""
    rng, whole, found = np.random.default_rng(5), np.zeros(400), [0, 0]
    for _ in range(400):
        views = []
        for length in rng.choice([16, 20, 25], 2):
            block = whole[: 400 // length * length].reshape(-1, length)
            (top, bottom), (left, right) = (sorted(rng.choice(size + 1, 2, replace=False)) for size in block.shape)
            part = block[top:bottom, left:right]
            views.append(part.T if rng.random() < 0.5 else part)
        first, second = (matrix(OnGpu(view), "X") for view in views)
        one, other = ({read(x, i, j) for i in range(x.rows) for j in range(x.columns)} for x in (first, second))
        assert first.overlaps(second) == second.overlaps(first) == bool(one & other)
        found[bool(one & other)] += 1
    assert min(found) > 50


def test_c_may_lie_beside_its_factors_and_not_in_them(tmp_path: Path) -> None:
    """As an LU has them, all in one array; then with a C that reaches into A, and into B, by an element."""
    whole = np.zeros((16, 16))
    a, b = OnGpu(whole[4:, :4]), OnGpu(whole[:4, 4:])
    with pytest.raises(UserError, match=r"the binary .* is missing"):
        gemmrepro_blas.dgemm(a, b, OnGpu(whole[4:, 4:]), beta=1.0, binary=tmp_path / "none")
    for c, name in ((whole[4:, 3:15], "A"), (whole[3:15, 4:], "B")):
        with pytest.raises(UserError, match=f"C shares memory with {name}"):
            gemmrepro_blas.dgemm(a, b, OnGpu(c), beta=1.0)


def fake_cupy(monkeypatch: pytest.MonkeyPatch, capturing: bool | None, device: int = 0) -> None:
    """CuPy with a stream that is captured, is not, or cannot be asked, and memory on one device."""

    class Stream:
        ptr = 7

        def is_capturing(self) -> bool:
            if capturing is None:
                raise RuntimeError("cudaErrorStreamCaptureImplicit")
            return capturing

        def use(self) -> None:
            pass

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

    stream = Stream()
    runtime = SimpleNamespace(pointerGetAttributes=lambda pointer: SimpleNamespace(device=device))
    cuda = SimpleNamespace(runtime=runtime, get_current_stream=lambda: stream, ExternalStream=lambda handle: stream)
    cuda.Device = lambda device: Stream()
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    monkeypatch.setitem(sys.modules, "cuda.core", SimpleNamespace(Stream=None))


@pytest.mark.parametrize(
    ("capturing", "device", "message"),
    [
        (True, 0, "a CUDA graph is being captured, and dgemm waits"),
        (None, 0, "a CUDA graph is being captured, and dgemm waits"),
        (False, -2, "at an address that is no GPU's"),
    ],
)
def test_nothing_is_launched_into_a_capture_or_on_memory_of_the_host(
    capturing: bool | None, device: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_cupy(monkeypatch, capturing, device)
    a, b, c = (OnGpu(np.zeros(shape)) for shape in ((3, 4), (4, 6), (3, 6)))
    with pytest.raises(UserError, match=message):
        gemmrepro_blas.dgemm(a, b, c, binary=__file__)


@pytest.mark.parametrize("wanted", [7, 8, 0], ids=["CuPy's own", "PyTorch's", "the default one"])
def test_the_callers_stream_stays_current(wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set by `use`, which CuPy forgets at the end of a `with`; what the caller does next must wait for the product."""
    current: list[Any] = []

    @dataclass
    class Stream:
        ptr: int

        def is_capturing(self) -> bool:
            return False

        def use(self) -> None:
            current[:] = [self]

        def __enter__(self) -> None:
            self.use()

        def __exit__(self, *_: object) -> None:
            Stream(0).use()

    runtime = SimpleNamespace(pointerGetAttributes=lambda pointer: SimpleNamespace(device=0))
    cuda = SimpleNamespace(runtime=runtime, get_current_stream=lambda: current[0], ExternalStream=Stream, Stream=Stream)
    Stream.null, cuda.Device = Stream(0), lambda device: nullcontext()
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    core = SimpleNamespace(Stream=SimpleNamespace(from_handle=lambda handle: handle))
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    own = Stream(7)
    own.use()
    with calls.on_stream(wanted, "why", matrix(OnGpu(np.zeros((3, 4))), "A")) as (device, queue, inside):
        assert (device, queue, inside.ptr, current[0].ptr) == (0, wanted or 1, wanted, wanted)
    assert current == [own]
    with pytest.raises(KeyError), calls.on_stream(wanted, "why", matrix(OnGpu(np.zeros((3, 4))), "A")):
        raise KeyError
    assert current == [own]


def test_arrays_of_libraries_with_other_streams_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A's stream would not wait for what makes B. Where both use the default stream, there is nothing to wait for."""
    fake_cupy(monkeypatch, capturing=True)
    torch = SimpleNamespace(cuda_stream=0)
    cuda = SimpleNamespace(current_stream=lambda device: torch)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    tensor = type("Tensor", (OnGpu,), {"__module__": "torch", "device": 0, "is_neg": lambda self: False})
    a, b, c = OnGpu(np.zeros((3, 4))), tensor(np.zeros((4, 6))), OnGpu(np.zeros((3, 6)))
    with pytest.raises(UserError, match="A is of test_dgemm and B of torch, whose current streams differ"):
        gemmrepro_blas.dgemm(a, b, c, binary=__file__)
    torch.cuda_stream = 7
    with pytest.raises(UserError, match="is being captured"):
        gemmrepro_blas.dgemm(a, b, c, binary=__file__)


def test_a_binary_of_other_sources_is_refused(tmp_path: Path) -> None:
    """Its launches would be today's. What `binary=` names is taken as it is."""
    built, kernel = tmp_path / "cuda13", registry.kernel(program.KERNEL)
    built.mkdir()
    fatbin = built / f"{kernel.id}.fatbin"
    fatbin.write_bytes(b"x")
    with pytest.raises(UserError, match=r"the build record .* is missing"):
        program.usable(None, built)
    record = keyed(kernel, Toolkit("cuda13", "13.4.92", frozenset())).to_json()
    fatbin.with_suffix(".json").write_text(json.dumps(record | {"build_key": "f" * 16}))
    with pytest.raises(UserError, match=r"was built from other sources than today's; build it again with `envs/run"):
        program.usable(None, built)
    fatbin.with_suffix(".json").write_text(json.dumps(record))
    assert program.usable(None, built) == program.usable(fatbin, tmp_path) == fatbin


@pytest.mark.parametrize(
    ("content", "loads", "message"),
    [
        (b"", ["multiply_whole"], r"cannot be loaded on GPU 0 .*; build it again"),
        (b"no binary at all", ["multiply_whole"], r"cannot be loaded on GPU 0 .*; build it again"),
        (b"\x7fELF of another architecture", [], r"cannot be loaded on GPU 0 \(no binary for GPU\); build it again"),
        (b"\x7fELF of older sources", ["multiply_whole"], r"has no launch 'decide' \(not found\); build it again"),
    ],
)
def test_a_binary_that_is_none_of_this_gpu_is_refused_in_a_sentence(
    content: bytes, loads: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cuda.core loads a binary with its first kernel, and not before."""

    class Code:
        def get_kernel(self, entry: str) -> SimpleNamespace:
            if entry not in loads:
                raise RuntimeError("not found" if loads else "no binary for GPU")
            return SimpleNamespace()

    runtime = SimpleNamespace(getDeviceProperties=lambda device: {"major": 9, "minor": 0, "multiProcessorCount": 114})
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    core = SimpleNamespace(Device=lambda device: SimpleNamespace(set_current=lambda: None))
    core.ObjectCode = SimpleNamespace(from_fatbin=lambda image, name: Code())
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    (tmp_path / "x.fatbin").write_bytes(content)
    with pytest.raises(UserError, match=message):
        program.Program(tmp_path / "x.fatbin", 0)._function("decide", 0)


def test_another_gpu_than_hoppers_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = SimpleNamespace(getDeviceProperties=lambda device: {"major": 8, "minor": 9})
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    monkeypatch.setitem(sys.modules, "cuda.core", SimpleNamespace(Device=None, ObjectCode=None))
    with pytest.raises(UserError, match=r"dgemm runs on Hopper \(compute capability 9\.0\) and GPU 0 has 8\.9"):
        program.Program(Path("x"), 0)


@pytest.mark.parametrize("k", [1, 2, 1000, 4096, 65536])
def test_the_bound_is_no_looser_than_what_was_asked_for(k: int) -> None:
    for accuracy in ("worst", 1e-10, 3e-15, decided.gamma(k)):
        wanted = k * 2.0**-53 if accuracy == "worst" else float(accuracy)
        given = decided.gamma(k, certified.loosening(accuracy, k))
        assert given <= wanted < 2 * given
    assert decided.gamma(k, certified.loosening("sqrt", k)) == pytest.approx(2 * k**0.5 * 2.0**-53)


@dataclass
class Recording:
    """A stream or an event of CuPy that does nothing."""

    ptr: int = 7

    def record(self) -> Recording:
        return self

    def wait_event(self, event: Recording) -> None:
        pass


@dataclass(frozen=True)
class Named(program.Workspace):
    """A workspace whose arrays lie at their names; the device has decided `decision`."""

    decision: tuple[int, int, int] = (14, 30, 6)

    def plan(self, cupy_stream: Any) -> program.Plan:
        return program.Plan(*self.decision)


def recorder(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[program.Program, list[tuple[str, Any, list[Any]]]]:
    """A program that notes entry point, launch and arguments of each kernel instead of launching it."""
    loaded = program.Program.__new__(program.Program)
    found: list[tuple[str, Any, list[Any]]] = []
    loaded._steps = program.launches()
    loaded._ones = lambda: "one"  # type: ignore[method-assign,assignment,return-value]

    def launch(stream: Any, entry: str, shape: Any, *arguments: Any) -> None:
        flat = [value for each in arguments for value in (each if isinstance(each, tuple | list) else (each,))]
        found.append((entry, shape, flat))

    def maps(entry: str, arrays: program.Workspace) -> list[Any]:
        return [f"map:{arrays.addresses[name]}" for name in loaded._steps[entry].tensor_maps]

    loaded._launch, loaded._maps = launch, maps  # type: ignore[method-assign]
    runtime = SimpleNamespace(
        memcpyDeviceToDevice=3,
        memcpyAsync=lambda *arguments: found.append(("copy", None, list(arguments))),
        memsetAsync=lambda *arguments: found.append(("clear", None, list(arguments))),
    )
    cuda = SimpleNamespace(Stream=lambda non_blocking: Recording(), runtime=runtime)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    core = SimpleNamespace(Stream=SimpleNamespace(from_handle=lambda handle: handle))
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    monkeypatch.setattr(library, "multiply", lambda *factors: found.append(("cuBLAS", None, list(factors))))
    loaded.allocated = lambda arrays, need: named(arrays, "held ")  # type: ignore[method-assign]
    return loaded, found


def named(arrays: program.Layout, prefix: str = "", decision: tuple[int, int, int] = (14, 30, 6)) -> Named:
    addresses: Any = {name: prefix + name for name in arrays.arrays}
    return Named(None, addresses, {name: lengths for name, (_, _, lengths) in arrays.arrays.items()}, decision)


def launched(
    monkeypatch: pytest.MonkeyPatch,
    a: Matrix,
    b: Matrix,
    c: Matrix,
    plan: tuple[int, int, int] = (14, 30, 6),
) -> list[tuple[str, Any, list[Any]]]:
    """Entry point, launch and arguments of each kernel; an array of the workspace stands as its name."""
    loaded, found = recorder(monkeypatch)
    factors = program.Factors(a, b, c, 2.0, 3.0, 5)
    decision = loaded.run(factors, named(program.layout(factors.shape), "", plan), None, Recording())
    assert decision == program.Plan(*plan)
    return found


@pytest.mark.parametrize(
    ("k", "plan", "left_out"),
    [
        (600, (14, 30, 6), {"multiply_whole"}),
        (600, (14, 36, 0), {"multiply_whole", "native_nn"}),
        (6200, (14, 48, 0), {"multiply", "native_nn"}),
        (6200, (14, 30, 6), {"multiply_whole"}),
        (6200, (14, 36, 0), {"multiply_whole", "native_nn"}),  # 6 rows of tiles; clusters would take 8
    ],
)
def test_row_major_operands_are_launched_as_the_record_says(
    k: int, plan: tuple[int, int, int], left_out: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same grids and arguments; but what `decide` is told, that double comes early, and launches without work."""
    m = 700 if "multiply_whole" in left_out else 1024
    shape = Shape(m, 1030, k)
    a, b, c = (matrix(OnGpu(np.zeros(size)), "X") for size in ((m, k), (k, 1030), (m, 1030)))
    steps = [step for step in program.launches().values() if step.entry not in left_out]
    names = {
        "m": m,
        "n": 1030,
        "k": k,
        "some": "plan",
        "a": a.pointer,
        "b": b.pointer,
        "c": c.pointer,
        "alpha": 2.0,
        "beta": 3.0,
    }
    calls = launched(monkeypatch, a, b, c, plan)
    if "native_nn" not in left_out:
        early = [entry for entry, _, _ in calls].index("native_nn")
        assert calls[early - 1][0] == "decide"
        calls.append(calls.pop(early))
    if "multiply_whole" not in left_out:  # whose counters begin at zero
        cleared = calls.pop([entry for entry, _, _ in calls].index("clear"))
        assert cleared[2][:3] == ["meeting", 0, 8]
    assert [entry for entry, _, _ in calls] == [step.entry for step in steps]
    for (entry, launch, arguments), step in zip(calls, steps, strict=True):
        assert launch == step.launch(shape), entry
        wanted = [names.get(str(argument), argument) for argument in step.arguments]
        if entry in ("bound_others", "decide"):
            assert wanted[-2:] == [0, 1] and arguments[-2:] == [5, 0]
            wanted, arguments = wanted[:-2], arguments[:-2]
        assert arguments == ([*wanted[:2], "some", *wanted[3:]] if entry == "decide" else wanted), entry


@pytest.mark.parametrize("turned", [(False, True), (True, False), (True, True)])
def test_transposed_operands_take_the_kernels_of_their_layout(
    turned: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    a = matrix(OnGpu(np.zeros((300, 200)) if not turned[0] else np.zeros((200, 300)).T), "A")
    b = matrix(OnGpu(np.zeros((200, 400)) if not turned[1] else np.zeros((400, 200)).T), "B")
    calls = launched(monkeypatch, a, b, matrix(OnGpu(np.zeros((300, 400))), "C"))
    entries = [entry for entry, _, _ in calls]
    in_double = entries.index(f"native_{'t' if turned[0] else 'n'}{'t' if turned[1] else 'n'}")
    assert entries.count("measure_columns") == entries.count("join_columns") == turned[0] + (not turned[1])
    assert entries.count("rows_to_residues") == (not turned[0]) + turned[1]
    sample = next(arguments for entry, _, arguments in calls if entry == "sample_inner")
    assert sample[1:3] == ([1, 300] if turned[0] else [200, 1]) and sample[4:6] == ([1, 200] if turned[1] else [400, 1])
    shared = calls[in_double][1].shared_bytes
    assert shared == 5 * 8 * ((16 * 132 if turned[0] else 128 * 20) + (96 * 20 if turned[1] else 16 * 100))


@pytest.mark.parametrize(
    ("plan", "last"), [((0, 0, 36), "cuBLAS"), ((15, 36, 0), "reconstruct"), ((13, 1, 35), "reconstruct")]
)
def test_what_is_launched_follows_the_decision(
    plan: tuple[int, int, int], last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without residues cuBLAS multiplies, with alpha and beta; without tiles in double, their kernel stays out."""
    a, b, c = (matrix(OnGpu(np.zeros(size)), "X") for size in ((700, 600), (600, 1030), (700, 1030)))
    entries = [entry for entry, _, _ in launched(monkeypatch, a, b, c, plan)]
    assert entries[-1] == last and ("native_nn" in entries) == (0 < plan[0] and 0 < plan[2])
    if plan[0] == 0:
        assert entries[-2] == "decide"
        assert launched(monkeypatch, a, b, c, plan)[-1][2] == [a, b, c, 2.0, 3.0]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("side", ["a", "b"])
def test_a_prepared_factor_is_measured_once(side: str, turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products launch what they would without, less what is held; residues are made by the first with their number."""
    sizes = {"a": (700, 600), "b": (600, 1030)}
    stored = {name: np.zeros(size[::-1]).T if turned else np.zeros(size) for name, size in sizes.items()}
    a, b, c = (matrix(OnGpu(array), "X") for array in (stored["a"], stored["b"], np.zeros((700, 1030))))
    factors = program.Factors(a, b, c, 2.0, 3.0, 5)
    loaded, found = recorder(monkeypatch)
    held = loaded.held(side, a if side == "a" else b, None)
    measured = ["measure_columns", "join_columns"] if turned == (side == "a") else ["measure_rows"]
    assert [entry for entry, _, _ in found] == ["sample_inner", "settle_inner", *measured]
    sample = found[0][2]
    assert sample[3 if side == "a" else 0 :][:3] == ["one", 0, 0] and sample[6] == "held inner"
    assert sample[7:] == ([700, 1, 600] if side == "a" else [1, 1030, 600])
    assert found[1][2][:2] == ["held inner", "held settled"]
    alone = launched(monkeypatch, a, b, c)
    loaded, found = recorder(monkeypatch)
    residues = "columns_to_residues" if turned == (side == "a") else "rows_to_residues"
    for moduli, new in ((14, 1), (14, 0), (15, 1)):
        found.clear()
        arrays = named(program.layout(factors.shape, side), "", (moduli, 30, 6))
        assert not any(name.endswith(f"_{side}") for name in arrays.addresses)
        loaded.run(factors, arrays, None, Recording(), held)
        assert found.pop(0) == ("copy", None, ["plan", "held settled", 24, 3, 7])
        wanted = []
        for entry, shape, arguments in alone[2:]:
            of_side = any(str(value).endswith(f"_{side}") and "map:" not in str(value) for value in arguments)
            if of_side and (entry in measured or (entry == residues and not new)):
                continue
            wanted.append((entry, shape, [_held(value, side) for value in arguments]))
        assert found == wanted
    assert sorted(held.residues) == [14, 15]
    assert held.residues[14].lengths[f"residues_{side}"] == (14 * (700 if side == "a" else 1030), 608)


def _held(value: Any, side: str) -> Any:
    """An argument as it is where that side's arrays are held."""
    plain = str(value).removeprefix("map:")
    if isinstance(value, str) and (plain == "inner" or plain.endswith(f"_{side}")):
        return value.replace(plain, f"held {plain}")
    return value


@dataclass
class Ordered:
    """A stream that notes which events it waits for, and numbers those that it records."""

    waits: list[int] = field(default_factory=list)
    recorded: int = 0
    ptr: int = 7

    def is_capturing(self) -> bool:
        return False

    def wait_event(self, event: int) -> None:
        self.waits.append(event)

    def record(self) -> int:
        self.recorded += 1
        return self.recorded

    def use(self) -> None:
        pass


def test_products_wait_for_what_was_prepared_and_take_its_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three stretches of k, whose residues the first product makes; later ones wait for that one's event."""
    stream, runs = Ordered(), list[tuple[int, int, str]]()

    class Loaded:
        def held(self, side: str, one: Matrix, queue: Any) -> program.Held:
            assert side == "b" and one.columns == 6
            return program.Held(side, named(program.Layout({}, 0), str(one.rows)), {})

        def workspace(self, factors: program.Factors, held: program.Held) -> None:
            assert held.side == "b"

        def run(self, factors: program.Factors, arrays: None, queue: Any, own: Ordered, held: Any) -> program.Plan:
            runs.append((factors.a.columns, factors.b.rows, factors.beta))
            held.residues[14] = held.measures
            return program.Plan(14, 1, 0)

    monkeypatch.setattr(certified, "program", lambda path, device: Loaded())
    monkeypatch.setattr(certified, "SMALL", 0)
    monkeypatch.setattr(decided, "LONGEST_K", 16)
    fake_cupy(monkeypatch, capturing=False)
    cuda = sys.modules["cupy"].cuda
    cuda.ExternalStream, cuda.get_current_stream = lambda handle: stream, lambda: stream
    core = SimpleNamespace(Stream=SimpleNamespace(from_handle=lambda handle: handle))
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    a, b, c = (OnGpu(np.zeros(shape)) for shape in ((3, 40), (40, 6), (3, 6)))
    prepared = gemmrepro_blas.prepare(b, binary=__file__)
    assert list(prepared.stretches) == [0, 16, 32] and prepared.ready == 1
    for _ in range(2):
        gemmrepro_blas.dgemm(a, prepared, c, beta=2.0, binary=__file__)
    assert runs == 2 * [(16, 16, 2.0), (16, 16, 1.0), (8, 8, 1.0)]
    assert stream.waits == [1, 2] and prepared.ready == stream.recorded == 2


def test_lengths_launches_and_tensor_maps_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """By shape, and by address: what lies elsewhere gets another map. A map owns none of the memory."""
    made: list[tuple[int, tuple[int, ...]]] = []

    class Unowned:
        def __init__(self, address: int, size: int, owner: Any, device: int) -> None:
            assert owner is None and device == 3
            self.address = address

    cuda = SimpleNamespace(UnownedMemory=Unowned, MemoryPointer=lambda memory, offset: memory.address + offset)
    array = lambda lengths, dtype, memory: SimpleNamespace(lengths=lengths, at=memory)  # noqa: E731
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, ndarray=array))
    monkeypatch.setattr(program, "encoded", lambda one, *_: made.append((one.at, one.lengths)) or len(made))
    loaded = program.Program.__new__(program.Program)
    loaded._steps = program.launches()
    loaded._device, loaded._map = 3, program.lru_cache(maxsize=program.KEPT)(loaded._encoded)
    layout = program.layout(Shape(700, 1030, 600))
    assert program.layout(Shape(700, 1030, 600)) is layout
    lengths = {name: each for name, (_, _, each) in layout.arrays.items()}
    for start in (0, 4096, 0, 4096):
        addresses = {name: start + first for name, (first, _, _) in layout.arrays.items()}
        maps = loaded._maps("bound_others", program.Workspace(None, addresses, lengths))
        assert [made[one - 1] for one in maps] == [
            (addresses[name], (lines, 608)) for name, lines in (("coarse_a", 700), ("coarse_b", 1030))
        ]
    assert len(made) == 4


def test_arrays_of_a_workspace_lie_apart() -> None:
    layout = program.layout(Shape(129, 385, 65))
    ends = 0
    for start, dtype, lengths in layout.arrays.values():
        assert start >= ends and start % 256 == 0
        ends = start + int(np.prod(lengths)) * {"fp64": 8, "fp32": 4, "int32": 4, "int8": 1}[dtype]
    assert layout.total >= ends


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p, a, b, c: gemmrepro_blas.dgemm(p, b), "what is passed as A was prepared as B"),
        (lambda p, a, b, c: gemmrepro_blas.dgemm(a, p, transpose_b=True), "B is prepared as it is multiplied"),
        (lambda p, a, b, c: gemmrepro_blas.dgemm(p, p), "A and B are both prepared"),
        (lambda p, a, b, c: gemmrepro_blas.dgemm(b, p), "A is 4 x 6 and B is 4 x 6"),
        (lambda p, a, b, c: gemmrepro_blas.dgemm(a, p, OnGpu(c.array.T)), "C lies by columns and B was prepared"),
        (lambda p, a, b, c: gemmrepro_blas.prepare(b, name="C"), "name is 'C'; choose 'A' or 'B'"),
        (lambda p, a, b, c: gemmrepro_blas.prepare(b, binary="none"), "the binary none is missing"),
    ],
)
def test_what_was_prepared_for_something_else_is_refused(call: Any, message: str) -> None:
    a, b, c = (OnGpu(np.zeros(shape)) for shape in ((3, 4), (4, 6), (6, 3)))
    prepared = certified.Prepared(matrix(b, "B"), "B", {}, 0, None)
    with pytest.raises(UserError, match=message):
        call(prepared, a, b, c)


@pytest.mark.parametrize("scalars", [(0.3, -2.0), (-1, 1)])
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_cublas_gets_the_transposed_problem(
    turned: tuple[bool, bool], scalars: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By columns, C' = B' A': a BLAS in NumPy finds the product in C's memory, rows longer than needed and all."""

    def column_major(pointer: int, rows: int, columns: int, ld: int) -> np.ndarray:
        data = (ctypes.c_double * (ld * (columns - 1) + rows)).from_address(pointer)
        return np.lib.stride_tricks.as_strided(np.frombuffer(data), (rows, columns), (8, 8 * ld))

    def dgemm(handle, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) -> None:  # type: ignore[no-untyped-def]
        left = column_major(a, k, m, lda).T if op_a else column_major(a, m, k, lda)
        right = column_major(b, n, k, ldb).T if op_b else column_major(b, k, n, ldb)
        read = [ctypes.c_double.from_address(at).value for at in (alpha, beta)]
        out = column_major(c, m, n, ldc)
        out[...] = read[0] * (left @ right) + read[1] * out

    blas = SimpleNamespace(CUBLAS_OP_N=0, CUBLAS_OP_T=1, CUBLAS_POINTER_MODE_HOST=0, dgemm=dgemm)
    blas.getPointerMode, blas.setPointerMode = lambda handle: 1, lambda handle, mode: None
    cuda = SimpleNamespace(cublas=blas, get_cublas_handle=lambda: 1)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    rng = np.random.default_rng(1)
    a, b, whole = rng.random((5, 4)), rng.random((4, 7)), rng.random((5, 9))
    wanted = scalars[0] * a @ b + scalars[1] * whole[:, :7]
    stored = [np.ascontiguousarray(x.T).T if turn else x for x, turn in zip((a, b), turned, strict=True)]
    factors = [matrix(OnGpu(array), "X") for array in (*stored, whole[:, :7])]
    library.multiply(*factors, *scalars)
    assert np.allclose(whole[:, :7], wanted, rtol=1e-14, atol=0)
