"""Solve A x = b by recursive LU with partial pivoting, products by gemmrepro_blas.dgemm and by cuBLAS, timed.

    PYTHONPATH=workflow:blas python blas/linear_system.py --size 16384 --panel 2048

Needs a Hopper GPU, PyTorch, and gemmrepro_blas: its wheel, or the checkout with the binaries built. For either way, and
for cuSOLVER's own getrf, native and with products emulated, it prints the seconds of the factorization (the median of
--repeats, the first left out) and the scaled residual

    ||A x - b|| / (u (||A|| ||x|| + ||b||) n)    in the maximum norm,

which HPL requires to be below 16.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
from collections.abc import Callable
from ctypes import byref, c_int, c_int64, c_size_t, c_void_p

import torch

import gemmrepro_blas

Update = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]
"""C <- C - A B, in place."""
Factorization = Callable[[torch.Tensor], torch.Tensor]
"""Replaces a matrix by its factors and returns the row order."""


def by_cublas(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    c.addmm_(a, b, alpha=-1.0)


def by_remainders(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    gemmrepro_blas.dgemm(a, b, c, alpha=-1.0, beta=1.0)


def factorize(a: torch.Tensor, panel: int, update: Update) -> torch.Tensor:
    """Replace `a` [m,n], n <= m, by L and U and return the row order: row i of L U is row order[i] of A.

    Left half, update of the right half, right half (S. Toledo, 1997): products are as large as they can be. Panels of
    at most `panel` columns are cuSOLVER's.
    """
    n = a.shape[1]
    if n <= panel:
        lu, pivots = torch.linalg.lu_factor(a)
        a.copy_(lu)
        return _order(pivots, len(a))
    half = n // 2
    left, right = a[:, :half], a[:, half:]
    order = factorize(left, panel, update)
    right.copy_(right[order])
    solve_lower(left[:half], right[:half], panel, update)
    update(right[half:], left[half:], right[:half])
    below = factorize(right[half:], panel, update)
    left[half:] = left[half:][below]
    return torch.cat([order[:half], order[half:][below]])


def solve_lower(lower: torch.Tensor, b: torch.Tensor, block: int, update: Update) -> None:
    """Replace `b` by the solution of L X = B, L being what is below the diagonal of `lower` and 1 on it."""
    half = len(lower) // 2
    if len(lower) <= block:
        b.copy_(torch.linalg.solve_triangular(lower, b, upper=False, unitriangular=True))
        return
    solve_lower(lower[:half, :half], b[:half], block, update)
    update(b[half:], lower[half:, :half], b[:half])
    solve_lower(lower[half:, half:], b[half:], block, update)


def _order(pivots: torch.Tensor, rows: int) -> torch.Tensor:
    """The row order that LAPACK's interchanges (from 1) amount to."""
    moved: dict[int, int] = {}
    for i, pivot in enumerate(pivots.tolist()):
        moved[i], moved[pivot - 1] = moved.get(pivot - 1, pivot - 1), moved.get(i, i)
    order = torch.arange(rows, device=pivots.device)
    to, source = torch.tensor([list(moved), list(moved.values())], device=pivots.device)
    order[to] = source
    return order


def solve(lu: torch.Tensor, order: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """x of A x = b from the factors of A."""
    y = torch.linalg.solve_triangular(lu, b[order][:, None], upper=False, unitriangular=True)
    return torch.linalg.solve_triangular(lu, y, upper=True)[:, 0]


def residual(a: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> float:
    """HPL's scaled residual."""
    error = (a @ x - b).abs().max()
    scale = a.abs().sum(dim=1).max() * x.abs().max() + b.abs().max()
    return float(error / (torch.finfo(torch.float64).eps / 2 * scale * len(b)))


class Getrf:
    """cuSOLVER's own factorization of a matrix by columns, on a handle of its own.

    Raises:
        OSError, AttributeError: there is no cuSOLVER, or it cannot emulate doubles: it can since CUDA 13.2.
    """

    def __init__(self, emulated: bool) -> None:
        native, emulated_64, eager, r_64f = 1, 4, 2, 1
        self._code, self._type = ctypes.CDLL("libcusolver.so.12"), r_64f
        self._handle, self._params = c_void_p(), c_void_p()
        self._call("Create", byref(self._handle))
        self._call("CreateParams", byref(self._params))
        if emulated:
            self._call("SetMathMode", self._handle, c_int(emulated_64))
            self._call("SetEmulationStrategy", self._handle, c_int(eager))
        elif hasattr(self._code, "cusolverDnSetMathMode"):
            self._call("SetMathMode", self._handle, c_int(native))

    def _call(self, name: str, *arguments: object) -> None:
        if status := getattr(self._code, f"cusolverDn{name}")(*arguments):
            raise OSError(f"cusolverDn{name} fails with status {status}")

    def __call__(self, a: torch.Tensor) -> torch.Tensor:
        """Replace `a`, whose columns are contiguous, by its factors, and return the row order."""
        n, on_device, on_host = len(a), c_size_t(), c_size_t()
        kind, data, length = c_int(self._type), c_void_p(a.data_ptr()), c_int64(n)
        same = (self._handle, self._params, length, length, kind, data, length)
        self._call("SetStream", self._handle, c_void_p(torch.cuda.current_stream().cuda_stream))
        pivots = torch.empty(n, dtype=torch.int64, device=a.device)
        info = torch.empty(1, dtype=torch.int32, device=a.device)
        self._call("Xgetrf_bufferSize", *same, kind, byref(on_device), byref(on_host))
        work = torch.empty(max(1, on_device.value), dtype=torch.uint8, device=a.device)
        host = ctypes.create_string_buffer(max(1, on_host.value))
        buffers = (c_void_p(work.data_ptr()), on_device, host, on_host, c_void_p(info.data_ptr()))
        self._call("Xgetrf", *same, c_void_p(pivots.data_ptr()), kind, *buffers)
        return _order(pivots, n)


def measure(a: torch.Tensor, b: torch.Tensor, factorization: Factorization, repeats: int) -> tuple[float, float]:
    """(seconds of a factorization, scaled residual of the solution)."""
    seconds = []
    for _ in range(repeats + 1):
        lu = a.T.contiguous().T if isinstance(factorization, Getrf) else a.clone()  # by columns, or by rows
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        order = factorization(lu)
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) / 1000)
    return statistics.median(seconds[1:]), residual(a, solve(lu, order, b), b)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=int, default=16384)
    parser.add_argument("--panel", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    generator = torch.Generator("cuda").manual_seed(1)
    n = arguments.size
    a = torch.rand((n, n), dtype=torch.float64, device="cuda", generator=generator) - 0.5
    b = torch.rand(n, dtype=torch.float64, device="cuda", generator=generator) - 0.5
    torch.backends.cuda.preferred_linalg_library("cusolver")
    torch.linalg.lu_factor(a[:64, :64])  # loads cuSOLVER
    ways: dict[str, Factorization] = {"cuSOLVER's getrf": Getrf(emulated=False)}
    try:
        ways["getrf, emulated"] = Getrf(emulated=True)
    except (OSError, AttributeError) as error:
        version = c_int()
        ctypes.CDLL("libcusolver.so.12").cusolverGetVersion(byref(version))
        print(f"cuSOLVER {version.value} does not emulate doubles, as it does since CUDA 13.2: {error}")
    ways |= {
        "cuBLAS DGEMM": lambda a: factorize(a, arguments.panel, by_cublas),
        "gemmrepro_blas.dgemm": lambda a: factorize(a, arguments.panel, by_remainders),
    }
    for name, factorization in ways.items():
        seconds, error = measure(a, b, factorization, arguments.repeats)
        rate = 2 / 3 * n**3 / seconds / 1e12
        print(f"{name:20} n = {n}: {seconds:.3f} s, {rate:.1f} TFLOP/s of 2/3 n^3, scaled residual {error:.2e}")


if __name__ == "__main__":
    main()
