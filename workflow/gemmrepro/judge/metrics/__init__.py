"""The vocabulary of claims: METRICS maps each word of `compute.metric` to how it is measured, judged and explained.

A new word is one object here; claims.schema.yaml, the checks of claims.yaml and the report's rules follow from it.
"""

from __future__ import annotations

from collections.abc import Mapping

from gemmrepro.judge.metrics.base import (
    Exhibit,
    FigureMetric,
    OtherToolkitsOnly,
    Problem,
    Reading,
    Readings,
    Untestable,
    expected,
    not_judged,
)
from gemmrepro.judge.metrics.calculated import CalculatedFigure
from gemmrepro.judge.metrics.consistent import Consistent
from gemmrepro.judge.metrics.experiment import ExperimentColumn
from gemmrepro.judge.metrics.opcodes import Opcodes
from gemmrepro.judge.metrics.rows import (
    BaselineRatio,
    BaselineThroughput,
    CeilingShare,
    Duration,
    Faster,
    KernelMetric,
    Order,
    Speedup,
    Throughput,
    speedup,
    speedup_through_baseline,
)

__all__ = [
    "METRICS",
    "Exhibit",
    "OtherToolkitsOnly",
    "Problem",
    "Reading",
    "Readings",
    "expected",
    "metric_rules",
    "not_judged",
    "speedup",
    "speedup_through_baseline",
]

_THROUGHPUT = Throughput(
    "tflops",
    "TFLOP/s",
    "The operations or bytes per second of `kernel` at size n lie within the tolerance of the published ones.",
)
_RATIO = BaselineRatio(
    "ratio",
    "ratio",
    "The time of the baseline over the time of `kernel`, from paired samples, lies within the tolerance of the "
    "published ratio or of the quotient of two published rows.",
)
_ORDERED: tuple[KernelMetric, ...] = (_THROUGHPUT, _RATIO)

_METRICS: tuple[FigureMetric, ...] = (
    _THROUGHPUT,
    Duration("time", "ms", "The median time of a launch of `kernel` lies within the tolerance of the published time."),
    BaselineThroughput(
        "baseline_tflops",
        "TFLOP/s",
        "The throughput of the baseline that `kernel` was timed with lies within the tolerance of the published one.",
    ),
    _RATIO,
    CeilingShare(
        "ceiling_share",
        "ratio",
        "The throughput of `kernel` over the ceiling that the micro-kernel `ceiling` reached on the same GPU, never "
        "over a data sheet's peak, lies within the tolerance.",
    ),
    Speedup(
        "speedup",
        "ratio",
        "The time of `over` divided by the time of `kernel` lies within the tolerance of the published speed-up or of "
        "the quotient of two published rows.",
    ),
    Faster(
        "faster",
        "ratio",
        "The whole interval of the time of `over` divided by the time of `kernel` is above 1, or between `least` and "
        "`most`.",
    ),
    Order(
        "order",
        "",
        "Every neighbouring pair of `kernels` is in the published order of the quantity `of`, with intervals apart; "
        "partly if more than half of the pairs are.",
        {metric.word: metric for metric in _ORDERED},
    ),
    Opcodes(
        "opcodes",
        "instructions",
        "In every build of `kernel`, at least `least` and at most `most` instructions have an opcode that matches "
        "`pattern` as a whole.",
    ),
    ExperimentColumn(
        "experiment",
        "",
        "The column `value` of an experiment for `kernel`, over that for `over` where it is given, lies with its "
        "interval within the stated bounds or near the published value at every point. Partly means at more than half "
        "of them. With a tolerance it is one figure, compared as any other.",
    ),
    CalculatedFigure(
        "calculated",
        "",
        "What `function` of the family's calculations.py gives, from a printed formula, from the machine code of "
        "`kernels` for `arch` or from their hardware counters, lies within the tolerance of the published figure, or "
        "between `least` and `most`; an integer count is compared exactly.",
    ),
    Consistent(
        "consistent",
        "",
        "Arithmetic on published `rows`: `expect` `equals` the other side within the digits that the article prints, "
        "or lies `below` or `above` it; nothing is measured.",
    ),
    Untestable("none", "", "No run here can measure it; the claim's transfer says why."),
)

METRICS: Mapping[str, FigureMetric] = {metric.word: metric for metric in _METRICS}


def metric_rules() -> list[tuple[str, str]]:
    """Every word of the vocabulary and, in one sentence, what it measures and when a claim with it holds."""
    return [(word, metric.rule) for word, metric in METRICS.items()]
