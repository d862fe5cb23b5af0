"""A CUPTI that keeps the rules of the real one's calls, and counts what it is told to."""

import ctypes
import re
from collections.abc import Callable, Mapping
from typing import Any

SUCCESS, INVALID_PARAMETER, INVALID_OPERATION, INVALID_METRIC = 0, 1, 7, 17
CHIP = "GX1"
BLOB = 64
"""Bytes of its images."""
HELD = {"HostInitialize": ("host", True), "HostDeinitialize": ("host", False), "Enable": ("profiler", True)}
HELD |= {"Disable": ("profiler", False), "Start": ("pass", True), "Stop": ("pass", False)}
"""What a call opens or closes, which must be closed or open before."""


class SyntheticCupti:
    """In place of the loaded library. A method that returns False refuses its call's parameters.

    Args:
        metrics: CUPTI's unit and the value of each metric that the chip has.
    """

    def __init__(self, metrics: Mapping[str, tuple[str, float]]) -> None:
        self.metrics, self.passes = metrics, 2
        self.fails: dict[str, int] = {}  # a status by function
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
        if getattr(self, f"_{name}", lambda _: True)(params) is False:
            return INVALID_METRIC if name == "HostGetMetricProperties" else INVALID_PARAMETER
        what, opens = HELD.get(name, ("", False))
        if what and ((what in self.open) == opens or (name == "Disable" and "pass" in self.open)):
            return INVALID_OPERATION
        (self.open.add if opens else self.open.discard)(what)
        return SUCCESS

    def _DeviceSupported(self, params: Any) -> None:
        for name, level in self.supported.items():
            setattr(params, name, level)

    def _DeviceGetChipName(self, params: Any) -> None:
        params.name = CHIP.encode()

    def _size(self, params: Any) -> None:
        params.size = BLOB

    _HostGetConfigImageSize = _GetCounterDataSize = _size

    def _GetCounterAvailability(self, params: Any) -> None:
        params.size = BLOB
        if params.image:
            ctypes.memmove(params.image, b"a" * BLOB, BLOB)

    def _HostInitialize(self, params: Any) -> bool:
        params.host = 1
        return params.chip.decode() == CHIP and ctypes.string_at(params.availability, BLOB) == b"a" * BLOB

    def _HostGetMetricProperties(self, params: Any) -> bool:
        params.unit = self.metrics.get(params.metric.decode(), ("", 0.0))[0].encode()
        return params.metric.decode() in self.metrics

    def _HostConfigAddMetrics(self, params: Any) -> bool:
        self.counted = [params.metrics[index].decode() for index in range(params.count)]
        return set(self.counted) <= self.metrics.keys()

    def _HostGetConfigImage(self, params: Any) -> None:
        ctypes.memmove(params.image, b"c" * BLOB, BLOB)

    def _HostGetNumOfPasses(self, params: Any) -> None:
        params.passes = self.passes

    def _HostEvaluateToGpuValues(self, params: Any) -> bool:
        for index in range(params.count):
            params.values[index] = self.metrics[params.metrics[index].decode()][1]
        return ctypes.string_at(params.data, BLOB) == b"d" * BLOB and params.index < self.ranges

    def _Enable(self, params: Any) -> None:
        params.profiler = 2

    def _CounterDataImageInitialize(self, params: Any) -> None:
        ctypes.memmove(params.data, b"0" * BLOB, BLOB)

    def _SetConfig(self, params: Any) -> bool:
        self._data, self._pass = params.data, 0
        found = (params.range, params.replay, params.ranges, params.levels, params.least_level, params.pass_index)
        right = (*found, params.level) == (1, 3, 256, 1, 1, 0, 1)
        return right and ctypes.string_at(params.config, BLOB) == b"c" * BLOB

    def _Stop(self, params: Any) -> None:
        self._pass += 1
        params.finished = self._pass >= self.passes and not self.more

    def _DecodeData(self, params: Any) -> None:
        ctypes.memmove(self._data, b"d" * BLOB, BLOB)
        params.dropped = self.dropped

    def _GetCounterDataInfo(self, params: Any) -> None:
        params.ranges = self.ranges
