"""gemmrepro_blas.sgemm without a GPU: what it takes, and what it launches, in which order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from blas_fakes import Gpu, OnGpu

import gemmrepro_blas
from gemmrepro import registry
from gemmrepro.operations import Shape as RecordShape
from gemmrepro_blas import UserError, single
from gemmrepro_blas.matrices import SINGLES, matrix
from gemmrepro_blas.table import Shape, table

KERNELS = tuple(table()["sgemm"].values())


def singles(rows: int, columns: int, by_columns: bool = False) -> OnGpu:
    """An array whose elements nobody reads."""
    strides = (4, 4 * rows) if by_columns else (4 * columns, 4)
    return OnGpu(np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (rows, columns), strides))


@pytest.mark.parametrize(
    ("arrays", "more", "message"),
    [
        ((OnGpu(np.zeros((3, 4))), singles(4, 6)), {}, "A holds <f8 and sgemm multiplies float32; convert A"),
        ((singles(3, 4), np.zeros((4, 6), np.float32)), {}, "B is on the host"),
        ((singles(3, 4), [[1.0]]), {}, "B is a list; sgemm takes arrays of CuPy or PyTorch"),
        ((singles(3, 4), singles(5, 6)), {}, "A is 3 x 4 and B is 5 x 6; A needs as many columns"),
        ((singles(3, 4), singles(4, 6)), {"accuracy": "best"}, "accuracy is 'best'; choose one of 'element'"),
        ((singles(3, 4), singles(4, 6)), {"beta": 1.0}, r"beta is 1\.0, but there is no C"),
        ((singles(3, 4), singles(4, 6)), {"workspace": 1.5}, r"workspace is 1\.5; pass a number of bytes"),
        ((singles(3, 4), singles(4, 6)), {"alpha": 1e39}, r"alpha is 1e\+39; pass a real number that a float32 holds"),
        ((singles(3, 4), singles(4, 6)), {"c": OnGpu(np.zeros((3, 6)))}, "C holds <f8 and sgemm multiplies float32"),
        ((singles(3, 4), singles(4, 6)), {"c": singles(6, 3)}, "C is 6 x 3; pass one of 3 x 6"),
        ((singles(3, 4), singles(4, 6)), {"c": singles(3, 6), "binary": "none"}, "the binary none is missing"),
    ],
)
def test_what_does_not_fit_is_refused(gpu: Gpu, arrays: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        gemmrepro_blas.sgemm(*arrays, **more)
    assert gpu.log == []


def test_nothing_is_launched_into_a_capture(gpu: Gpu) -> None:
    gpu.capturing = True
    with pytest.raises(UserError, match="is being captured, and sgemm takes memory from a pool"):
        gemmrepro_blas.sgemm(singles(3, 4), singles(4, 6), OnGpu(np.zeros((3, 6), np.float32)), binary=__file__)


def run(name: str, a: OnGpu, b: OnGpu, c: OnGpu, granted: int | None = None, scalars: Any = (2.0, 3.0)) -> None:
    operands = tuple(matrix(one, "X", kind=SINGLES) for one in (a, b, c))
    single._multiply(single.program(name, single.Path("x"), 0), operands, scalars, None, 7, granted)


@pytest.mark.parametrize("name", KERNELS)
def test_row_major_operands_are_launched_as_the_record_says(gpu: Gpu, name: str) -> None:
    shape, (a, b, c) = RecordShape(700, 1030, 600), (singles(700, 600), singles(600, 1030), singles(700, 1030))
    run(name, singles(700, 600), singles(600, 1030), singles(700, 1030), None, (7.0, 8.0))  # one of the same shape
    gpu.log.clear()
    run(name, a, b, c)
    known: dict[str, Any] = {"m": 700, "n": 1030, "k": 600, "alpha": 2.0, "beta": 3.0}
    known |= {each: one.array.ctypes.data for each, one in (("a", a), ("b", b), ("c", c))}
    steps, found = registry.kernel(name).own_launches, dict[str, int]()
    for (entry, launch, arguments), step in zip(gpu.log, steps, strict=True):
        wanted = step.launch(shape)
        assert entry == step.entry
        assert (launch.grid, launch.block, launch.shared_bytes) == (wanted.grid, wanted.block, wanted.shared_bytes)
        for each, value in zip(map(str, step.arguments), arguments, strict=True):
            address = value.address if each.startswith("map:") else value
            assert address == known.get(each, found.setdefault(each.removeprefix("map:"), address)), (entry, each)


@pytest.mark.parametrize("name", ["sgemm.bf16_x6", "sgemm.remainders"])
@pytest.mark.parametrize("turned", [(False, True), (True, False), (True, True)])
def test_transposed_operands_take_the_launches_of_their_layout(gpu: Gpu, name: str, turned: tuple[bool, bool]) -> None:
    a, b = singles(300, 200, turned[0]), singles(200, 400, turned[1])
    run(name, a, b, singles(300, 400))
    cuts = [call for call in gpu.log if call[0].startswith(("row", "column"))]
    by_rows = [entry.startswith("row") for entry, _, _ in cuts]
    assert by_rows.count(True) == (not turned[0]) + turned[1] and len(cuts) == 4 - by_rows.count(True)
    for _, launch, arguments in cuts:
        assert arguments[0] in (a.array.ctypes.data, b.array.ctypes.data)
        assert arguments[-1] == 200 and arguments[-2] in (300, 400)
        assert launch.grid[0] in (arguments[-2], -(-arguments[-2] // 32))


@pytest.mark.parametrize("scalars", [(0.0, 2.0), (1e-50, 0.0)])
def test_with_alpha_0_nothing_is_multiplied(gpu: Gpu, scalars: tuple[float, float]) -> None:
    """Nor with one that rounds to 0: an Inf in A or B does not matter."""
    a, b, c = singles(3, 4), singles(4, 6), OnGpu(np.zeros((3, 6), np.float32))
    gemmrepro_blas.sgemm(a, b, c, alpha=scalars[0], beta=scalars[1], binary=__file__)
    assert gpu.entries() == ["scale"] and gpu.log[0][2][1:] == [scalars[1], 7]


@pytest.mark.parametrize(
    ("shape", "element", "norm"),
    [
        ((4096, 4096, 4096), True, True),
        ((8192, 8192, 8192), True, True),
        ((3408, 15648, 624), True, True),
        ((512, 512, 512), False, False),
        ((2024, 720, 272), False, False),
        ((496, 3272, 304), False, False),
        ((128, 8192, 8192), False, False),
        ((512, 512, 32768), False, True),
        ((488, 776, 9960), False, True),
        ((40, 80, 12696), False, False),
    ],
)
def test_the_shape_alone_tells_where_sgemm_is_faster(shape: tuple[int, int, int], element: bool, norm: bool) -> None:
    """As they were measured side by side on an H200; each of two kinds of kernel."""
    known = table()["sgemm"]
    assert single.pays(known["element"], Shape(*shape)) is element
    assert single.pays(known["norm"], Shape(*shape)) is norm


@pytest.mark.parametrize("accuracy", table()["sgemm"])
@pytest.mark.parametrize("by_columns", [False, True])
def test_small_products_are_cublass(gpu: Gpu, accuracy: str, by_columns: bool) -> None:
    """Of C^T = B^T A^T where C lies by columns."""
    a, b = singles(3, 4), singles(4, 6)
    c = OnGpu(np.zeros((6, 3), np.float32).T if by_columns else np.zeros((3, 6), np.float32))
    assert gemmrepro_blas.sgemm(a, b, c, alpha=2.0, beta=3.0, accuracy=accuracy, binary=__file__) is c
    ((what, _, (left, right, into, *rest)),) = gpu.log
    first, second = (b, a) if by_columns else (a, b)
    assert what == "cuBLAS" and rest == [(2.0, 3.0), gpu.stream] and not into.by_columns
    assert [one.pointer for one in (left, right, into)] == [each.array.ctypes.data for each in (first, second, c)]


def products(gpu: Gpu, last: str) -> list[list[Any]]:
    """C, its ld, m and n, alpha and beta of each launch that writes C."""
    return [rest[-7 if last == "multiply" else -6 :] for entry, _, rest in gpu.log if entry == last]


@pytest.mark.parametrize(("name", "last"), [("sgemm.bf16_x6", "multiply"), ("sgemm.remainders", "reconstruct")])
def test_blocks_cover_c_and_keep_within_what_is_granted(gpu: Gpu, name: str, last: str) -> None:
    """And stretches of k: beta counts once in each block."""
    longest = registry.kernel(name).accepts.at_most["k"]
    k = longest + 1000 if last == "reconstruct" else 2000
    m, n, granted = 700, 1030, 300_000_000 if last == "reconstruct" else 9_000_000
    run(name, singles(m, k), singles(k, n), c := singles(m, n), granted)
    covered, stretches = np.zeros((m, n), int), -(-k // longest)
    for into, ld, rows, columns, *rest in products(gpu, last):
        first = (into - c.array.ctypes.data) // 4
        assert ld == n and first % n % 192 == 0 and first // n % 128 == 0
        part = covered[first // n : first // n + rows, first % n : first % n + columns]
        assert rest[-1] == (1.0 if part.any() else 3.0)
        part += 1
    assert (covered == stretches).all() and len(products(gpu, last)) > 1
    assert max(gpu.allocated) <= granted
    with pytest.raises(UserError, match="workspace grants 1000 bytes and a block of 128 x 384 x"):
        run(name, singles(m, k), singles(k, n), c, 1000)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("shape", [(8_388_481, 8, 64), (8, 8_388_481, 64), (2**31 - 1, 1, 1), (1, 2**31 - 1, 1)])
def test_no_grid_is_longer_along_y_than_a_gpu_takes(name: str, shape: tuple[int, int, int]) -> None:
    block = single._block(name, Shape(*shape), None)
    for step in single.kernel(name).steps.values():
        grid = step.launch(block, 132).grid
        assert grid[0] < 2**31 and grid[1] < 2**16 and grid[2] == 1
