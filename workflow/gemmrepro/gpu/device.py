"""This machine's GPU: its properties, its stream and its sensors.

Whatever needs a driver is imported inside functions, so that this module can be imported, and its pure parts tested,
without a GPU. CuPy holds arrays, cuda.core loads and launches kernels, NVML (nvidia-ml-py) reads sensors.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.gpu import slots
from gemmrepro.gpu.trials import Trials
from gemmrepro.operations import Shape

# Switches that make libraries silently trade precision for speed, or the reverse. Only plain arithmetic of the stated
# type is measured, so none of them may be inherited from the caller's shell.
PRECISION_SWITCHES = (
    "NVIDIA_TF32_OVERRIDE",
    "CUPY_TF32",
    "CUBLAS_EMULATE_SINGLE_PRECISION",
    "CUBLAS_EMULATE_DOUBLE_PRECISION",
    "CUBLAS_EMULATION_STRATEGY",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)

# Bits of NVML's clocks-event-reasons mask (nvml.h, nvmlClocksEventReason*), without "idle", which is no throttling.
THROTTLE_REASONS = {
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}


@dataclass(frozen=True)
class Gpu:
    """Properties of a GPU, in bytes, MHz and W; None where NVML has no value.

    `card` tells one GPU of a model from another: a hash of its UUID.
    """

    name: str
    compute_capability: tuple[int, int]
    sm_count: int
    l2_bytes: int
    memory_bytes: int
    driver: str
    driver_cuda: tuple[int, int]
    clock_max_mhz: int | None
    memory_clock_mhz: int | None
    power_cap_w: float | None
    pci_bus: str
    card: str = ""

    @property
    def slug(self) -> str:
        """The folder name of its recordings."""
        return slug(self.name)

    @property
    def machine(self) -> dict[str, str]:
        """What a journal's entries belong to: this card, by the hash of its UUID, and its driver."""
        return {"gpu": self.name, "driver": self.driver, "card": self.card}

    @property
    def arch(self) -> str:
        """Its architecture, such as ``sm_90``."""
        return f"sm_{self.compute_capability[0]}{self.compute_capability[1]}"

    def describe(self) -> dict[str, Any]:
        """The ``gpu`` object of run.json."""
        return {
            "name": self.name,
            "compute_capability": "{}.{}".format(*self.compute_capability),
            "sm_count": self.sm_count,
            "l2_bytes": self.l2_bytes,
            "memory_bytes": self.memory_bytes,
            "driver": self.driver,
            "clock_max_mhz": self.clock_max_mhz,
            "memory_clock_mhz": self.memory_clock_mhz,
            "power_cap_w": self.power_cap_w,
            "card": self.card,
        }


def slug(name: str) -> str:
    """A GPU's marketing name as a folder name: ``NVIDIA GeForce RTX 4090`` becomes ``rtx-4090``."""
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word not in ("", "nvidia", "geforce")]
    return "-".join(words) or "gpu"


def throttle_names(mask: int) -> list[str]:
    """Names of the throttle reasons set in NVML's `mask`, lowest bit first."""
    return [name for bit, name in THROTTLE_REASONS.items() if mask & bit]


def pick_arch(archs: list[str], capability: tuple[int, int]) -> str | None:
    """The architecture among `archs` whose machine code a GPU of `capability` runs, or None.

    Machine code runs on its own major version at the same or a later minor version; code for an architecture-specific
    target (``sm_90a``) only on that version (CUDA C++ Programming Guide, "Binary Compatibility").
    """
    best: tuple[tuple[int, bool], str] | None = None
    for arch in archs:
        match = re.fullmatch(r"sm_(\d+)(\d)([af]?)", arch)
        if not match:
            continue
        major, minor, special = int(match[1]), int(match[2]), match[3]
        fits = major == capability[0] and (minor == capability[1] if special else minor <= capability[1])
        rank = (minor, bool(special))
        if fits and (best is None or rank > best[0]):
            best = (rank, arch)
    return best[1] if best else None


@dataclass(frozen=True)
class HeldArrays:
    """A kernel's workspace for one shape: arrays by name."""

    kernel: str
    shape: Shape
    arrays: dict[str, Any]


class Session:
    """An open GPU with its sensors, and one stream on which everything runs in order.

    Attributes:
        gpu: its properties.
        stream, core_stream: the stream, as objects of CuPy and of cuda.core.
        workspace: the workspace of the kernel that was bound last.
        trials: the cuBLAS algorithms that baselines use.
        libraries: open cuBLAS handles; they live as long as the session, since graphs may refer to them.
    """

    def __init__(self, gpu: Gpu, stream: Any, core_stream: Any, nvml: Any, nvml_handle: Any) -> None:
        self.gpu = gpu
        self.stream = stream
        self.core_stream = core_stream
        self._nvml = nvml
        self._handle = nvml_handle
        self.workspace: HeldArrays | None = None
        self.trials = Trials()
        self.libraries: dict[str, Any] = {}

    def sync(self) -> None:
        """Wait for the stream. Raises UserError if a kernel failed on the GPU."""
        from cupy.cuda.runtime import CUDARuntimeError

        try:
            self.stream.synchronize()
        except CUDARuntimeError as error:
            raise UserError(
                f"a kernel failed on the {self.gpu.name} ({error}); run it under compute-sanitizer to find where."
            ) from None

    def free_bytes(self) -> int:
        """Free GPU memory in bytes, after CuPy has released its cached blocks."""
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()
        return int(cupy.cuda.runtime.memGetInfo()[0])

    def sensors(self) -> dict[str, Any]:
        """SM clock in MHz, power in W, temperature in °C, throttle mask; None for a sensor that the GPU lacks."""
        nvml, handle = self._nvml, self._handle

        def read(query: Callable[..., Any], *args: Any) -> Any:
            try:
                return query(handle, *args)
            except nvml.NVMLError:
                return None

        # On recent GPUs the plain query averages over a second, which is longer than most bursts.
        power = None
        fields = read(nvml.nvmlDeviceGetFieldValues, [nvml.NVML_FI_DEV_POWER_INSTANT])
        if fields and fields[0].nvmlReturn == nvml.NVML_SUCCESS:
            power = fields[0].value.uiVal
        if power is None:
            power = read(nvml.nvmlDeviceGetPowerUsage)
        reasons = (
            getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
            or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        )
        return {
            "clock_mhz": read(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            "power_w": None if power is None else power / 1000.0,
            "temp_c": read(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            "throttle": read(reasons),
        }

    def energy(self) -> float | None:
        """The energy that the GPU has used since the driver was loaded, in J; None if it does not count it."""
        try:
            return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1000.0
        except self._nvml.NVMLError:
            return None

    def other_processes(self) -> int:
        """Number of processes that use this GPU, except this one and its parent; 0 if the driver does not know."""
        try:
            running = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except self._nvml.NVMLError:
            return 0
        return sum(1 for process in running if process.pid not in (0, os.getpid(), os.getppid()))


def import_cuda() -> tuple[Any, Any, Any]:
    """CuPy, cuda.core and NVML's package, without touching a GPU. Raises UserError if one of them is missing."""
    try:
        import cupy
    except ImportError as error:
        raise UserError(
            f"CuPy cannot be imported ({error}); run this stage in the project's torch image, or install "
            "cupy-cuda13x, cuda-core and nvidia-ml-py."
        ) from None
    try:
        import cuda.core as core
        import pynvml
    except ImportError as error:
        raise UserError(f"{error.name} cannot be imported; install cuda-core and nvidia-ml-py next to CuPy.") from None
    return cupy, core, pynvml


def claim_gpu(preferred: str = "") -> None:
    """Claim one GPU of this host for this process and its children (`slots.claim`).

    Has no effect without a driver or without NVML's package, which `open_gpu` reports.

    Args:
        preferred: the card of a measurement to be continued (`Gpu.card`).
    """
    try:
        import pynvml as nvml
    except ImportError:
        return
    try:
        nvml.nvmlInit()
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        cards = [
            slots.Card(_text(nvml.nvmlDeviceGetName(handle)), _text(nvml.nvmlDeviceGetUUID(handle)))
            for handle in handles
        ]
    except nvml.NVMLError:
        return
    slots.claim(cards, preferred=preferred)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _require_gpu(runtime: Any) -> None:
    """Raises UserError, with what to do, if the CUDA `runtime` (CuPy's) finds no GPU."""
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        if "insufficient" in str(error):
            raise UserError(
                f"no NVIDIA driver is here, or one too old for CUDA {runtime.runtimeGetVersion() // 1000}; install "
                "or update it (in a container: pass --nv), or set 'measure: recorded' in the configuration."
            ) from None
        raise UserError(
            f"no usable NVIDIA GPU ({error}); run on a machine with one, or set 'measure: recorded' in the "
            "configuration to use the recorded measurements."
        ) from None
    if count == 0:
        raise UserError(
            "no NVIDIA GPU is visible; check CUDA_VISIBLE_DEVICES, or set 'measure: recorded' in the configuration."
        )


def open_gpu(preferred: str = "") -> Session:
    """Open the GPU that this process has claimed, or one that no other stage has.

    Args:
        preferred: the card of a measurement to be continued (`Gpu.card`).

    Raises:
        UserError: no GPU, no driver, a driver too old for the CUDA libraries, a Python package is missing, or the GPU
            is not the one that the run was planned for.
    """
    for name in PRECISION_SWITCHES:
        if os.environ.pop(name, None) is not None:
            print(f"gemmrepro: ignoring {name} from the environment; it would change what is measured", file=sys.stderr)
    # Imported before it waits for a GPU. CUDA reads CUDA_VISIBLE_DEVICES once, when it is first used, not imported.
    cupy, core, nvml = import_cuda()
    claim_gpu(preferred)
    runtime = cupy.cuda.runtime
    _require_gpu(runtime)
    core.Device(0).set_current()
    properties = runtime.getDeviceProperties(0)
    bus = runtime.deviceGetPCIBusId(0)
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByPciBusId(bus)

    def optional(query: Callable[..., Any], *args: Any) -> Any:
        try:
            return query(handle, *args)
        except nvml.NVMLError:
            return None

    name = _text(properties["name"])
    slots.check_expected(name)
    version = runtime.driverGetVersion()
    cap = optional(nvml.nvmlDeviceGetEnforcedPowerLimit)
    gpu = Gpu(
        name=name,
        compute_capability=(properties["major"], properties["minor"]),
        sm_count=properties["multiProcessorCount"],
        l2_bytes=properties["l2CacheSize"],
        memory_bytes=properties["totalGlobalMem"],
        driver=nvml.nvmlSystemGetDriverVersion(),
        driver_cuda=(version // 1000, version % 1000 // 10),
        clock_max_mhz=optional(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
        memory_clock_mhz=optional(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM),
        power_cap_w=None if cap is None else cap / 1000.0,
        pci_bus=_text(bus),
        card=slots.anonymous(_text(nvml.nvmlDeviceGetUUID(handle))),
    )
    stream = cupy.cuda.Stream(non_blocking=True)
    stream.use()
    return Session(gpu, stream, core.Stream.from_handle(stream.ptr), nvml, handle)


def described() -> dict[str, Any]:
    """The output of `python -m gemmrepro.gpu.describe`, run as a child process so that this one does not open the GPU.

    Raises:
        UserError: no GPU can be used; the child process prints why.
    """
    try:
        text = subprocess.check_output(
            [sys.executable, "-m", "gemmrepro.gpu.describe"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "workflow")},
            text=True,
        )
    except subprocess.CalledProcessError:
        raise UserError("nothing can be measured here; see the reason above.") from None
    return json.loads(text)
