"""What the GPU notes' printed code does, as claims that need no GPU have it calculated."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from gemmrepro.judge.calculation import Inputs, calculation


def calculated(family, name, codes=(), **options):
    return calculation(family, name)(Inputs(codes=codes, options=options)).value


def merged(partials: np.ndarray, threads: int) -> np.ndarray:
    """The article's merge, thread by thread; partials: [blocks, bins]."""
    blocks, bins = partials.shape
    flat, found = partials.ravel(), []
    for block in range(bins):
        sums = [sum(int(flat[block + i * threads]) for i in range(t, blocks, threads)) for t in range(threads)]
        stride = threads // 2
        while stride:
            for t in range(stride):
                sums[t] += sums[t + stride]
            stride //= 2
        found.append(sums[0])
    return np.array(found)


@pytest.mark.parametrize(("bins", "right"), [(8, True), (12, False), (16, True)])
def test_the_printed_merge_is_right_for_powers_of_two_alone(bins, right):
    partials = np.random.default_rng(1).integers(1, 1000, (40, bins))
    assert (merged(partials, bins) == partials.sum(axis=0)).all() == right
    assert not (merged(np.pad(partials, ((0, 40), (0, 0))), bins // 2)[:bins] == partials.sum(axis=0)).all()


@pytest.mark.parametrize(
    ("name", "options", "value"),
    [
        ("memory.merged_as_printed", {"bins": 1024}, 11),  # the powers of two up to 1024
        ("memory.copied_as_printed", {"first": 1024, "last": 1 << 30, "doubling": 1}, 21),
        ("memory.copied_as_printed", {"first": 1025, "last": 1032}, 2),
        ("memory.shared_of_an_a100", {}, 164),
        ("pytorch.printed_milliseconds", {"milliseconds": 1}, 1e-6),
    ],
)
def test_what_printed_code_does(name, options, value):
    assert calculated(*name.split("."), **options) == pytest.approx(value)


def test_a_cast_is_counted_by_the_instructions_that_differ():
    one = SimpleNamespace(instructions={"LDG.E": 5, "STG.E": 5}, instruction_total=10)
    other = SimpleNamespace(instructions={"LDG.E": 5, "STG.E": 4, "MOV": 2}, instruction_total=11)
    assert calculated("memory", "instructions_of_the_cast", (one, one)) == 0
    assert calculated("memory", "instructions_of_the_cast", (one, other)) == 3
