"""Reads hardware counters of what runs on the GPU: CUPTI's Range Profiler in this process.

Metrics, their units and values come from CUPTI's Profiler Host API by the chip's name, such as ``GH100``, without a
GPU. Each launch is counted by itself, from its begin to its end on the GPU: a range that the host marks holds its way
to the launch and back as well. The same work runs once per pass, since the hardware has too few counters. Clocks stay.

CUPTI is called through ctypes: every call takes one structure that begins with its own size, so that a newer library
knows its fields. They are those of cupti_profiler_target.h, cupti_profiler_host.h, cupti_range_profiler.h and
cupti_target.h of CUDA 13.0. Loading the library needs no GPU.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from ctypes import c_char_p, c_double, c_int, c_size_t, c_uint8, c_uint16, c_uint32, c_void_p
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

from gemmrepro.core.files import write_json
from gemmrepro.errors import UserError
from gemmrepro.gpu import baselines, device
from gemmrepro.operands import Operands, random
from gemmrepro.operations import Problem, Shape

RANGE_PROFILER = 0
"""CUpti_ProfilerType, and CUpti_Profiler_API: the range profiler."""

AUTO_RANGE, USER_REPLAY = 1, 3
"""CUpti_ProfilerRange and CUpti_ProfilerReplayMode: each launch is a range; the caller runs them anew for each pass."""

SUPPORTED = 3
"""CUpti_Profiler_Support_Level."""

INVALID_METRIC_NAME = 17
"""CUptiResult: the chip has no such metric."""

ADVICE = {
    23: "profiling is switched off on this GPU",
    26: "another program reads the counters; end it (a profiler, or DCGM)",
    35: "the driver lets administrators alone read them; run as root (in a container: with CAP_SYS_ADMIN), or load the "
    "kernel module with NVreg_RestrictProfilingToAdminUsers=0",
    39: "another profiler is attached to this process; run without it",
    40: "the host of this virtual GPU does not permit it",
}
"""Advice on a status of the library (CUptiResult)."""


class CuptiError(Exception):
    """A call of CUPTI failed, or there is no CUPTI. The message says why, and what to do where that is known."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


NAMES = ctypes.POINTER(c_char_p)
"""An array of strings; the parameters keep alive what they point to."""


class Params(ctypes.Structure):
    """The parameters of one call, `function`."""

    function: ClassVar[str]
    _fields_ = [("struct_size", c_size_t), ("private", c_void_p)]


def _params(function: str, **fields: Any) -> Any:
    """The structure of the parameters of one function of the library, behind the fields that all have."""
    return type(function, (Params,), {"function": function, **({"_fields_": [*fields.items()]} if fields else {})})


_LEVELS = dict.fromkeys(("supported", "architecture", "sli", "vgpu", "confidential", "cmp", "wsl"), c_int)
_TEXTS = dict.fromkeys(("metric", "description", "hardware", "unit"), c_char_p)
_SIZED = {"size": c_size_t, "image": c_void_p}
_COUNTED = {"metrics": NAMES, "count": c_size_t}

Initialize = _params("cuptiProfilerInitialize")
DeviceSupported = _params("cuptiProfilerDeviceSupported", device=c_int, **_LEVELS, api=c_int)
ChipName = _params("cuptiDeviceGetChipName", device=c_size_t, name=c_char_p)
CounterAvailability = _params("cuptiProfilerGetCounterAvailability", context=c_void_p, **_SIZED)
"""Without an image, the call returns its size."""

HostInitialize = _params(
    "cuptiProfilerHostInitialize", profiler=c_int, chip=c_char_p, availability=c_void_p, host=c_void_p
)
HostDeinitialize = _params("cuptiProfilerHostDeinitialize", host=c_void_p)
MetricProperties = _params("cuptiProfilerHostGetMetricProperties", host=c_void_p, **_TEXTS, kind=c_int)
AddMetrics = _params("cuptiProfilerHostConfigAddMetrics", host=c_void_p, **_COUNTED)
ConfigSize = _params("cuptiProfilerHostGetConfigImageSize", host=c_void_p, size=c_size_t)
ConfigImage = _params("cuptiProfilerHostGetConfigImage", host=c_void_p, **_SIZED)
Passes = _params("cuptiProfilerHostGetNumOfPasses", **_SIZED, passes=c_size_t)
Evaluate = _params(
    "cuptiProfilerHostEvaluateToGpuValues",
    **{"host": c_void_p, "data": c_void_p, "data_size": c_size_t, "index": c_size_t},
    **_COUNTED,
    values=ctypes.POINTER(c_double),
)
Enable = _params("cuptiRangeProfilerEnable", context=c_void_p, profiler=c_void_p)
Disable = _params("cuptiRangeProfilerDisable", profiler=c_void_p)
DataSize = _params(
    "cuptiRangeProfilerGetCounterDataSize",
    profiler=c_void_p,
    **_COUNTED,
    **{"ranges": c_size_t, "nodes": c_uint32, "size": c_size_t},
)
DataInitialize = _params(
    "cuptiRangeProfilerCounterDataImageInitialize", profiler=c_void_p, size=c_size_t, data=c_void_p
)
DataInfo = _params("cuptiRangeProfilerGetCounterDataInfo", data=c_void_p, size=c_size_t, ranges=c_size_t)
SetConfig = _params(
    "cuptiRangeProfilerSetConfig",
    **{"profiler": c_void_p, "config_size": c_size_t, "config": c_void_p},
    **{"data_size": c_size_t, "data": c_void_p, "range": c_int, "replay": c_int},
    **{"ranges": c_size_t, "levels": c_uint16, "least_level": c_uint16, "pass_index": c_size_t, "level": c_uint16},
)
Start = _params("cuptiRangeProfilerStart", profiler=c_void_p)
Stop = _params("cuptiRangeProfilerStop", profiler=c_void_p, pass_index=c_size_t, level=c_size_t, finished=c_uint8)
Decode = _params("cuptiRangeProfilerDecodeData", profiler=c_void_p, dropped=c_size_t)


class Cupti:
    """The loaded library."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def call(self, parameters: Any) -> Any:
        """Call the function of `parameters`, which it fills in.
        Raises CuptiError if the call failed, or this version of the library lacks the function."""
        last = getattr(type(parameters), type(parameters)._fields_[-1][0])
        parameters.struct_size = last.offset + last.size  # without padding behind it
        function = getattr(self._library, parameters.function, None)
        if function is None:
            raise CuptiError(f"this CUPTI has no {parameters.function}; install one of CUDA 12.6 or newer")
        status = function(ctypes.byref(parameters))
        if status:
            raise CuptiError(self._said(status, parameters.function), status)
        return parameters

    def _said(self, status: int, function: str) -> str:
        """Why a call failed: what to do, or else the library's message; the status and the function by name."""
        name, message = (self._text(query, status) for query in ("cuptiGetResultString", "cuptiGetErrorMessage"))
        return f"{ADVICE.get(status) or message or 'CUPTI failed'} ({name or status} from {function})"

    def _text(self, function: str, status: int) -> str:
        text = c_char_p()
        failed = getattr(self._library, function)(c_int(status), ctypes.byref(text))
        return "" if failed or text.value is None else text.value.decode().strip().rstrip(".")


def _places() -> Iterator[str]:
    """Where CUPTI may be: beside this Python, as NVIDIA's wheels install it, then wherever the loader looks."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(map(str, Path(folder).glob("cu*/lib/libcupti.so.*")), reverse=True)
    yield from ("libcupti.so.13", "libcupti.so")


BESIDE = ("libnvperf_host.so", "libnvperf_target.so")
"""Libraries that CUPTI loads by name alone, which the loader finds only if they are loaded already."""


def load() -> Cupti:
    """Load CUPTI. Raises CuptiError if there is none."""
    for place in _places():
        try:
            for name in BESIDE if "/" in place else ():
                ctypes.CDLL(str(Path(place).with_name(name)), ctypes.RTLD_GLOBAL)
            return Cupti(ctypes.CDLL(place))
        except OSError:
            continue
    raise CuptiError("CUPTI is not installed; install the Python package nvidia-cuda-cupti")


Wanted = tuple[str, Problem, Shape, int | None]
"""Baseline, problem, shape, and the number of the algorithm that a trial chose; None if there is no choice."""


def _profiler() -> Callable[[Callable[[], None]], list[str]]:
    """A function that lists the kernels that a call launches, by PyTorch's profiler, or else by CUPTI."""
    try:
        import torch
        from torch.profiler import ProfilerActivity, profile
    except ImportError:
        return _cupti()

    def kernels(call: Callable[[], None]) -> list[str]:
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as record:
            call()
            torch.cuda.synchronize()
        return [event.name for event in record.events() if event.device_type == torch.autograd.DeviceType.CUDA]

    return kernels


def _cupti() -> Callable[[Callable[[], None]], list[str]]:
    try:
        from cupti import cupti
    except ImportError as error:
        raise UserError(
            f"neither PyTorch nor CUPTI can be imported ({error}); they are only needed for the kernels' names."
        ) from None
    # A memset that a library launches with its kernel takes time too: PyTorch's profiler lists it by this name.
    named = {cupti.ActivityKind.MEMSET: "Memset (Device)"}
    kinds = (cupti.ActivityKind.CONCURRENT_KERNEL, *named)
    seen: list[tuple[int, str]] = []

    def completed(activities: Sequence[Any]) -> None:
        seen.extend((each.start, named.get(each.kind) or each.name) for each in activities if each.kind in kinds)

    def kernels(call: Callable[[], None]) -> list[str]:
        cupti.activity_flush_all(1)
        seen.clear()
        call()
        cupti.activity_flush_all(1)
        return [name for _, name in sorted(seen)]

    cupti.activity_register_callbacks(lambda: (8 << 20, 0), completed)
    for kind in kinds:
        cupti.activity_enable(kind)
    return kernels


def _profile(wanted: Sequence[Wanted]) -> dict[str, str]:
    kernels = _profiler()
    session = device.open_gpu()
    names: dict[str, str] = {}
    for name, problem, shape, chosen in wanted:
        entry = baselines.baseline(name)
        inputs, output = random(problem, shape, shape.n)
        if chosen is not None:
            session.trials.take(problem, shape, chosen, name)
        call = entry.bind(session, Operands(problem, shape, tuple(inputs), output))
        call()
        session.sync()

        def finished(launch: Callable[[], None] = call) -> None:
            launch()
            session.sync()

        if seen := kernels(finished):
            names[baselines.place(name, problem, shape)] = " + ".join(dict.fromkeys(seen))
    return names


def kernels_step(options: Namespace) -> int:
    """Print the GPU kernels behind baselines, as JSON."""
    wanted = []
    for item in options.names:
        try:
            name, *problem, m, n, k, chosen = json.loads(item)
            shape = Shape(int(m), int(n), int(k))
            wanted.append((name, Problem(*problem), shape, None if chosen is None else int(chosen)))
        except (ValueError, TypeError):
            raise UserError(
                f"'{item}' is not a list of baseline, op, dtype in, dtype out, layout, m, n, k and algorithm."
            ) from None
        baselines.baseline(name)
    names = _profile(wanted)
    if options.out:
        write_json(options.out, names)
    print(json.dumps(names))
    return 0


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
        asked = HostInitialize(profiler=RANGE_PROFILER, chip=name.encode(), availability=address)
        self._host = library.call(asked).host

    def close(self) -> None:
        self._cupti.call(HostDeinitialize(host=self._host))

    def units(self, metrics: Sequence[str]) -> dict[str, str]:
        """The units, as in counters.csv, of those of `metrics` that the chip has. Raises CuptiError."""
        found = {}
        for metric in metrics:
            try:
                asked = self._cupti.call(MetricProperties(host=self._host, metric=metric.encode()))
            except CuptiError as error:
                if error.status != INVALID_METRIC_NAME:
                    raise
            else:
                found[metric] = _unit(asked.unit.decode())
        return found

    def config(self, metrics: Sequence[str]) -> Any:
        """The image of what the GPU must count for `metrics`, all of which the chip has: a buffer of ctypes.
        Raises CuptiError if they cannot be counted together."""
        self._cupti.call(AddMetrics(host=self._host, metrics=names(metrics), count=len(metrics)))
        size = self._cupti.call(ConfigSize(host=self._host)).size
        image = ctypes.create_string_buffer(size)
        self._cupti.call(ConfigImage(host=self._host, size=size, image=ctypes.addressof(image)))
        return image

    def passes(self, config: Any) -> int:
        """Number of runs that it takes to count all of `config`. Raises CuptiError."""
        asked = Passes(size=len(config), image=ctypes.addressof(config))
        return int(self._cupti.call(asked).passes)

    def values(self, data: Any, metrics: Sequence[str], index: int = 0) -> list[float]:
        """The values of `metrics` in range `index` of the counters `data`; NaN where there is none.
        Raises CuptiError if a metric cannot be computed from what was counted."""
        values = (ctypes.c_double * len(metrics))()
        asked = Evaluate(host=self._host, data=ctypes.addressof(data), data_size=len(data), index=index)
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
"""Reasons that rule profiling out, by the field of `DeviceSupported`."""

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
        library.call(Initialize())
        device, context = current()
        _check_supported(library, device)
        chip = library.call(ChipName(device=device)).name.decode()
        self._chip = Chip(library, chip, _availability(library, context))
        try:
            self.units = self._chip.units(metrics)
            if not self.units:
                raise CuptiError(f"CUPTI knows none of the metrics on {chip}")
            self._config = self._chip.config(list(self.units))
            self.passes = self._chip.passes(self._config)
            self._profiler = library.call(Enable(context=context)).profiler
        except BaseException:
            self._chip.close()
            raise

    def __enter__(self) -> RangeProfiler:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with suppress(CuptiError) if error else nullcontext():  # the first error tells more
            self._cupti.call(Disable(profiler=self._profiler))
        self._chip.close()

    def read(self, prepare: Callable[[], None], run: Callable[[], None]) -> list[dict[str, Reading]]:
        """Count what `run` makes the GPU do: of each launch in order, readings of the metrics that have a value there.
        `prepare`: called before each pass, uncounted; it waits for the GPU. `run`: launches the same work each time,
        and waits. Raises CuptiError if the counters could not be read, or there are none or more than MOST launches."""
        data = self._data()
        config = SetConfig(
            profiler=self._profiler,
            config_size=len(self._config),
            config=ctypes.addressof(self._config),
            data_size=len(data),
            data=ctypes.addressof(data),
            range=AUTO_RANGE,
            replay=USER_REPLAY,
            ranges=MOST,
            levels=1,
            least_level=1,
            level=1,
        )
        self._cupti.call(config)
        for _ in range(self.passes):
            prepare()
            self._cupti.call(Start(profiler=self._profiler))
            run()
            if self._cupti.call(Stop(profiler=self._profiler)).finished:
                break
        else:
            raise CuptiError(f"CUPTI wants more than the {self.passes} passes that it announced")
        dropped = self._cupti.call(Decode(profiler=self._profiler)).dropped
        ranges = self._cupti.call(DataInfo(data=ctypes.addressof(data), size=len(data))).ranges
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
        asked = DataSize(profiler=self._profiler, metrics=names(wanted), count=len(wanted), ranges=MOST, nodes=MOST)
        data = ctypes.create_string_buffer(self._cupti.call(asked).size)
        address = ctypes.addressof(data)
        self._cupti.call(DataInitialize(profiler=self._profiler, size=len(data), data=address))
        return data


def current() -> tuple[int, int]:
    """The number of the current device and the handle of the current context."""
    from cuda.bindings import driver

    (_, device), (_, context) = driver.cuCtxGetDevice(), driver.cuCtxGetCurrent()
    return int(device), int(context)


def _check_supported(library: Cupti, device: int) -> None:
    """Raises CuptiError if this GPU, as it is set up, cannot be profiled."""
    found = library.call(DeviceSupported(device=device, api=RANGE_PROFILER))
    if found.supported == SUPPORTED:
        return
    against = [words for name, words in FEATURES.items() if getattr(found, name) != SUPPORTED]
    raise CuptiError(f"CUPTI does not profile this GPU ({', '.join(against) or 'it does not say why'})")


def _availability(library: Cupti, context: int) -> bytes:
    """The image of what the GPU can count. Raises CuptiError, above all if the driver does not permit it."""
    size = library.call(CounterAvailability(context=context)).size
    image = ctypes.create_string_buffer(size)
    asked = CounterAvailability(context=context, size=size, image=ctypes.addressof(image))
    written = library.call(asked).size
    return image.raw[:written]
