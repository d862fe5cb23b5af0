"""The vocabulary of claims: METRICS maps each word of `compute.metric` to how it is measured, judged and explained.

A new word is one object here and an entry in claims.schema.yaml, whose description of it the report prints as its rule.
"""

from collections.abc import Mapping

from gemmrepro.judge.metrics.base import FigureMetric, Untestable
from gemmrepro.judge.metrics.calculated import CalculatedFigure, Opcodes
from gemmrepro.judge.metrics.consistent import Consistent
from gemmrepro.judge.metrics.experiment import ExperimentColumn
from gemmrepro.judge.metrics.rows import ROW_METRICS

_OTHERS = (
    *(Opcodes("opcodes", "instructions"), ExperimentColumn("experiment"), CalculatedFigure("calculated")),
    *(Consistent("consistent"), Untestable("none")),
)

METRICS: Mapping[str, FigureMetric] = {metric.word: metric for metric in (*ROW_METRICS, *_OTHERS)}
