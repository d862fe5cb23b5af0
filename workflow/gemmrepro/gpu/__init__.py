"""Runs code on the GPU: an open device, loaded kernels, and the libraries that kernels are compared with.

- `device`, `lock`: the GPU, its stream and sensors, and its exclusive or shared use.
- `loaded`: fat binaries, loaded and launched.
- `cublas`, `baselines`, `baseline_kernels`: cuBLAS by nvmath-python, its algorithms, and all baselines.
- `l2_window`: L2 persistence.
"""
