"""Operations on vectors: what is drawn for them, what they hold and move, and the steps of their kernels."""

from types import SimpleNamespace

import numpy as np
import pytest

from gemmrepro import registry
from gemmrepro.operands import LAWS, Operands, draw_ids
from gemmrepro.operations import Problem, Shape, counts, nbytes, shape_of

HISTOGRAM = Problem("histogram", "int32", "int32", "vector")
COUNTING = registry.kernel("memory.histogram_global")


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("bins", [1, 256, 5_000_000])
def test_ids_of_every_law_lie_in_the_bins(law, bins):
    ids = draw_ids(law, 50_000, bins, 3, np)
    assert ids.dtype == np.int32 and ids.min() >= 0 and ids.max() < bins
    share = np.bincount(ids, minlength=1).max() / len(ids)
    if law == "constant" or bins == 1:
        assert share == 1
    elif law == "skewed":
        assert share == pytest.approx(np.log(2) / np.log(bins + 1), rel=0.1)
    else:
        assert share < 3 / min(bins, 1000)


def test_what_a_histogram_holds_and_moves():
    shape = shape_of("histogram", 1 << 28)
    assert shape == Shape(1, 1 << 28, 256)
    assert counts(HISTOGRAM, shape) == ((1 << 28,), 257)
    assert nbytes(HISTOGRAM, shape) == 4 * ((1 << 28) + 257)
    ids, output = (SimpleNamespace(data=SimpleNamespace(ptr=address)) for address in (64, 128))
    operands = Operands(HISTOGRAM, Shape(1, 9, 4), (ids,), output)
    found = operands.arguments(COUNTING)
    assert found == (64, 9, 4, 128)
    assert (found[1].dtype, found[2].dtype) == (np.int64, np.int32)
    own = {"own": SimpleNamespace(data=SimpleNamespace(ptr=1000))}
    step = operands.arguments(COUNTING.with_call(arguments=(7, "k", "own", "n=5", "c")), own)
    assert step == (7, 4, 1000, 5, 128)
    assert (step[0].dtype, step[3].dtype) == (np.int32, np.int64)
