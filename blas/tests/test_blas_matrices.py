"""What gemmrepro_blas takes as a matrix, and which matrices share memory."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from blas_fakes import Gpu, OnGpu

from gemmrepro_blas import UserError, calls, driver
from gemmrepro_blas.matrices import DOUBLES, SINGLES, Matrix, library_of, matrix


def read(one: Matrix, i: int, j: int) -> int:
    """The address of an element."""
    return one.pointer + one.kind.bytes * (i + j * one.ld if one.by_columns else i * one.ld + j)


@pytest.mark.parametrize("kind", [DOUBLES, SINGLES])
@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (5, 1), (1, 1), (0, 3)])
@pytest.mark.parametrize("view", ["plain", "transposed", "part", "part of a transpose"])
def test_a_matrix_is_found_where_it_lies(gpu: Gpu, kind: Any, shape: tuple[int, int], view: str) -> None:
    """Every element's address, of rows, of columns, and of stretches and blocks of them."""
    dtype = np.dtype(kind.code)
    whole = np.zeros((shape[0] + 3, shape[1] + 2), dtype)
    array = {
        "plain": np.zeros(shape, dtype),
        "transposed": np.zeros(shape[::-1], dtype).T,
        "part": whole[2 : shape[0] + 2, 1 : shape[1] + 1],
        "part of a transpose": np.zeros((shape[1] + 2, shape[0] + 3), dtype).T[2 : shape[0] + 2, 1 : shape[1] + 1],
    }[view]
    found = matrix(OnGpu(array), "A", kind=kind)
    assert (found.rows, found.columns) == shape
    for i in range(shape[0]):
        for j in range(shape[1]):
            address = array.ctypes.data + i * array.strides[0] + j * array.strides[1]
            assert read(found, i, j) == read(found.transposed, j, i) == address
            assert read(found.from_column(j, shape[1]), i, 0) == read(found.from_row(i, shape[0]), 0, j) == address
            assert read(found.part((i, shape[0]), (j, shape[1])), 0, 0) == address


@pytest.mark.parametrize("shape", [(3, 0), (0, 3)])
def test_strides_of_what_is_empty_do_not_matter(gpu: Gpu, shape: tuple[int, int]) -> None:
    """CuPy gives rows of no element a stride of 0; nothing has memory."""
    found = matrix(OnGpu(np.zeros(shape), {"strides": (0, 8), "data": None}), "A")
    assert (found.rows, found.columns, found.ld, found.by_columns) == (*shape, max(shape[1], 1), False)


FAR = {"shape": (2, 64), "strides": (2**34, 8)}


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (OnGpu(np.zeros((4, 4), np.float32)), "A holds <f4 and dgemm multiplies float64"),
        (OnGpu(np.zeros(4)), "A has 1 dimensions"),
        (OnGpu(np.zeros((8, 8))[::2, ::2]), "neither its rows nor its columns are contiguous"),
        (OnGpu(np.zeros((4, 4))[::-1]), "neither its rows nor its columns are contiguous"),
        (np.zeros((4, 4)), "A is on the host; move it to the GPU"),
        ([[1.0]], "A is a list; dgemm takes arrays of CuPy or PyTorch"),
        (OnGpu(np.zeros((4, 4)), {"data": (4, False)}), "A begins at an address that is no multiple of 8"),
        (OnGpu(np.zeros((4, 4)), {"data": (8, True)}), "A is read-only; pass an array that dgemm may write to"),
        (OnGpu(np.zeros((4, 4)), {"data": None}), "A has no memory of its own"),
        (OnGpu(np.zeros((4, 4)), {"data": (0, False)}), "A has no memory of its own"),
        (OnGpu(np.zeros((4, 4)), {"mask": object()}), "A has a mask, which dgemm would not heed"),
        (OnGpu(np.zeros((4, 4)), {"shape": (2**31, 1), "strides": None}), "A is 2147483648 x 1; dgemm takes fewer"),
        (OnGpu(np.zeros((2, 64)), FAR), "rows of A lie 2147483648 elements apart; dgemm takes less than 2"),
        (OnGpu(np.zeros((64, 2)), {"shape": (64, 2), "strides": (8, 2**34)}), "columns of A lie 2147483648 elements"),
        (OnGpu(np.broadcast_to(np.zeros((1, 4)), (4, 4))), "neither its rows nor its columns are contiguous"),
        (OnGpu(np.zeros((4, 4), ">f8")), "A holds >f8 and dgemm multiplies float64"),
        (OnGpu(np.zeros((4, 4), np.complex128)), "A holds <c16 and dgemm multiplies float64"),
        (OnGpu(np.zeros((2, 4, 4))), "A has 3 dimensions"),
    ],
)
def test_what_is_no_matrix_on_a_gpu_is_refused(gpu: Gpu, array: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        matrix(array, "A", written=True)


def test_the_longest_leading_dimension_is_taken(gpu: Gpu) -> None:
    assert matrix(OnGpu(np.zeros((2, 64)), {**FAR, "strides": (2**34 - 8, 8)}), "A").ld == 2**31 - 1


class Tensor:
    """As much of torch.Tensor as a matrix is found by."""

    def __init__(self, array: np.ndarray, **more: Any) -> None:
        self.array = array
        self.requires_grad, self.is_cuda, self.layout = False, True, "strided"
        self.shape, self.dtype, self.device = array.shape, "float64", SimpleNamespace(index=3)
        vars(self).update(more)

    def stride(self) -> tuple[int, ...]:
        return tuple(stride // 8 for stride in self.array.strides)

    def get_device(self) -> int:
        return 3

    def element_size(self) -> int:
        return 8

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def is_neg(self) -> bool:
        return getattr(self, "negated", False)

    def new_empty(self, shape: tuple[int, int]) -> Tensor:
        return type(self)(np.zeros(shape))


class Mine(Tensor):
    """A subclass of another module than PyTorch's."""


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("torch")
    stream = SimpleNamespace(cuda_stream=11)
    cuda = SimpleNamespace(current_stream=lambda device: stream, is_initialized=lambda: True)
    vars(made).update(
        Tensor=Tensor, device=lambda *which: which, strided="strided", float64="float64", float32="float32", cuda=cuda
    )
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


@pytest.mark.parametrize("kind", [Tensor, Mine])
def test_tensors_and_those_of_a_subclass_are_pytorchs(gpu: Gpu, torch: ModuleType, kind: Any) -> None:
    """Its stream, its GPU, and its type for a new C."""
    tensor = kind(np.zeros((6, 4)).T)
    found = matrix(tensor, "A")
    assert (found.by_columns, found.ld, found.device, library_of(tensor)) == (True, 4, 3, "torch")
    assert calls.stream_of(tensor) == 11 and type(calls.empty(tensor, found, found.transposed)) is kind


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
def test_a_call_like_one_before_gets_its_own_operands(
    gpu: Gpu, torch: ModuleType, turned: tuple[bool, bool], by_columns: bool
) -> None:
    """As arrays that say no more than their interface are found, which nothing is kept of."""

    def made(rows: int, columns: int, turn: bool) -> np.ndarray:
        return np.zeros((columns, rows)).T if turn else np.zeros((rows, columns))

    for _ in range(2):
        arrays = made(*((4, 3) if turned[0] else (3, 4)), False), made(*((6, 4) if turned[1] else (4, 6)), True)
        for c in (None, made(3, 6, by_columns)):
            found = calls.operands(*map(Tensor, arrays), None if c is None else Tensor(c), turned)
            wanted = calls.operands(*map(OnGpu, arrays), None if c is None else OnGpu(c), turned)
            for ours, theirs in zip(found, wanted, strict=True):
                if ours is None or theirs is None:
                    assert ours is theirs
                else:
                    names = ("lines", "rows", "columns", "by_columns")
                    assert [getattr(ours, name) for name in names] == [getattr(theirs, name) for name in names]
                    assert ours.owner.array is theirs.owner.array and ours.device == 3


@pytest.mark.parametrize(
    ("changed", "more", "message"),
    [
        ("a", {"requires_grad": True}, "A requires a gradient"),
        ("b", {"is_cuda": False}, "B is on the host"),
        ("a", {"negated": True}, r"give it A\.resolve_neg"),
        ("b", {"data_ptr": lambda: 0}, "B has no memory of its own"),
        ("a", {"data_ptr": lambda: 2**20 + 4}, "A begins at an address that is no multiple of 8"),
        ("c", {"shape": (6, 4)}, "C is 6 x 4; pass one of 4 x 4"),
        ("c", {"data_ptr": lambda: 2**30 - 8}, "C shares memory with A"),
        ("c", {"data_ptr": lambda: 2**31 + 120}, "C shares memory with B"),
    ],
)
def test_a_call_like_one_before_is_checked_again(
    gpu: Gpu, torch: ModuleType, monkeypatch: pytest.MonkeyPatch, changed: str, more: Any, message: str
) -> None:
    places = {"a": 2**30, "b": 2**31, "c": 2**32}
    made = {name: Tensor(np.zeros((4, 4)), data_ptr=lambda at=at: at) for name, at in places.items()}
    for _ in range(2):
        calls.operands(made["a"], made["b"], made["c"], (False, False))
    vars(made[changed]).update(more)
    with pytest.raises(UserError, match=message):
        calls.operands(made["a"], made["b"], made["c"], (False, False))


def test_a_process_that_was_forked_is_refused_before_memory_is_taken(
    gpu: Gpu, torch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the parent has made the same call."""

    def forked() -> None:
        raise UserError("forked")

    pair = Tensor(np.zeros((4, 4))), Tensor(np.zeros((4, 4)))
    calls.operands(*pair, None, (False, False))
    monkeypatch.setattr(driver, "cuda", forked)
    with pytest.raises(UserError, match="forked"):
        calls.operands(*pair, None, (False, False))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"requires_grad": True}, r"A requires a gradient.*A\.detach"),
        ({"is_cuda": False}, "A is on the host"),
        ({"layout": "sparse"}, r"A is stored as sparse; give dgemm A\.to_dense"),
        ({"negated": True}, r"give it A\.resolve_neg"),
        ({"dtype": "torch.bfloat16"}, "A holds torch.bfloat16 and dgemm multiplies float64"),
        ({"data_ptr": lambda: 0}, "A has no memory of its own"),
    ],
)
def test_tensors_that_are_no_matrix_are_refused(gpu: Gpu, torch: ModuleType, more: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        matrix(Tensor(np.zeros((4, 4)), **more), "A")


def test_an_array_that_cannot_be_passed_on_is_refused_in_a_sentence(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a bfloat16 on a GPU."""
    array = SimpleNamespace(__dlpack_device__=lambda: (2, 0))

    def from_dlpack(array: Any) -> None:
        raise BufferError("no such type")

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(from_dlpack=from_dlpack))
    with pytest.raises(UserError, match=r"B cannot be passed on \(no such type\); give dgemm a float64 array"):
        matrix(array, "B")


def test_what_another_library_still_writes_is_waited_for(gpu: Gpu) -> None:
    """CuPy and PyTorch order their own streams; others say on which one an array is written."""
    for given in (None, 7):
        matrix(OnGpu(np.zeros((4, 4)), {"stream": given}), "A")
    assert gpu.log == [("synchronize", None, [7])]


def test_matrices_overlap_where_they_share_a_byte(gpu: Gpu) -> None:
    """Blocks of one array, transposed or not, and of one read in longer rows, against NumPy's exact answer."""
    rng, whole, found = np.random.default_rng(5), np.zeros(2000), [0, 0]
    for _ in range(3000):
        views = []
        for length in rng.choice([7, 16, 20, 25, 111], 2):
            start = rng.integers(50)
            block = whole[start : start + (2000 - start) // length * length].reshape(-1, length)
            (top, bottom), (left, right) = (sorted(rng.choice(size + 1, 2, replace=False)) for size in block.shape)
            part = block[top:bottom, left:right]
            views.append(part.T if rng.random() < 0.5 else part)
        first, second = (matrix(OnGpu(view), "X") for view in views)
        shared = np.shares_memory(*views)
        assert first.overlaps(second) == second.overlaps(first) == shared
        found[shared] += 1
    assert min(found) > 500


@pytest.mark.parametrize("kind", [DOUBLES, SINGLES])
def test_scalars_are_rounded_to_the_kind(kind: Any) -> None:
    for value in (0.1, 2, np.float32(3), 1e-50, float("inf")):
        wanted = float(np.dtype(kind.code).type(value))
        assert calls.real_scalar(value, "alpha", kind) == wanted
    for value in (10**400, "2", 1j, np.ones(2)):
        with pytest.raises(UserError, match=r"alpha is .*pass a real number that a float"):
            calls.real_scalar(value, "alpha", kind)
    if kind is SINGLES:
        with pytest.raises(UserError, match=r"alpha is 1e\+39; pass a real number that a float32 holds"):
            calls.real_scalar(1e39, "alpha", kind)


def test_lack_of_memory_names_the_other_librarys_pool(
    gpu: Gpu, torch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OutOfMemoryError(Exception):
        pass

    def fail(*_: Any, **__: Any) -> None:
        raise OutOfMemoryError

    torch.cuda.memory_reserved, torch.cuda.memory_allocated = lambda: 5, lambda: 4
    sys.modules["cupy"].cuda.alloc = fail
    with pytest.raises(
        UserError, match=r"it needs 3\.0 GiB, which .* free arrays or what PyTorch's cache holds, with t"
    ):
        calls.allocated(OnGpu(np.zeros(1)), 3 * 2**30, 0, "it needs {} GiB")
    torch.cuda.memory_reserved = lambda: 4
    with pytest.raises(UserError, match="free arrays, or pass workspace= with fewer bytes"):
        calls.allocated(OnGpu(np.zeros(1)), 3 * 2**30, 0, "it needs {} GiB")
    torch.empty, torch.uint8 = fail, None
    sys.modules["cupy"].get_default_memory_pool = lambda: SimpleNamespace(free_bytes=lambda: 8)
    with pytest.raises(UserError, match=r"free arrays or what CuPy's pool holds, with cupy\.get_default_memory_pool"):
        calls.allocated(Tensor(np.zeros(1)), 3 * 2**30, 0, "it needs {} GiB")
