"""The driver's interface against a driver in Python, and cuBLAS against NumPy."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gemmrepro_blas
from gemmrepro_blas import UserError, driver, library, table
from gemmrepro_blas.matrices import DOUBLES, SINGLES, Matrix
from gemmrepro_blas.table import Launch


class Driver(driver._Library):
    """A driver whose functions return what `answers` says, 0 by default, and are noted with their arguments."""

    def __init__(self, **answers: Any) -> None:
        self.forked, self.calls, self.answers = False, [], answers
        self.status = {name: self._function(name) for name in driver._FUNCTIONS}

    def _function(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append((name, arguments))
            answer = self.answers.get(name, 0)
            return answer(*arguments) if callable(answer) else answer

        return call


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Any:
    def give(**answers: Any) -> Driver:
        made = Driver(**answers)
        monkeypatch.setattr(driver, "_opened", lambda: made)
        return made

    driver.multiprocessors.cache_clear()
    return give


def stored(pointer: Any, value: int) -> int:
    """Answer with a number in what an argument refers to."""
    pointer._obj.value = value
    return 0


def test_arguments_lie_where_the_kernel_expects_them(given: Any) -> None:
    """A tensor map at a multiple of 64 bytes, pointers, numbers of 4 and 8 bytes; without a cluster and with one."""
    sizes, packed = [(0, 128), (128, 8), (136, 4), (144, 8), (152, 4), (160, 8)], list[bytes]()

    def described(handle: Any, index: int, offset: Any, size: Any) -> int:
        if index == len(sizes):
            return 1
        offset._obj.value, size._obj.value = sizes[index]
        return 0

    def launched(*arguments: Any) -> int:
        buffer, length = arguments[-1][1], ctypes.c_size_t.from_address(arguments[-1][3]).value
        packed.append(ctypes.string_at(buffer, length))
        return 0

    made = given(cuFuncGetParamInfo=described, cuLaunchKernel=launched, cuLaunchKernelEx=launched)
    function = driver.Function(SimpleNamespace(handle=1, path="x"), "entry")
    values = bytes(range(128)), 2**63, -3, 0.5, 7, 2**40
    shared = (5, 6, 7), (32, 2, 1)
    function.launch(Launch(*shared, None, 90_000), 9, *values)
    function.launch(Launch((4, 1, 1), (32, 1, 1), (2, 1, 1), 80_000), 9, *values)
    wanted = bytes(range(128)) + np.uint64(2**63).tobytes() + np.int32(-3).tobytes() + bytes(4)
    wanted += np.float64(0.5).tobytes() + np.int32(7).tobytes() + bytes(4) + np.uint64(2**40).tobytes()
    assert packed == [wanted, wanted]
    names = [name for name, _ in made.calls]
    assert names.count("cuFuncSetAttribute") == 1  # the second launch needs less
    plain = next(arguments for name, arguments in made.calls if name == "cuLaunchKernel")
    assert plain[1:9] == (5, 6, 7, 32, 2, 1, 90_000, 9)
    for wrong, message in ((values[:-1], "takes 6 arguments and gets 5"), ((*values[:-1], "x"), "of 8 bytes gets 'x'")):
        with pytest.raises(UserError, match=message):
            driver.packing(tuple(sizes), wrong)


def test_a_cluster_is_an_attribute_of_the_launch(given: Any) -> None:
    seen: list[Any] = []

    def launched(config: Any, *_: Any) -> int:
        held = config._obj
        attribute = driver._Attribute.from_address(held.attributes)
        seen.extend([[*held.grid], [*held.block], held.shared_bytes, held.stream, held.count])
        seen.extend([attribute.id, [*attribute.cluster]])
        return 0

    given(cuFuncGetParamInfo=1, cuLaunchKernelEx=launched)
    driver.Function(SimpleNamespace(handle=1, path="x"), "entry").launch(Launch((4, 1, 1), (32, 1, 1), (2, 1, 1), 8), 9)
    assert seen == [[4, 1, 1], [32, 1, 1], 8, 9, 1, 4, [2, 1, 1]]
    assert ctypes.sizeof(driver._Attribute) == 72 and driver._Config.stream.offset == 32  # as cuda.h has them


@pytest.mark.parametrize(
    ("answers", "call", "message"),
    [
        (
            {"cuLibraryGetKernel": 500},
            lambda: driver.Function(SimpleNamespace(handle=1, path="x"), "f"),
            "no launch 'f'",
        ),
        ({"cuStreamSynchronize": 700}, lambda: driver.synchronize(7), "cuStreamSynchronize failed with"),
        ({"cuStreamIsCapturing": 1}, lambda: driver.is_captured(7), "cuStreamIsCapturing failed with"),
        ({}, lambda: driver.multiprocessors(0), r"runs on Hopper \(compute capability 9\.0\) and GPU 0 has 0\.0"),
    ],
)
def test_what_the_driver_refuses_is_said_in_a_sentence(given: Any, answers: Any, call: Any, message: str) -> None:
    given(**answers)
    with pytest.raises(UserError, match=message):
        call()


@pytest.mark.parametrize("content", [b"", b"no binary at all", b"\x7fELF of another architecture"])
def test_a_binary_that_cannot_be_loaded_is_refused_in_a_sentence(given: Any, tmp_path: Path, content: bytes) -> None:
    """Text never reaches the driver, which would take it for PTX."""
    made = given(cuLibraryLoadData=209, cuDriverGetVersion=lambda at: stored(at, 12080))
    (tmp_path / "x.fatbin").write_bytes(content)
    with pytest.raises(UserError, match=r"cannot be loaded on GPU 0 .* supports CUDA 12\.8, is older than CUDA 13"):
        driver.Code(tmp_path / "x.fatbin", 0)
    assert any(name == "cuLibraryLoadData" for name, _ in made.calls) == content.startswith(b"\x7fELF")


@pytest.mark.parametrize(("status", "active", "wanted"), [(0, 0, False), (0, 1, True), (900, 0, True), (906, 0, True)])
def test_captures_are_seen_from_any_stream(given: Any, status: int, active: int, wanted: bool) -> None:
    given(cuStreamIsCapturing=lambda stream, at: stored(at, active) or status)
    assert driver.is_captured(7) is wanted


def test_a_forked_process_is_told_to_spawn(given: Any) -> None:
    made = given()
    made._fork()
    with pytest.raises(UserError, match=r"forked from one that had used the GPU.*'spawn'"):
        driver.synchronize(7)


def test_a_machine_without_a_driver_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(UserError, match=r"this machine has no CUDA driver \(libcuda\.so\.1\)"):
        driver._Library()


@pytest.mark.parametrize(("before", "wanted"), [(5, []), (6, ["cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"])])
def test_the_callers_gpu_stays_current(given: Any, before: int, wanted: list[str]) -> None:
    """Also where the caller fails."""
    retained = lambda at, device: stored(at, 5)  # noqa: E731
    made = given(cuDevicePrimaryCtxRetain=retained, cuCtxGetCurrent=lambda at: stored(at, before))
    driver._context.cache_clear()
    with pytest.raises(KeyError), driver.current(0):
        raise KeyError
    driver._context.cache_clear()
    assert [name for name, _ in made.calls if "Ctx" in name and name[5:8] in ("Pus", "Pop")] == wanted


def test_a_tensor_map_begins_with_the_row(given: Any) -> None:
    """Lengths, row bytes and boxes of an array of three dimensions, flattened to rows."""
    seen: list[Any] = []

    def encode(at: int, dtype: int, rank: int, address: int, sizes: Any, strides: Any, box: Any, *rest: Any) -> int:
        seen.extend([at % 64, dtype, rank, address, [*sizes], [*strides], [*box], [*rest[0]], *rest[1:]])
        ctypes.memset(at, 7, 128)
        return 0

    given(cuTensorMapEncodeTiled=encode)
    assert driver.tensor_map(256, "bf16", (128, 64, 128), (3, 100, 72), 144) == bytes([7] * 128)
    assert seen == [0, 9, 2, 256, [72, 300], [144], [64, 128], [1, 1], 0, 3, 3, 0]


def column_major(pointer: int, rows: int, columns: int, ld: int, kind: Any) -> np.ndarray:
    dtype = np.dtype(kind.code)
    data = (ctypes.c_char * (dtype.itemsize * (ld * (columns - 1) + rows))).from_address(pointer)
    strides = (dtype.itemsize, dtype.itemsize * ld)
    return np.lib.stride_tricks.as_strided(np.frombuffer(data, dtype), (rows, columns), strides)


class Cublas:
    """A BLAS in NumPy with cuBLAS's interface, which notes what else is called."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.computed: list[Any] = []

    def cublasCreate_v2(self, at: Any) -> int:
        self.calls.append("create")
        return stored(at, 77)

    def cublasSetStream_v2(self, handle: int, stream: int) -> int:
        self.calls.append((handle, stream))
        return 0

    def cublasGemmEx(  # type: ignore[no-untyped-def]
        self, handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, compute, way
    ) -> int:
        kind = {1: DOUBLES, 0: SINGLES}[type_a]
        assert type_a == type_b == type_c and way == -1
        return self._gemm(kind, compute, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)

    def cublasDgemm_v2(self, handle: int, *rest: Any) -> int:
        return self._gemm(DOUBLES, "D", *rest)

    def cublasSgemm_v2(self, handle: int, *rest: Any) -> int:
        return self._gemm(SINGLES, "S", *rest)

    def _gemm(self, kind, way, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) -> int:  # type: ignore[no-untyped-def]
        self.computed.append(way)
        left = column_major(a, k, m, lda, kind).T if op_a else column_major(a, m, k, lda, kind)
        right = column_major(b, n, k, ldb, kind).T if op_b else column_major(b, k, n, ldb, kind)
        out = column_major(c, m, n, ldc, kind)
        out[...] = alpha._obj.value * (left @ right) + beta._obj.value * out
        return 0

    def _geam(self, kind: Any, op_a, op_b, m, n, alpha, a, lda, beta, b, ldb, c, ldc) -> int:  # type: ignore[no-untyped-def]
        assert (op_a, op_b, beta._obj.value, a, lda) == (0, 0, 0.0, c, ldc)
        out, factor = column_major(c, m, n, ldc, kind), alpha._obj.value
        out[...] = factor * out if factor else 0.0
        return 0

    def cublasDgeam(self, handle: int, *rest: Any) -> int:
        return self._geam(DOUBLES, *rest)

    def cublasSgeam(self, handle: int, *rest: Any) -> int:
        return self._geam(SINGLES, *rest)


@pytest.fixture
def cublas(monkeypatch: pytest.MonkeyPatch) -> Cublas:
    made = Cublas()
    monkeypatch.setattr(library, "_cublas", lambda: made)
    monkeypatch.setattr(library, "_handles", library._Handles())
    return made


def laid(array: np.ndarray, by_columns: bool, kind: Any) -> Matrix:
    held = np.ascontiguousarray(array.T).T if by_columns else array
    ld = max(held.strides) // kind.bytes
    return Matrix(held.ctypes.data, *held.shape, ld, by_columns, held, kind, 0)


@pytest.mark.parametrize("scalars", [(0.3, -2.0), (-1.0, 1.0)])
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("kind", [DOUBLES, SINGLES])
@pytest.mark.parametrize("ignored", [False, True])
def test_cublas_gets_the_transposed_problem(
    cublas: Cublas, monkeypatch: pytest.MonkeyPatch, turned: tuple[bool, bool], scalars: Any, kind: Any, ignored: bool
) -> None:
    """By columns, C' = B' A'; rows longer than needed and all. A thread's handle is made once, and is its own."""
    if ignored:
        monkeypatch.setattr(Cublas, "cublasSetEnvironmentMode", lambda *_: 0, raising=False)
        monkeypatch.setattr(Cublas, "cublasGetEnvironmentMode", lambda _, *at: stored(at[1], 1), raising=False)
    rng, dtype = np.random.default_rng(1), np.dtype(kind.code)
    a, b, whole = (rng.random(size).astype(dtype) for size in ((5, 4), (4, 7), (5, 9)))
    wanted = scalars[0] * a @ b + scalars[1] * whole[:, :7]
    into = Matrix(whole.ctypes.data, 5, 7, 9, False, whole, kind, 0)
    library.multiply(laid(a, turned[0], kind), laid(b, turned[1], kind), into, scalars, 9)
    assert np.allclose(whole[:, :7], wanted, rtol=20 * np.finfo(dtype).eps, atol=0)
    library.multiply(laid(a, False, kind), laid(b, False, kind), into, scalars, 8)
    assert cublas.calls == ["create", (77, 9), (77, 8)]


@pytest.mark.parametrize(
    ("exports", "wanted"),
    [
        ({}, [70, 69]),  # too old to emulate doubles
        ({"cublasSetEmulationStrategy": None}, [71, 69]),
        ({"cublasSetEmulationStrategy": None, "cublasSetEnvironmentMode": 0}, ["D", "S"]),
        ({"cublasSetEmulationStrategy": None, "cublasSetEnvironmentMode": 7}, [71, 69]),  # refused
        ({"cublasSetEmulationStrategy": None, "cublasSetEnvironmentMode": 0, "read": 0}, [71, 69]),  # without effect
    ],
)
def test_no_variable_turns_products_into_emulation(
    cublas: Cublas, monkeypatch: pytest.MonkeyPatch, exports: dict[str, Any], wanted: list[Any]
) -> None:
    """By the environment mode of a handle of our own, or else by pedantic compute types."""
    set_to: list[int] = []
    mode = lambda handle, value: set_to.append(value.value) or exports["cublasSetEnvironmentMode"]  # noqa: E731
    for name in exports:
        monkeypatch.setattr(Cublas, name, staticmethod(mode), raising=False)
    read = exports.get("read", 1)
    monkeypatch.setattr(Cublas, "cublasGetEnvironmentMode", staticmethod(lambda _, at: stored(at, read)), raising=False)
    for kind in (DOUBLES, SINGLES):
        one = laid(np.ones((2, 2), kind.code), False, kind)
        library.multiply(one, one, laid(np.zeros((2, 2), kind.code), False, kind), (1.0, 0.0), 9)
    assert cublas.computed == wanted and set_to == [1] * ("cublasSetEnvironmentMode" in exports)


@pytest.mark.parametrize("kind", [DOUBLES, SINGLES])
@pytest.mark.parametrize("beta", [0.0, -1.5])
def test_beta_c_alone_does_not_touch_what_lies_beside(cublas: Cublas, kind: Any, beta: float) -> None:
    whole = np.random.default_rng(2).random((5, 9)).astype(kind.code)
    wanted = whole.copy()
    wanted[:, :7] *= np.dtype(kind.code).type(beta)
    library.scale(Matrix(whole.ctypes.data, 5, 7, 9, False, whole, kind, 0), beta, 9)
    assert (whole == wanted).all()


def test_what_cublas_refuses_is_said_in_a_sentence(cublas: Cublas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublas, "cublasCreate_v2", lambda at: 3)
    with pytest.raises(UserError, match=r"cuBLAS refuses cublasCreate \(status 3\)"):
        library.scale(laid(np.zeros((2, 2)), False, DOUBLES), 1.0, 9)


def test_a_binary_of_other_sources_is_refused(tmp_path: Path) -> None:
    """Its launches would be today's. What `binary=` names is taken as it is."""
    import json

    from gemmrepro import registry
    from gemmrepro.build.key import keyed
    from gemmrepro.build.toolkit import Toolkit

    built, kernel = tmp_path / "cuda13", registry.kernel("crt.first_wave")
    built.mkdir()
    fatbin = built / f"{kernel.id}.fatbin"
    with pytest.raises(UserError, match="is missing; build it with `envs/run snakemake"):
        table.usable(kernel.id, None, built)
    fatbin.write_bytes(b"x")
    record = keyed(kernel, Toolkit("cuda13", "13.4.92", frozenset())).to_json()
    fatbin.with_suffix(".json").write_text(json.dumps(record | {"build_key": "f" * 16}))
    with pytest.raises(UserError, match=r"was built from other sources than today's; build it again with `envs/run"):
        table.usable(kernel.id, None, built)
    fatbin.with_suffix(".json").write_text(json.dumps(record))
    assert table.usable(kernel.id, None, built) == table.usable(kernel.id, fatbin) == fatbin


def test_without_a_checkout_or_a_wheel_there_is_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gemmrepro_blas.export", None)
    monkeypatch.delattr(gemmrepro_blas, "export", raising=False)
    table.table.cache_clear()
    with pytest.raises(UserError, match=r"has no launch table .* install its wheel"):
        table.table()
    table.table.cache_clear()
