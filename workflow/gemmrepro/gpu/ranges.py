"""Reads hardware counters of what runs on the GPU: CUPTI's Range Profiler in this process.

Metrics, their units and values come from CUPTI's Profiler Host API by the chip's name, such as ``GH100``, without a
GPU. Each launch is counted by itself, from its begin to its end on the GPU: a range that the host marks holds its way
to the launch and back as well. The same work runs once per pass, since the hardware has too few counters. Clocks stay.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from gemmrepro.gpu import cupti
from gemmrepro.gpu.cupti import Cupti, CuptiError

UNITS = {"byte": "byte", "byte/second": "byte/s", "nanosecond": "ns", "instruction": "inst", "percent": "%"}
"""Units in counters.csv by CUPTI's names, but for cycles and sectors, of which it tells several kinds."""


class Chip:
    """The metrics of one kind of chip. Only one may be open at a time: CUPTI mixes up what several are asked."""

    def __init__(self, library: Cupti, name: str, availability: bytes | None = None) -> None:
        """Open it.
        `availability`: the image of what this GPU can count (`ranges.RangeProfiler`); None: what any such chip can.
        Raises CuptiError if the library does not know the chip."""
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
        Raises CuptiError if they cannot be counted together."""
        self._cupti.call(cupti.AddMetrics(host=self._host, metrics=names(metrics), count=len(metrics)))
        size = self._cupti.call(cupti.ConfigSize(host=self._host)).size
        image = ctypes.create_string_buffer(size)
        self._cupti.call(cupti.ConfigImage(host=self._host, size=size, image=ctypes.addressof(image)))
        return image

    def passes(self, config: Any) -> int:
        """Number of runs that it takes to count all of `config`. Raises CuptiError."""
        asked = cupti.Passes(size=len(config), image=ctypes.addressof(config))
        return int(self._cupti.call(asked).passes)

    def values(self, data: Any, metrics: Sequence[str], index: int = 0) -> list[float]:
        """The values of `metrics` in range `index` of the counters `data`; NaN where there is none.
        Raises CuptiError if a metric cannot be computed from what was counted."""
        values = (ctypes.c_double * len(metrics))()
        asked = cupti.Evaluate(host=self._host, data=ctypes.addressof(data), data_size=len(data), index=index)
        asked.metrics, asked.count, asked.values = names(metrics), len(metrics), values
        self._cupti.call(asked)
        return list(values)


def _unit(name: str) -> str:
    kind = next((kind for kind in ("cycle", "sector") if name.endswith(kind)), "")
    return UNITS.get(name, kind)


def names(metrics: Sequence[str]) -> Any:
    return (ctypes.c_char_p * len(metrics))(*(metric.encode() for metric in metrics))


FEATURES = {
    "architecture": "its architecture",
    "sli": "SLI",
    "vgpu": "a virtual GPU",
    "confidential": "confidential computing",
    "cmp": "a mining GPU",
    "wsl": "WSL",
}
"""Reasons that rule profiling out, by the field of `cupti.DeviceSupported`."""

MOST = 256
"""Launches that can be counted at once."""


@dataclass(frozen=True)
class Reading:
    """The value of a metric and its unit as in counters.csv."""

    value: float
    unit: str


class RangeProfiler:
    """Reads metrics on the GPU of the current context. Use it as a context manager: it holds the counters meanwhile.
    `units`: the metrics that it reads, with units as in counters.csv; `passes`: how often it runs what it counts."""

    def __init__(self, library: Cupti, metrics: Sequence[str]) -> None:
        """Take the counters.
        `metrics`: by CUPTI's names; those that the chip lacks are left out. Raises CuptiError if this GPU or its driver
        cannot be profiled or may not be, or another profiler has the counters."""
        self._cupti = library
        library.call(cupti.Initialize())
        device, context = current()
        _check_supported(library, device)
        chip = library.call(cupti.ChipName(device=device)).name.decode()
        self._chip = Chip(library, chip, _availability(library, context))
        try:
            self.units = self._chip.units(metrics)
            if not self.units:
                raise CuptiError(f"CUPTI knows none of the metrics on {chip}")
            self._config = self._chip.config(list(self.units))
            self.passes = self._chip.passes(self._config)
            self._profiler = library.call(cupti.Enable(context=context)).profiler
        except BaseException:
            self._chip.close()
            raise

    def __enter__(self) -> RangeProfiler:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with suppress(CuptiError) if error else nullcontext():  # the first error tells more
            self._cupti.call(cupti.Disable(profiler=self._profiler))
        self._chip.close()

    def read(self, prepare: Callable[[], None], run: Callable[[], None]) -> list[dict[str, Reading]]:
        """Count what `run` makes the GPU do: of each launch in order, readings of the metrics that have a value there.
        `prepare`: called before each pass, uncounted; it waits for the GPU. `run`: launches the same work each time,
        and waits. Raises CuptiError if the counters could not be read, or there are none or more than MOST launches."""
        data = self._data()
        config = cupti.SetConfig(
            profiler=self._profiler,
            config_size=len(self._config),
            config=ctypes.addressof(self._config),
            data_size=len(data),
            data=ctypes.addressof(data),
            range=cupti.AUTO_RANGE,
            replay=cupti.USER_REPLAY,
            ranges=MOST,
            levels=1,
            least_level=1,
            level=1,
        )
        self._cupti.call(config)
        for _ in range(self.passes):
            prepare()
            self._cupti.call(cupti.Start(profiler=self._profiler))
            run()
            if self._cupti.call(cupti.Stop(profiler=self._profiler)).finished:
                break
        else:
            raise CuptiError(f"CUPTI wants more than the {self.passes} passes that it announced")
        dropped = self._cupti.call(cupti.Decode(profiler=self._profiler)).dropped
        ranges = self._cupti.call(cupti.DataInfo(data=ctypes.addressof(data), size=len(data))).ranges
        if dropped or not ranges:
            raise CuptiError(f"CUPTI counted {ranges} launches and dropped {dropped}")
        return [self._readings(self._chip.values(data, list(self.units), index)) for index in range(ranges)]

    def _readings(self, values: Sequence[float]) -> dict[str, Reading]:
        return {
            metric: Reading(value, unit)
            for (metric, unit), value in zip(self.units.items(), values, strict=True)
            if value == value  # NaN: there is none
        }

    def _data(self) -> Any:
        """An empty image for the counters of MOST launches."""
        wanted = list(self.units)
        asked = cupti.DataSize(
            profiler=self._profiler, metrics=names(wanted), count=len(wanted), ranges=MOST, nodes=MOST
        )
        data = ctypes.create_string_buffer(self._cupti.call(asked).size)
        address = ctypes.addressof(data)
        self._cupti.call(cupti.DataInitialize(profiler=self._profiler, size=len(data), data=address))
        return data


def current() -> tuple[int, int]:
    """The number of the current device and the handle of the current context."""
    from cuda.bindings import driver

    (_, device), (_, context) = driver.cuCtxGetDevice(), driver.cuCtxGetCurrent()
    return int(device), int(context)


def _check_supported(library: Cupti, device: int) -> None:
    """Raises CuptiError if this GPU, as it is set up, cannot be profiled."""
    found = library.call(cupti.DeviceSupported(device=device, api=cupti.RANGE_PROFILER))
    if found.supported == cupti.SUPPORTED:
        return
    against = [words for name, words in FEATURES.items() if getattr(found, name) != cupti.SUPPORTED]
    raise CuptiError(f"CUPTI does not profile this GPU ({', '.join(against) or 'it does not say why'})")


def _availability(library: Cupti, context: int) -> bytes:
    """The image of what the GPU can count. Raises CuptiError, above all if the driver does not permit it."""
    size = library.call(cupti.CounterAvailability(context=context)).size
    image = ctypes.create_string_buffer(size)
    asked = cupti.CounterAvailability(context=context, size=size, image=ctypes.addressof(image))
    written = library.call(asked).size
    return image.raw[:written]
