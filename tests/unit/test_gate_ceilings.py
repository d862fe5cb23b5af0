"""What the loops that measure ceilings leave, as the gate emulates it: against their sources, number by number."""

from __future__ import annotations

import itertools
import json
import struct

import numpy as np
import pytest

from gemmrepro import registry
from gemmrepro.core.paths import RECORDINGS
from gemmrepro.gates import ceilings
from gemmrepro.gates.ceilings import _LOOPS


@pytest.mark.parametrize("name", ["ffma", "ffma_rrr"])
def test_the_cases_are_those_of_the_recorded_verdicts(name: str) -> None:
    kernel = registry.kernel(f"ceilings.{name}")
    loop = lambda a, b, iterations: ceilings._Trace(0.0, False, False)  # noqa: E731
    tried = [(c.alpha, c.beta, c.inputs, c.seed) for c, _ in _LOOPS[kernel.code.entry](kernel, loop)]
    recorded = json.loads((RECORDINGS / "h200/ceilings/gates.json").read_text())[kernel.id]["toolkits"]
    for toolkit in recorded.values():
        assert tried == [(case["alpha"], case["beta"], case["inputs"], case["seed"]) for case in toolkit["cases"]]


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


def test_the_tensor_core_loop_returns_to_zero_after_four_iterations() -> None:
    sums = [ceilings.wgmma_sum(count, 1.0, 1.0) for count in range(1, 6)]
    assert abs(sums[3]) < 1e-9 and sums[4] == pytest.approx(sums[0])
    assert min(abs(one - other) for one, other in itertools.pairwise(sums)) > 50, "a tile more or less shows"
    assert ceilings.wgmma_sum(2, 0.5, 2.0) == pytest.approx(sums[1])


def test_an_outer_product_that_returns_leaves_what_it_began_with() -> None:
    x, y = 2.0 * (1.0 + 0.03 * 5 + 0.11 * np.arange(8)), 3.0 * (0.5 - 0.02 * 5 + 0.07 * np.arange(16))
    assert ceilings.outer_sums(2.0, 3.0, 8, 16, 128)[5] == pytest.approx((x[:, None] - y).sum())


def test_shears_of_a_rotation_stay_bounded_and_others_do_not() -> None:
    assert np.abs(ceilings.shears(0.75, -0.75, 96, 8, 128)).max() < 1e6
    assert np.abs(ceilings.shears(1.0, 1.0, 32, 8, 128)).max() > 1e6
