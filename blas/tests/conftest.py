"""Fixtures of the tests of gemmrepro_blas."""

from blas_fakes import gpu

__all__ = ["gpu"]
