"""What was expected of a kernel is read from its source."""

import re

from gemmrepro import registry
from gemmrepro.paper.kernel import prediction

CUDA = """// Expected:   half of the loads,
//             1.5 times as fast.
// Takes:      any size.

// Expected:   not this one.
"""


def test_the_paragraph_ends_with_the_next_label():
    assert prediction(CUDA) == "half of the loads, 1.5 times as fast."
    assert prediction("// Level L1.\n\n__global__ void f() {}\n") == ""


def test_none_names_a_rung_by_the_number_of_its_file():
    for family in registry.family_names():
        levels = {re.sub("^[A-Z]*", "", kernel.rung) for kernel in registry.kernels(family)}
        for kernel in registry.kernels(family):
            said = re.findall(r"(?:than|over) (\d\.\d)\b|\b(\d\.\d)'s", prediction(kernel.source_path.read_text()))
            assert {one or other for one, other in said} <= levels, kernel.id


def test_every_rung_that_is_told_has_one():
    kernels = [kernel for family in registry.family_names() for kernel in registry.kernels(family)]
    told = [(kernel, prediction(kernel.source_path.read_text())) for kernel in kernels if kernel.story.evidence]
    assert told and [kernel.id for kernel, said in told if not (kernel.story.expected or said)] == []
