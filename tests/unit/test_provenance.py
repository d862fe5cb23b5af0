"""Which row of the report a verdict's evidence names."""

from types import SimpleNamespace

import pandas as pd
import pytest

from gemmrepro.experiments.results import Results
from gemmrepro.measure.rows import Measurements
from gemmrepro.paper.inputs import ShownRows
from gemmrepro.paper.text import experiment_row_anchor, row_anchor

ROWS = [
    ("ladder.naive", "cuda13", 1024, 1.5, "current"),
    ("ladder.naive", "cuda12", 1024, 2.5, "current"),
    ("ladder.naive", "cuda12", 4096, 2.5, "current"),
    ("cublas.sgemm", "library", 4096, 0.5, "current"),
]


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("ladder/speed/ladder.naive/cuda12/1024", 1),
        ("ladder/speed/ladder.naive/cuda12/4096/2.5", 2),
        ("ladder/speed/ladder.naive/cuda12/2.5", 1),  # the first that has the cells
        ("ladder/speed/cublas.sgemm/library/4096", 3),
        ("ladder/heat/ladder.naive/cuda12", None),
        ("ladder/speed/ladder.naive/cuda13/1024", None),  # the report shows one toolkit
    ],
)
def test_a_row_of_an_experiment_is_found_by_kernel_toolkit_and_cells(key, place):
    rows = pd.DataFrame(ROWS, columns=["kernel", "toolkit", "n", "seconds", "status"])
    places = ShownRows({}, {"ladder": {"speed": Results(SimpleNamespace(), rows)}}, {}, set())
    assert places("ladder", key) == (None if place is None else experiment_row_anchor("ladder", "speed", place))


def test_a_row_of_a_sweep_is_found_by_its_key_and_a_baseline_also_by_its_family():
    shape = {"m": 64, "n": 64, "k": 64, "toolkit": "cuda12", "dtype": "fp32", "cache": "warm", "family": "ladder"}
    own, baseline = ({"kernel": kernel} | shape for kernel in ("ladder.naive", "cublas.sgemm"))
    counters = pd.DataFrame(columns=["kernel"])
    measured = Measurements("ladder", pd.DataFrame([own, baseline]), counters)
    places = ShownRows({"ladder": measured}, {}, {}, {"ladder.naive"})
    assert places("ladder", "ladder.naive/cuda12/fp32/64x64x64/warm") == row_anchor(own)
    assert places("ladder", "cublas.sgemm/cuda12/fp32/64x64x64/warm") == row_anchor(baseline)
    assert places("hopper", "cublas.sgemm/cuda12/fp32/64x64x64/warm") is None
