"""Runs code on the GPU: an open device (`device`, `lock`), fat binaries (`loaded`), cuBLAS through nvmath-python
(`cublas`), all `baselines`, and L2 persistence (`l2_window`).
"""
