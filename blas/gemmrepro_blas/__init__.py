"""Products that programs may call on a GPU, from the binaries that the build stage made."""

from gemmrepro_blas.certified import Details, Prepared, dgemm, prepare
from gemmrepro_blas.single import sgemm

__all__ = ["Details", "Prepared", "dgemm", "prepare", "sgemm"]
