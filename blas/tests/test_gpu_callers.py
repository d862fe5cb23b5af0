"""What callers do around a product on a Hopper GPU: settings of cuBLAS, threads, forks, memory, long strides."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import gemmrepro_blas
from gemmrepro_blas import UserError, certified, library, single
from gemmrepro_blas.table import table

pytestmark = pytest.mark.gpu

U = 2.0**-53
EMULATED = {
    "CUBLAS_EMULATE_DOUBLE_PRECISION": "1",
    "CUBLAS_EMULATION_STRATEGY": "eager",
    "CUBLAS_FIXEDPOINT_EMULATION_MANTISSA_BIT_COUNT": "7",
    "CUBLAS_EMULATE_SINGLE_PRECISION": "1",
    "NVIDIA_TF32_OVERRIDE": "1",
}


def over_bound(c, a, b) -> float:
    """The largest error of eight rows of C over k u |A||B|, against sums in long double."""
    wide = [x[:8].get().astype(np.longdouble) if x is a else x.get().astype(np.longdouble) for x in (a, b)]
    scale = abs(wide[0]) @ abs(wide[1])
    return float((abs(c[:8].get() - wide[0] @ wide[1]) / scale).max() / (a.shape[1] * U))


PROOF = """
import sys
import cupy as cp, gemmrepro_blas as blas
from gemmrepro_blas import library
from test_gpu_callers import over_bound
a, b = (cp.random.RandomState(s).standard_normal((1024, 1024)) for s in (1, 2))
if len(sys.argv) > 1:
    import torch
c, how = blas.dgemm(a, b, details=True)
native = a @ b
f, g = a[:512, :512].astype("f"), b[:512, :512].astype("f")
single = over_bound(blas.sgemm(f, g).astype("d"), f.astype("d"), g.astype("d")) * 2.0**-29
print(how.moduli, over_bound(c, a, b), over_bound(native, a, b), single)
"""


@pytest.mark.parametrize("loaded", ["", "torch"])
@pytest.mark.parametrize("variables", [{}, EMULATED])
def test_the_bound_holds_whatever_the_environment_says(cp, variables, loaded) -> None:
    """cuBLAS reads the variables once in a process. With them its default compute type leaves the bound far behind."""
    paths = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    asked = [sys.executable, "-c", PROOF, *([loaded] if loaded else [])]
    environment = {**os.environ, **variables, "PYTHONPATH": paths}
    found = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True)
    moduli, ours, default, single = found.stdout.split()
    print(variables, "ours", ours, "cuBLAS's default", default, "sgemm", single)
    assert int(moduli) == 0 and float(ours) < 1 and float(single) < 0.1
    assert (float(default) > 1e6) == bool(variables)


SETTINGS = (
    *(("MathMode", 8), ("MathMode", 2), ("EmulationStrategy", 2), ("EmulationSpecialValuesSupport", 0)),
    *(("FixedPointEmulationMantissaControl", 1), ("FixedPointEmulationMaxMantissaBitCount", 7)),
    *(("FixedPointEmulationMantissaBitOffset", -40), ("AtomicsMode", 1), ("PointerMode_v2", 1), ("SmCountTarget", 8)),
)
"""What cuBLAS 13.1 lets a caller set of a handle that changes its arithmetic, its order or its arguments."""


@pytest.mark.parametrize("whose", ["cupy", "torch"])
def test_settings_of_the_librarys_handle_change_nothing_and_stay(cp, whose) -> None:
    a, b = (cp.random.RandomState(seed).standard_normal((1000, 1000)) for seed in (1, 2))
    wanted = gemmrepro_blas.dgemm(a, b)
    code = library._cublas()
    if whose == "torch":
        torch = pytest.importorskip("torch")
        handle = torch.cuda.current_blas_handle()
    else:
        handle = cp.cuda.get_cublas_handle()
    for name, value in SETTINGS:
        write, read = getattr(code, f"cublasSet{name}"), getattr(code, f"cublasGet{name}")
        before, now = ctypes.c_int(), ctypes.c_int()
        read(ctypes.c_void_p(handle), ctypes.byref(before))
        write(ctypes.c_void_p(handle), value)
        read(ctypes.c_void_p(handle), ctypes.byref(now))
        got = gemmrepro_blas.dgemm(a, b)
        after = ctypes.c_int()
        read(ctypes.c_void_p(handle), ctypes.byref(after))
        write(ctypes.c_void_p(handle), before.value)
        assert (got.view(np.int64) == wanted.view(np.int64)).all(), name
        assert after.value == now.value, name
    assert over_bound(wanted, a, b) < 1


def test_a_workspace_of_the_callers_handle_is_not_touched(cp) -> None:
    handle, own = cp.cuda.get_cublas_handle(), cp.full(2**20, 7, cp.uint8)
    code = library._cublas()
    assert (
        code.cublasSetWorkspace_v2(ctypes.c_void_p(handle), ctypes.c_void_p(own.data.ptr), ctypes.c_size_t(2**20)) == 0
    )
    a = cp.random.RandomState(1).standard_normal((777, 777))
    gemmrepro_blas.dgemm(a, a)
    assert (own == 7).all()
    stream = cp.cuda.get_current_stream().ptr
    cp.cuda.cublas.setStream(handle, stream)  # which gives the handle its own workspace back


def test_tensors_of_a_subclass_stay_tensors(cp) -> None:
    torch = pytest.importorskip("torch")

    class Mine(torch.Tensor):
        pass

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        a, b = (torch.ones(2048, 2048, device="cuda", dtype=torch.float64).as_subclass(Mine) for _ in "ab")
        c = gemmrepro_blas.dgemm(a, b)
        again = gemmrepro_blas.sgemm(a.float(), b.float())
    stream.synchronize()
    assert isinstance(c, torch.Tensor) and bool((c == 2048).all())
    assert isinstance(again, torch.Tensor) and bool((again == 2048).all())


@pytest.mark.parametrize("n", [2048, 4096])
def test_threads_may_share_a_prepared_factor(cp, monkeypatch, n) -> None:
    """The second finds what the first is still writing; then the factor goes while other streams still read it."""
    monkeypatch.setattr(certified, "pays", lambda *shape: True)
    rng = cp.random.RandomState(3)
    a, b = rng.standard_normal((n, n)), rng.standard_normal((n, n))
    wanted = gemmrepro_blas.dgemm(a, b)
    cp.cuda.Device().synchronize()
    for _ in range(10):
        prepared, out, barrier = gemmrepro_blas.prepare(b), [None] * 3, threading.Barrier(3)

        def work(i, prepared=prepared, out=out, barrier=barrier) -> None:
            with cp.cuda.Stream(non_blocking=True) as stream:
                barrier.wait()
                out[i] = gemmrepro_blas.dgemm(a, prepared)
                stream.synchronize()

        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        del prepared
        assert all((one.view(np.int64) == wanted.view(np.int64)).all() for one in out)


def test_leading_dimensions_up_to_two_to_the_31(cp) -> None:
    """Rows 17 GB apart are right; further apart they are refused by their distance."""
    if cp.cuda.Device().mem_info[0] < 20 * 2**30:
        pytest.skip("takes 17 GB")
    held = cp.empty(2**31 + 4096)
    for ld in (2**31 - 1, 2**31):
        x = cp.ndarray((2, 64), cp.float64, held.data, strides=(8 * ld, 8))
        x[:] = 1
        if ld < 2**31:
            assert (gemmrepro_blas.dgemm(x, cp.ones((64, 3))) == 64).all()
        else:
            with pytest.raises(UserError, match="rows of A lie 2147483648 elements apart"):
                gemmrepro_blas.dgemm(x, cp.ones((64, 3)))
    del held, x
    cp.get_default_memory_pool().free_all_blocks()


def in_child(queue) -> None:
    try:
        gemmrepro_blas.dgemm(INHERITED, INHERITED)
    except UserError as error:
        queue.put(str(error))
    else:
        queue.put("no refusal")


INHERITED = None


def test_a_forked_process_is_refused_in_a_sentence(cp) -> None:
    global INHERITED
    INHERITED = cp.ones((64, 64))
    gemmrepro_blas.dgemm(INHERITED, INHERITED)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=in_child, args=(queue,))
    child.start()
    assert "forked from one that had used the GPU" in queue.get(timeout=30)
    child.join()


def test_memory_that_pytorch_keeps_is_named(cp) -> None:
    torch = pytest.importorskip("torch")
    cp.get_default_memory_pool().free_all_blocks()
    torch.cuda.empty_cache()
    a = cp.random.RandomState(1).standard_normal((6144, 6144))
    free = torch.cuda.mem_get_info()[0]
    c = cp.empty_like(a)
    kept = torch.empty(free - 2**30, dtype=torch.uint8, device="cuda")
    del kept
    try:
        with pytest.raises(UserError, match=r"which GPU 0 does not have left; .*torch\.cuda\.empty_cache\(\)"):
            gemmrepro_blas.dgemm(a, a, c)
    finally:
        torch.cuda.empty_cache()
    gemmrepro_blas.dgemm(a, a)


@pytest.mark.parametrize("law", ["normal", "one row of tiles in double", "spread"])
@pytest.mark.parametrize("held", [False, True])
def test_blocks_have_the_bits_of_the_whole(cp, monkeypatch, law, held) -> None:
    """Within the bytes that are granted, as CuPy's pool counts them."""
    monkeypatch.setattr(certified, "pays", lambda *shape: True)
    m, n, k, rng = 3000, 2500, 2300, cp.random.RandomState(4)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    if law == "spread":
        a *= cp.exp(2 * rng.standard_normal((m, k)))
    elif law != "normal":
        a[130:140] *= cp.exp(12 * rng.standard_normal((10, k)))
    right, c0 = gemmrepro_blas.prepare(b) if held else b, rng.standard_normal((m, n))
    wanted, how = gemmrepro_blas.dgemm(a, right, c0.copy(), beta=0.5, details=True)
    print(law, how)
    least = 2 * (m * k + k * n)
    for granted in (2**27, 2**26 if not held else 2**27, least):
        if granted == least and held:
            continue
        got, same = gemmrepro_blas.dgemm(a, right, c0.copy(), beta=0.5, details=True, workspace=granted)
        assert same == how and (got.view(np.int64) == wanted.view(np.int64)).all()
    with pytest.raises(UserError, match="workspace is 1000 bytes and deciding"):
        gemmrepro_blas.dgemm(a, right, workspace=1000)


@pytest.mark.parametrize("accuracy", table()["sgemm"])
def test_sgemm_in_blocks_has_the_bits_of_the_whole(cp, monkeypatch, accuracy) -> None:
    monkeypatch.setattr(single, "pays", lambda *_: True)
    m, n, k, rng = 1000, 1500, 900, cp.random.RandomState(5)
    a, b, c0 = (rng.standard_normal(size).astype(cp.float32) for size in ((m, k), (k, n), (m, n)))
    wanted = gemmrepro_blas.sgemm(a, b, c0.copy(), beta=0.5, accuracy=accuracy)
    for granted in (2**23, 6 * 2**20):
        got = gemmrepro_blas.sgemm(a, b, c0.copy(), beta=0.5, accuracy=accuracy, workspace=granted)
        assert (got.view(np.int32) == wanted.view(np.int32)).all()


@pytest.mark.parametrize("accuracy", ["norm", "norm, 7", "element"])
@pytest.mark.parametrize("turned", [False, True])
def test_sgemm_takes_more_rows_than_a_grid_is_long(cp, monkeypatch, accuracy, turned) -> None:
    monkeypatch.setattr(single, "pays", lambda *_: True)
    m, k, n = 8_388_481, 64, 8
    a = cp.random.standard_normal((m, k), dtype=cp.float32)
    b = cp.random.standard_normal((k, n), dtype=cp.float32)
    c = gemmrepro_blas.sgemm(b.T, a.T, accuracy=accuracy).T if turned else gemmrepro_blas.sgemm(a, b, accuracy=accuracy)
    assert float(cp.abs(c - a @ b).max()) < 1e-3


@pytest.mark.parametrize("accuracy", table()["sgemm"])
def test_an_alpha_that_rounds_to_nothing_reads_nothing(cp, accuracy) -> None:
    a, b = cp.full((130, 40), cp.inf, cp.float32), cp.ones((40, 70), cp.float32)
    c = cp.ones((130, 70), cp.float32)
    assert (gemmrepro_blas.sgemm(a, b, c, alpha=1e-50, beta=2.0, accuracy=accuracy) == 2).all()
    with pytest.raises(UserError, match="a real number that a float32 holds"):
        gemmrepro_blas.sgemm(a, b, alpha=1e39, accuracy=accuracy)
