"""Writes the product into another array."""

import cupy

KERNEL = {"sizes": [512]}


def bind(a, b, c, stream):
    other = cupy.empty_like(c)
    return lambda: cupy.matmul(a, b, out=other)
