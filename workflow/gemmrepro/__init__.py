"""gemmrepro: measure what published GEMM articles claim, on the GPU at hand.

One module a stage, run as ``python -m gemmrepro.<stage>``; see README.md for the order.
"""

__version__ = "0.1.0"
