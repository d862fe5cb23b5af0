"""Products that programs may call on a GPU, from the binaries that the build stage made."""

from gemmrepro.blas.certified import Details, dgemm

__all__ = ["Details", "dgemm"]
