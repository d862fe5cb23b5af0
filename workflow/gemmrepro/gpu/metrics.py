"""The metrics of a chip: which ones it has, their units, what the GPU must count for them, and their values.

This is CUPTI's Profiler Host API, which needs no GPU: a chip is known by its name, such as ``GH100``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from gemmrepro.gpu import cupti
from gemmrepro.gpu.cupti import Cupti, CuptiError

UNITS = {"byte": "byte", "byte/second": "byte/s", "nanosecond": "ns", "instruction": "inst", "percent": "%"}
"""Units in counters.csv by CUPTI's names, but for cycles and sectors, of which it tells several kinds."""


class Chip:
    """The metrics of one kind of chip. Only one may be open at a time: CUPTI mixes up what several are asked."""

    def __init__(self, library: Cupti, name: str, availability: bytes | None = None) -> None:
        """Open it.

        Args:
            availability: the image of what this GPU can count (`ranges.RangeProfiler`); None: what any such chip can.

        Raises:
            CuptiError: the library does not know the chip.
        """
        self._cupti, self.name = library, name
        self._availability = availability and ctypes.create_string_buffer(availability, len(availability))
        address = ctypes.addressof(self._availability) if self._availability else None
        asked = cupti.HostInitialize(profiler=cupti.RANGE_PROFILER, chip=name.encode(), availability=address)
        self._host = library.call(asked).host

    def close(self) -> None:
        self._cupti.call(cupti.HostDeinitialize(host=self._host))

    def units(self, metrics: Sequence[str]) -> dict[str, str]:
        """The units, as in counters.csv, of those of `metrics` that the chip has. Raises CuptiError."""
        found = {}
        for metric in metrics:
            try:
                asked = self._cupti.call(cupti.MetricProperties(host=self._host, metric=metric.encode()))
            except CuptiError as error:
                if error.status != cupti.INVALID_METRIC_NAME:
                    raise
            else:
                found[metric] = _unit(asked.unit.decode())
        return found

    def config(self, metrics: Sequence[str]) -> Any:
        """The image of what the GPU must count for `metrics`, all of which the chip has: a buffer of ctypes.

        Raises:
            CuptiError: they cannot be counted together.
        """
        self._cupti.call(cupti.AddMetrics(host=self._host, metrics=names(metrics), count=len(metrics)))
        size = self._cupti.call(cupti.ConfigSize(host=self._host)).size
        image = ctypes.create_string_buffer(size)
        self._cupti.call(cupti.ConfigImage(host=self._host, size=size, image=ctypes.addressof(image)))
        return image

    def passes(self, config: Any) -> int:
        """How many runs it takes to count all of `config`. Raises CuptiError."""
        asked = cupti.Passes(size=len(config), image=ctypes.addressof(config))
        return int(self._cupti.call(asked).passes)

    def values(self, data: Any, metrics: Sequence[str], index: int = 0) -> list[float]:
        """The values of `metrics` in range `index` of the counters `data`; NaN where there is none.

        Raises:
            CuptiError: a metric cannot be computed from what was counted.
        """
        values = (ctypes.c_double * len(metrics))()
        asked = cupti.Evaluate(host=self._host, data=ctypes.addressof(data), data_size=len(data), index=index)
        asked.metrics, asked.count, asked.values = names(metrics), len(metrics), values
        self._cupti.call(asked)
        return list(values)


def _unit(name: str) -> str:
    kind = next((kind for kind in ("cycle", "sector") if name.endswith(kind)), "")
    return UNITS.get(name, kind)


def names(metrics: Sequence[str]) -> Any:
    """An array of C strings."""
    return (ctypes.c_char_p * len(metrics))(*(metric.encode() for metric in metrics))
