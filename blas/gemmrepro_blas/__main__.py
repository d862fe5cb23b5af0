"""python -m gemmrepro_blas: what is installed, a self-test of ten seconds, and speed beside cuBLAS's own products."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import gemmrepro_blas
from gemmrepro_blas import UserError, driver, library, single, table

U64, U32 = 2.0**-53, 2.0**-24
TESTED = (
    *(
        ("dgemm", (3072, 3328, 2304)),
        ("dgemm", (1700, 2100, 7000)),
        ("dgemm", (700, 1030, 600)),
        ("dgemm", (130, 5000, 33)),
    ),
    *((name, (2084, 2940, 1201)) for name in ("element", "products", "element, tf32", "norm", "norm, 7", "tf32")),
    ("element", (700, 1030, 601)),
)
"""What the self-test multiplies: by residues, by cuBLAS, in each accuracy of sgemm, and by cuBLAS in one."""
ALLOWED = {"tf32": 2.0**-9, "norm, 7": 2.0**-18}
"""Errors over |A||B| that sgemm's looser accuracies may have on numbers of like size; the others have 2^-21."""
SPEEDS = ((2048, 2048, 2048), (4096, 4096, 4096), (4112, 4104, 4128), (8192, 8192, 8192), (65536, 1024, 1024))


def described() -> str:
    """Version, binaries with their build keys, GPU, driver and cuBLAS."""
    packed = table.table()
    lines = [f"gemmrepro_blas {packed.get('version', '(of the checkout)')}"]
    lines += [
        f"  {name}: build key {built['build_key']}, CUDA {built['toolkit']}"
        for name, built in packed.get("built", {}).items()
    ]
    with driver.current(0):
        supported = ".".join(map(str, driver.version()))
        lines.append(
            f"  GPU 0: {driver.multiprocessors(0)} SMs of compute capability 9.0, driver for CUDA {supported}, "
            f"cuBLAS {library.version(0)}"
        )
    return "\n".join(lines)


class Arrays:
    """Arrays on GPU 0 of PyTorch or CuPy, whichever is installed."""

    def __init__(self) -> None:
        try:
            import torch

            self._to: Callable[[Any], Any] = lambda x: torch.as_tensor(x, device="cuda")
            self._from: Callable[[Any], Any] = lambda x: x.cpu().numpy()
            self.name = f"PyTorch {torch.__version__}"
        except ImportError:
            try:
                import cupy
            except ImportError:
                raise UserError("neither PyTorch nor CuPy is installed; install one for the CUDA at hand.") from None
            self._to, self._from, self.name = cupy.asarray, cupy.asnumpy, f"CuPy {cupy.__version__}"

    def on_gpu(self, x: np.ndarray) -> Any:
        return self._to(x)

    def on_host(self, x: Any) -> np.ndarray:
        return np.asarray(self._from(x))


def tested(arrays: Arrays, name: str, shape: tuple[int, int, int], seed: int) -> tuple[float, str]:
    """(largest sampled error over its bound, how it was multiplied) of one product with alpha, beta and a C in rows."""
    (m, n, k), rng = shape, np.random.default_rng(seed)
    dtype = np.float64 if name == "dgemm" else np.float32
    a, b, c0 = (rng.standard_normal(size).astype(dtype) for size in ((m, k), (k, n), (m, n)))
    rows, columns = rng.integers(0, m, 24), rng.integers(0, n, 24)
    on_a, on_b, c = (arrays.on_gpu(x) for x in (a, np.ascontiguousarray(b.T), c0))
    alpha, beta, how = -0.75, 0.5, "tensor cores"
    if name == "dgemm":
        _, details = gemmrepro_blas.dgemm(on_a, on_b.T, c, alpha=alpha, beta=beta, details=True)
        how = f"{details.moduli} moduli" if details.moduli else "cuBLAS"
        allowed = max(details.gamma, k * U64 / (1 - k * U64)) + 3 * U64
    else:
        gemmrepro_blas.sgemm(on_a, on_b.T, c, alpha=alpha, beta=beta, accuracy=name)
        allowed = ALLOWED.get(name, 2.0**-21)
        if not single.pays(table.table()["sgemm"][name], table.Shape(*shape)):
            how = "cuBLAS"
    wide: Any = np.longdouble if name == "dgemm" else np.float64
    here = np.ix_(rows, columns)
    left, right, start = (np.asarray(x, wide) for x in (a[rows], b[:, columns], c0[here]))
    exact = alpha * (left @ right) + beta * start
    scale = abs(alpha) * (abs(left) @ abs(right)) + abs(beta * start)
    error = abs(arrays.on_host(c)[here] - exact)
    return float((error / (allowed * scale)).max()), how


def in_turn(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """Seconds of each call: medians of batches that take turns, of 15 ms or one call."""
    for call in calls:
        call()
    counts = [max(1, int(0.015 / _batch(call, 1))) for call in calls]
    times = [[_batch(call, count) for call, count in zip(calls, counts, strict=True)] for _ in range(5)]
    return [statistics.median(each) for each in zip(*times, strict=True)]


def _batch(call: Callable[[], Any], count: int) -> float:
    """Seconds of a call, of `count` one after the other on an idle GPU."""
    driver.synchronize(0)
    start = time.perf_counter()
    for _ in range(count):
        call()
    driver.synchronize(0)
    return (time.perf_counter() - start) / count


def speeds(arrays: Arrays, shape: tuple[int, int, int]) -> str:
    """Lines of a table: TFLOP/s of the library's product and of ours."""
    (m, n, k), rng = shape, np.random.default_rng(1)
    a, b = (arrays.on_gpu(rng.standard_normal(size)) for size in ((m, k), (k, n)))
    c, d = (arrays.on_gpu(rng.standard_normal(size).astype(np.float32)) for size in ((m, k), (k, n)))
    element, norm = (partial(gemmrepro_blas.sgemm, c, d, accuracy=accuracy) for accuracy in ("element", "norm"))
    _, how = gemmrepro_blas.dgemm(a, b, details=True)
    ways: list[tuple[str, Callable[[], Any], Callable[[], Any]]] = [
        (
            f"dgemm ({how.moduli} moduli)" if how.moduli else "dgemm (cuBLAS)",
            lambda: a @ b,
            partial(gemmrepro_blas.dgemm, a, b),
        ),
        ("sgemm 'element'", lambda: c @ d, element),
        ("sgemm 'norm'", lambda: c @ d, norm),
    ]
    lines = []
    for name, *calls in ways:
        theirs, ours = (2e-12 * m * n * k / seconds for seconds in in_turn(calls))
        lines.append(f"  {m:6} x{n:6} x{k:6}  {name:19} {theirs:7.1f} {ours:7.1f} {ours / theirs:6.2f}")
    return "\n".join(lines)


def _shape(text: str) -> tuple[int, int, int]:
    m, n, k = map(int, text.split("x"))
    return m, n, k


def main() -> int:
    """The exit status: 1 if something cannot run, or a product leaves its bound."""
    parser = argparse.ArgumentParser(prog="python -m gemmrepro_blas", description=__doc__)
    parser.add_argument("--no-speed", action="store_true", help="leave out the table of speeds")
    parser.add_argument("--shapes", nargs="+", type=_shape, default=SPEEDS, metavar="MxNxK", help="of that table")
    arguments = parser.parse_args()
    try:
        print(described())
        arrays = Arrays()
        start, failed = time.perf_counter(), 0
        print(f"Self-test, arrays of {arrays.name}: error over bound")
        for seed, (name, shape) in enumerate(TESTED):
            ratio, how = tested(arrays, name, shape, seed)
            failed += not ratio <= 1
            called = name if name == "dgemm" else f"sgemm '{name}'"
            print(f"  {called:21} {' x '.join(map(str, shape)):18} {ratio:.3g} ({how})")
        print(f"  {'FAILED' if failed else 'passed'} in {time.perf_counter() - start:.1f} s", flush=True)
        if not arguments.no_speed:
            print("Speed, TFLOP/s: cuBLAS through the library, ours, ratio")
            for shape in arguments.shapes:
                with driver.current(0):
                    print(speeds(arrays, shape), flush=True)
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
