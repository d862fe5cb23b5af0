"""Ids of histograms, as each law draws them."""

import numpy as np
import pytest

from gemmrepro.operands import LAWS, draw_ids


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
