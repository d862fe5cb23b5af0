"""A CUPTI that keeps the rules of the real one's calls, and counts what it is told to."""

import ctypes
import re
from collections.abc import Callable, Mapping
from typing import Any

SUCCESS, INVALID_PARAMETER, INVALID_OPERATION, INVALID_METRIC = 0, 1, 7, 17
CHIP = "GX1"
BLOB = 64
"""Bytes of its images."""


class SyntheticCupti:
    """In place of the loaded library.

    Args:
        metrics: CUPTI's unit and the value of each metric that the chip has.
        passes: how many it takes.
        fails: a status by function.
    """

    def __init__(
        self, metrics: Mapping[str, tuple[str, float]], passes: int = 2, fails: Mapping[str, int] | None = None
    ) -> None:
        self.metrics, self.passes, self.fails = metrics, passes, dict(fails or {})
        self.asked: list[str] = []
        self.open: set[str] = set()
        self.counted: list[str] = []
        self.supported = dict.fromkeys(("supported", "architecture", "sli", "vgpu", "confidential", "cmp", "wsl"), 3)
        self.ranges, self.dropped, self.more = 1, 0, False
        self._pass = 0

    def __getattr__(self, function: str) -> Callable[..., int]:
        if not function.startswith("cupti"):
            raise AttributeError(function)
        if function == "cuptiGetResultString":
            return lambda status, text: self._text(text, f"CUPTI_ERROR_{status.value}")
        if function == "cuptiGetErrorMessage":
            return lambda status, text: self._text(text, "it says why.\n")
        return lambda reference: self._answer(function, reference._obj)

    @staticmethod
    def _text(reference: Any, text: str) -> int:
        reference._obj.value = text.encode()
        return SUCCESS

    def _answer(self, function: str, params: Any) -> int:
        self.asked.append(function)
        if status := self.fails.get(function):
            return status
        kind = type(params)
        last = kind._fields_[-1][0]
        if params.struct_size != getattr(kind, last).offset + getattr(kind, last).size or params.private:
            return INVALID_PARAMETER
        name = re.sub("^cupti(RangeProfiler|Profiler)?", "", function)
        return getattr(self, f"_{name}", lambda _: SUCCESS)(params)

    def _holding(self, name: str, opens: bool) -> int:
        if (name in self.open) == opens:
            return INVALID_OPERATION
        (self.open.add if opens else self.open.remove)(name)
        return SUCCESS

    def _DeviceSupported(self, params: Any) -> int:
        for name, level in self.supported.items():
            setattr(params, name, level)
        return SUCCESS

    def _DeviceGetChipName(self, params: Any) -> int:
        params.name = CHIP.encode()
        return SUCCESS

    def _GetCounterAvailability(self, params: Any) -> int:
        params.size = BLOB
        if params.image:
            ctypes.memmove(params.image, b"a" * BLOB, BLOB)
        return SUCCESS

    def _HostInitialize(self, params: Any) -> int:
        if params.chip.decode() != CHIP or ctypes.string_at(params.availability, BLOB) != b"a" * BLOB:
            return INVALID_PARAMETER
        params.host = 1
        return self._holding("host", True)

    def _HostDeinitialize(self, params: Any) -> int:
        return self._holding("host", False)

    def _HostGetMetricProperties(self, params: Any) -> int:
        unit, _ = self.metrics.get(params.metric.decode(), ("", 0.0))
        params.unit = unit.encode()
        return SUCCESS if params.metric.decode() in self.metrics else INVALID_METRIC

    def _HostConfigAddMetrics(self, params: Any) -> int:
        self.counted = [params.metrics[index].decode() for index in range(params.count)]
        return SUCCESS if set(self.counted) <= self.metrics.keys() else INVALID_PARAMETER

    def _size(self, params: Any) -> int:
        params.size = BLOB
        return SUCCESS

    _HostGetConfigImageSize = _GetCounterDataSize = _size

    def _HostGetConfigImage(self, params: Any) -> int:
        ctypes.memmove(params.image, b"c" * BLOB, BLOB)
        return SUCCESS

    def _HostGetNumOfPasses(self, params: Any) -> int:
        params.passes = self.passes
        return SUCCESS

    def _HostEvaluateToGpuValues(self, params: Any) -> int:
        if ctypes.string_at(params.data, BLOB) != b"d" * BLOB or params.index >= self.ranges:
            return INVALID_PARAMETER
        for index in range(params.count):
            params.values[index] = self.metrics[params.metrics[index].decode()][1]
        return SUCCESS

    def _Enable(self, params: Any) -> int:
        params.profiler = 2
        return self._holding("profiler", True)

    def _Disable(self, params: Any) -> int:
        return INVALID_OPERATION if "pass" in self.open else self._holding("profiler", False)

    def _CounterDataImageInitialize(self, params: Any) -> int:
        ctypes.memmove(params.data, b"0" * BLOB, BLOB)
        return SUCCESS

    def _SetConfig(self, params: Any) -> int:
        wanted = (1, 3, 256, 1, 1, 0, 1)
        found = (params.range, params.replay, params.ranges, params.levels, params.least_level, params.pass_index)
        if (*found, params.level) != wanted or ctypes.string_at(params.config, BLOB) != b"c" * BLOB:
            return INVALID_PARAMETER
        self._data, self._pass = params.data, 0
        return SUCCESS

    def _Start(self, params: Any) -> int:
        return self._holding("pass", True)

    def _Stop(self, params: Any) -> int:
        self._pass += 1
        params.finished = self._pass >= self.passes and not self.more
        return self._holding("pass", False)

    def _DecodeData(self, params: Any) -> int:
        ctypes.memmove(self._data, b"d" * BLOB, BLOB)
        params.dropped = self.dropped
        return SUCCESS

    def _GetCounterDataInfo(self, params: Any) -> int:
        params.ranges = self.ranges
        return SUCCESS
