"""gemmrepro: measure what published GEMM articles claim, on the reader's GPU.

The packages follow the pipeline: `host` (images), `build`, `gates`, `measure` and `experiments`, `judge`, `paper`.
README.md has the picture, docs/adding.md the layers and what kernels/ may import.
"""

__version__ = "0.1.0"
