"""What the GPU notes' printed code does, as claims that need no GPU have it calculated."""

from types import SimpleNamespace

import pytest

from gemmrepro.judge.calculation import Inputs, calculation


def calculated(family, name, codes=(), **options):
    return calculation(family, name)(Inputs(codes=codes, options=options)).value


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


def test_a_cast_is_counted_by_the_instructions_that_it_adds():
    one = SimpleNamespace(instructions={"LDG.E": 5, "STG.E": 5}, instruction_total=10)
    other = SimpleNamespace(instructions={"LDG.E": 5, "STG.E": 4, "MOV": 2}, instruction_total=11)
    assert calculated("memory", "instructions_of_the_cast", (one, one)) == 0
    assert calculated("memory", "instructions_of_the_cast", (one, other)) == 2
