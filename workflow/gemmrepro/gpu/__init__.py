"""Runs code on the GPU, and calls the libraries that kernels are compared with.

An open `device`, claimed by `slots`; fat binaries (`loaded`), launched one by one or as `graphs`; cuBLAS through
nvmath-python (`cublas`) and all `baselines`; L2 persistence (`l2_window`); hardware counters (`cupti`, `ranges`);
`own`.
"""
