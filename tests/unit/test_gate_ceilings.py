"""What the loops that measure ceilings leave, as the gate emulates it: against their sources, number by number."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from gemmrepro.gates import ceilings

# Tensor cores: elements are a hash of where they stand.


def hashed(number: int) -> int:
    """`hash` of mma_f16.cu and wgmma.cu."""
    h = number * 0x9E3779B1 & 0xFFFFFFFF
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


def element(place: int) -> float:
    """`scatter` of the sources."""
    parts = [part for number in (2 * place, 2 * place + 1) for part in (hashed(number) & 0xFFFF, hashed(number) >> 16)]
    return (sum(parts) - 2 * 0xFFFF) / 32768.0


def test_elements_are_the_hash_of_their_places():
    assert ceilings.scatter(1000, 40).tolist() == [element(place) for place in range(1000, 1040)]
    assert ceilings.scatter(0, 1).dtype == np.float32


def half(value: float) -> float:
    return struct.unpack("<e", struct.pack("<e", value))[0]


def fragments(iterations: int, a: float, b: float) -> float:
    """What thread 0 of mma_f16.cu adds up: rows 0 and 8 of every 16 and columns 0 and 1 of every 8 of 64 x 64."""
    total = 0.0
    for iteration in range(iterations):
        amplitude = b if iteration % 2 else a
        for row in range(0, 64, 8):
            left = [half(amplitude * element(16 * row + k)) for k in range(16)]
            for column in range(64):
                if column % 8 < 2:
                    right = [half(element(1024 + 16 * column + k)) for k in range(16)]
                    total += sum(x * y for x, y in zip(left, right, strict=True))
    return total


def test_the_sum_of_fragments_is_that_of_the_source():
    for iterations, a, b in ((1, 1.0, 0.5), (2, 1.0, 0.5), (3, -1.0, 0.25)):
        assert ceilings.mma_sum(iterations, a, b) == pytest.approx(fragments(iterations, a, b), abs=1e-9)
