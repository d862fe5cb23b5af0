"""What was expected of a kernel is read from its source."""

from gemmrepro import registry
from gemmrepro.paper.kernel import prediction

CUDA = """// Level H2.
//
// New:        tiles.
// Expected:   half of the loads,
//             1.5 times as fast.
// Takes:      any size.

// Expected:   not this one.
"""


def test_the_paragraph_ends_with_the_next_label():
    assert prediction(CUDA) == "half of the loads, 1.5 times as fast."
    assert prediction("// Level L1.\n\n__global__ void f() {}\n") == ""


def test_every_rung_that_is_told_has_one():
    """In its source, or, where that is recorded as it is, in the kernel's record."""
    rungs = [kernel for family in registry.family_names() for kernel in registry.kernels(family)]
    told = [kernel for kernel in rungs if kernel.story.evidence]
    lacking = [
        kernel.id for kernel in told if not (kernel.story.expected or prediction(kernel.source_path.read_text()))
    ]
    assert told and lacking == []
