"""gemmrepro.dgemm without a GPU: what it takes as a matrix, and what it launches, in which order."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gemmrepro
from gemmrepro import registry
from gemmrepro.blas import certified, library, program
from gemmrepro.blas.matrices import Matrix, matrix
from gemmrepro.errors import UserError
from gemmrepro.operations import Shape
from gemmrepro.ozaki import decided


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
    ],
)
def test_what_is_no_matrix_on_a_gpu_is_refused(array: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        matrix(array, "A")


@pytest.mark.parametrize(
    ("shapes", "more", "message"),
    [
        (((3, 4), (5, 6)), {}, "A is 3 x 4 and B is 5 x 6; A needs as many columns"),
        (((3, 4), (4, 6)), {"beta": 1.0}, r"beta is 1\.0, but there is no C"),
        (((3, 4), (4, 6)), {"accuracy": "best"}, "accuracy is 'best'; choose"),
        (((3, 4), (4, 6)), {"accuracy": -1.0}, r"accuracy is -1\.0; choose"),
        (((3, 4), (4, 6)), {"c": OnGpu(np.zeros((6, 3)))}, "C is 6 x 3; pass one of 3 x 6"),
        (((3, 4), (3, 6)), {"transpose_b": True}, "A is 3 x 4 and B is 6 x 3"),
    ],
)
def test_operands_that_do_not_fit_are_refused(shapes: Any, more: dict[str, Any], message: str) -> None:
    a, b = (OnGpu(np.zeros(shape)) for shape in shapes)
    with pytest.raises(UserError, match=message):
        gemmrepro.dgemm(a, b, **more)


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


def launched(
    monkeypatch: pytest.MonkeyPatch, a: Matrix, b: Matrix, c: Matrix, plan: tuple[int, int, int] = (14, 30, 6)
) -> list[tuple[str, Any, list[Any]]]:
    """Entry point, launch and arguments of each kernel; an array of the workspace stands as its name."""
    kernel = registry.kernel(program.KERNEL)
    loaded = program.Program.__new__(program.Program)
    loaded.kernel, found = kernel, []
    loaded._steps = {step.entry: step for step in kernel.own_launches}

    def launch(stream: Any, entry: str, shape: Any, *arguments: Any) -> None:
        flat = [value for each in arguments for value in (each if isinstance(each, tuple | list) else (each,))]
        found.append((entry, shape, flat))

    loaded._launch = launch  # type: ignore[method-assign]
    loaded._maps = lambda entry, arrays: [f"map:{name}" for name in loaded._steps[entry].tensor_maps]  # type: ignore[method-assign]
    streams = SimpleNamespace(cuda=SimpleNamespace(Stream=lambda non_blocking: Recording()))
    monkeypatch.setitem(sys.modules, "cupy", streams)
    core = SimpleNamespace(Stream=SimpleNamespace(from_handle=lambda handle: handle))
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    monkeypatch.setattr(library, "multiply", lambda *factors: found.append(("cuBLAS", None, list(factors))))
    arrays = {name: SimpleNamespace(data=SimpleNamespace(ptr=name)) for name in kernel.run.workspace}
    arrays["plan"].get = lambda stream: np.array([*plan, 1, 0, 0], np.int32)
    decision = loaded.run(program.Factors(a, b, c, 2.0, 3.0, 5), arrays, None, Recording())
    assert decision == program.Plan(*plan)
    return found


def test_row_major_operands_are_launched_as_the_record_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same kernels, grids and arguments included; but for what `decide` is told, and that double comes early."""
    shape = Shape(700, 1030, 600)
    a, b, c = (matrix(OnGpu(np.zeros(size)), "X") for size in ((700, 600), (600, 1030), (700, 1030)))
    steps = registry.kernel(program.KERNEL).own_launches
    names = {"m": 700, "n": 1030, "k": 600, "a": a.pointer, "b": b.pointer, "c": c.pointer, "alpha": 2.0, "beta": 3.0}
    calls = launched(monkeypatch, a, b, c)
    early = [entry for entry, _, _ in calls].index("native_nn")
    assert calls[early - 1][0] == "decide"
    calls.append(calls.pop(early))
    assert [entry for entry, _, _ in calls] == [step.entry for step in steps]
    for (entry, launch, arguments), step in zip(calls, steps, strict=True):
        assert launch == step.launch(shape), entry
        wanted = [names.get(str(argument), argument) for argument in step.arguments]
        if entry in ("glance", "decide"):
            assert wanted[-2:] == [0, 1] and arguments[-2:] == [5, 0]
            wanted, arguments = wanted[:-2], arguments[:-2]
        assert arguments == wanted, entry


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


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_cublas_gets_the_transposed_problem(turned: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """By columns, C' = B' A': a BLAS in NumPy finds the product in C's memory, rows longer than needed and all."""

    def column_major(pointer: int, rows: int, columns: int, ld: int) -> np.ndarray:
        data = (ctypes.c_double * (ld * (columns - 1) + rows)).from_address(pointer)
        return np.lib.stride_tricks.as_strided(np.frombuffer(data), (rows, columns), (8, 8 * ld))

    def dgemm(handle, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) -> None:  # type: ignore[no-untyped-def]
        left = column_major(a, k, m, lda).T if op_a else column_major(a, m, k, lda)
        right = column_major(b, n, k, ldb).T if op_b else column_major(b, k, n, ldb)
        scalars = [ctypes.c_double.from_address(at).value for at in (alpha, beta)]
        out = column_major(c, m, n, ldc)
        out[...] = scalars[0] * (left @ right) + scalars[1] * out

    blas = SimpleNamespace(CUBLAS_OP_N=0, CUBLAS_OP_T=1, CUBLAS_POINTER_MODE_HOST=0, dgemm=dgemm)
    blas.getPointerMode, blas.setPointerMode = lambda handle: 1, lambda handle, mode: None
    cuda = SimpleNamespace(cublas=blas, get_cublas_handle=lambda: 1)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    rng = np.random.default_rng(1)
    a, b, whole = rng.random((5, 4)), rng.random((4, 7)), rng.random((5, 9))
    wanted = 0.3 * a @ b - 2.0 * whole[:, :7]
    stored = [np.ascontiguousarray(x.T).T if turn else x for x, turn in zip((a, b), turned, strict=True)]
    factors = [matrix(OnGpu(array), "X") for array in (*stored, whole[:, :7])]
    library.multiply(*factors, 0.3, -2.0)
    assert np.allclose(whole[:, :7], wanted, rtol=1e-14, atol=0)
