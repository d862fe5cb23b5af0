"""Kinds of kernels in crt, told by the arrays that they need."""

from gemmrepro import registry

KERNELS = registry.kernels("crt")
CERTIFIED = [kernel for kernel in KERNELS if "worst" in kernel.run.workspace]
"""Those that bound every element, choose how many moduli they take, and leave Inf and NaN as DGEMM does."""
WINOGRAD = [kernel for kernel in KERNELS if "factors_a" in kernel.run.workspace]
"""Those that multiply quarters of A and B seven times."""
