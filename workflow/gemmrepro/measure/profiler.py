"""Reads the hardware counters of runs with CUPTI, in this process.

A run of several launches, a library's included, is read as one: bytes, instructions, cycles and times are summed,
percentages and rates are means weighted by the launches' times. It begins with cold caches: before each pass the L2 is
flushed, and not between its launches. If there is no CUPTI, or it may not read the counters (a permission of
the driver), there are no rows, and a reason.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from gemmrepro import registry
from gemmrepro.core.names import METRICS
from gemmrepro.gpu import cupti
from gemmrepro.gpu.cupti import CuptiError
from gemmrepro.gpu.device import Session
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.gpu.ranges import RangeProfiler, Reading
from gemmrepro.measure.columns import CounterRow
from gemmrepro.operands import Operands, random
from gemmrepro.operations import Shape
from gemmrepro.registry.keys import run_key
from gemmrepro.timing import Timer

TIME = "gpu__time_duration.sum"

LAUNCH = "launch__"
"""Metrics of a launch that are computed, not counted, begin with this."""

Target = tuple[str, str, Shape]
"""Kernel id, toolkit, shape."""


def collect(session: Session, targets: Sequence[Target], build: Path) -> tuple[list[CounterRow], str]:
    """Read METRICS of one run of each target.

    Returns:
        (rows of counters.csv, why some or all targets have none or '').
    """
    rows: list[CounterRow] = []
    if not targets:
        return rows, ""
    timer = Timer(session)
    try:
        with RangeProfiler(cupti.load(), [metric for metric in METRICS if not metric.startswith(LAUNCH)]) as profiler:
            for kernel, toolkit, shape in targets:
                loaded = Loaded.built(session, registry.kernel(kernel), build, toolkit)
                rows += _rows(loaded, shape, {**_counted(profiler, timer, loaded, shape), **launched(loaded, shape)})
    except CuptiError as error:
        return rows, str(error)
    return rows, ""


def _counted(profiler: RangeProfiler, timer: Timer, loaded: Loaded, shape: Shape) -> dict[str, Reading]:
    """What a run of the kernel counts, on random data. Raises CuptiError."""
    inputs, output = random(loaded.kernel.problem, shape, secrets.randbits(31))
    call = loaded.bind(Operands.of(loaded.kernel, shape, inputs, output))

    def run() -> None:
        call()
        timer.session.sync()

    def flush() -> None:
        timer.flush()
        timer.session.sync()

    run()  # loads the code
    return combined(profiler.read(flush, run))


def combined(launches: Sequence[Mapping[str, Reading]]) -> dict[str, Reading]:
    """The readings of a run's launches as one (see the module); a launch without a metric does not count for it."""
    found = {}
    for metric in dict.fromkeys(metric for launch in launches for metric in launch):
        read = [launch for launch in launches if metric in launch]
        values = [launch[metric].value for launch in read]
        if metric.endswith((".sum", "_elapsed.max")):
            value = math.fsum(values)
        else:
            weights = [launch[TIME].value if TIME in launch else 1.0 for launch in read]
            value = math.fsum(map(math.prod, zip(values, weights, strict=True))) / math.fsum(weights)
        found[metric] = Reading(value, read[0][metric].unit)
    return found


def launched(loaded: Loaded, shape: Shape) -> dict[str, Reading]:
    """The metrics of the launch, where a run is one launch whose threads the registry knows."""
    held = loaded.occupancy(shape)
    if held is None:
        return {}
    return {
        "launch__occupancy_limit_registers": Reading(held.by_registers, "block"),
        "launch__occupancy_limit_shared_mem": Reading(held.by_shared_memory, "block"),
        "launch__waves_per_multiprocessor": Reading(held.waves, ""),
    }


def _rows(loaded: Loaded, shape: Shape, readings: Mapping[str, Reading]) -> list[CounterRow]:
    return [
        CounterRow(
            kernel=loaded.kernel.id,
            toolkit=loaded.toolkit,
            m=shape.m,
            n=shape.n,
            k=shape.k,
            metric=metric,
            value=int(reading.value) if float(reading.value).is_integer() else reading.value,
            unit=reading.unit,
            build_key=loaded.build_key,
            run_key=run_key(loaded.kernel, loaded.build_key, shape),
        )
        for metric, reading in readings.items()
    ]
