"""Products that programs may call on a Hopper GPU, faster than cuBLAS's and with a bound on every element."""

from gemmrepro_blas.certified import Details, Prepared, dgemm, prepare
from gemmrepro_blas.errors import UserError
from gemmrepro_blas.single import sgemm

__all__ = ["Details", "Prepared", "UserError", "dgemm", "prepare", "sgemm"]
