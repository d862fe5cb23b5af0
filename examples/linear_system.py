"""Solve A x = b by blocked LU with partial pivoting, its updates made by gemmrepro.dgemm and by cuBLAS's DGEMM, timed.

    PYTHONPATH=workflow python examples/linear_system.py --size 16384 --panel 2048

Needs a Hopper GPU, PyTorch, CuPy, cuda-core, and the binary results/build/cuda13/crt.certified.fatbin. For each way it
prints the seconds of the factorization (the median of --repeats, the first left out) and the scaled residual

    ||A x - b|| / (u (||A|| ||x|| + ||b||) n)    in the maximum norm,

which HPL requires to be below 16.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch

import gemmrepro

Update = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]
"""C <- C - A B, in place."""


def by_cublas(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    c.addmm_(a, b, alpha=-1.0)


def by_remainders(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    gemmrepro.dgemm(a, b, c, alpha=-1.0, beta=1.0)


def factorize(a: torch.Tensor, panel: int, update: Update) -> torch.Tensor:
    """Replace `a` by L and U and return the row order: row i of L U is row order[i] of A."""
    n = len(a)
    order = torch.arange(n, device=a.device)
    for start in range(0, n, panel):
        stop = min(start + panel, n)
        lu, pivots = torch.linalg.lu_factor(a[start:, start:stop])
        rows = _order(pivots, n - start)
        a[start:] = a[start:][rows]
        order[start:] = order[start:][rows]
        a[start:, start:stop] = lu
        if stop < n:
            right = a[start:stop, stop:]
            lower = a[start:stop, start:stop]
            right.copy_(torch.linalg.solve_triangular(lower, right, upper=False, unitriangular=True))
            update(a[stop:, stop:], a[stop:, start:stop], right)
    return order


def _order(pivots: torch.Tensor, rows: int) -> torch.Tensor:
    """The row order that LAPACK's interchanges (from 1) amount to."""
    order = list(range(rows))
    for i, pivot in enumerate(pivots.tolist()):
        order[i], order[pivot - 1] = order[pivot - 1], order[i]
    return torch.tensor(order, device=pivots.device)


def solve(lu: torch.Tensor, order: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """x of A x = b from the factors of A."""
    y = torch.linalg.solve_triangular(lu, b[order][:, None], upper=False, unitriangular=True)
    return torch.linalg.solve_triangular(lu, y, upper=True)[:, 0]


def residual(a: torch.Tensor, x: torch.Tensor, b: torch.Tensor) -> float:
    """HPL's scaled residual."""
    error = (a @ x - b).abs().max()
    scale = a.abs().sum(dim=1).max() * x.abs().max() + b.abs().max()
    return float(error / (torch.finfo(torch.float64).eps / 2 * scale * len(b)))


def measure(a: torch.Tensor, b: torch.Tensor, panel: int, update: Update, repeats: int) -> tuple[float, float]:
    """(seconds of a factorization, scaled residual of the solution)."""
    seconds = []
    for _ in range(repeats + 1):
        lu = a.clone()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        order = factorize(lu, panel, update)
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
    for name, update in (("cuBLAS DGEMM", by_cublas), ("gemmrepro.dgemm", by_remainders)):
        seconds, error = measure(a, b, arguments.panel, update, arguments.repeats)
        rate = 2 / 3 * n**3 / seconds / 1e12
        print(f"{name:16} n = {n}: {seconds:.3f} s, {rate:.1f} TFLOP/s of 2/3 n^3, scaled residual {error:.2e}")


if __name__ == "__main__":
    main()
