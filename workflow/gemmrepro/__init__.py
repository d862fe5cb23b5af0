"""gemmrepro: measure what published GEMM articles claim, on the reader's GPU.

The packages follow the pipeline: `host` (images), `build`, `gates`, `measure` and `experiments`, `judge`, `paper`.
README.md has the picture, docs/adding.md the layers and what kernels/ may import. `gemmrepro.dgemm` is `blas.dgemm`, a
product in double for the arrays of CuPy and PyTorch, `gemmrepro.prepare` what many products may share, and
`gemmrepro.sgemm` a product in single precision.
"""

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in ("dgemm", "prepare", "sgemm"):  # only who multiplies needs the registry
        from gemmrepro import blas

        return getattr(blas, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
