"""This machine's GPU: its properties, its stream and its sensors.

Whatever needs a driver is imported inside functions, so that this module can be imported, and its pure parts tested,
without a GPU. CuPy holds arrays, cuda.core loads and launches kernels, NVML (nvidia-ml-py) reads sensors.
"""

import contextlib
import fcntl
import json
import os
import re
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from gemmrepro.core import files
from gemmrepro.core.names import LEAST_CAPABILITY
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.gpu import slots
from gemmrepro.gpu.cublas import Trials
from gemmrepro.operations import Shape
from gemmrepro.registry import card

SWITCHES = re.compile(
    "(CUDA|CUBLAS|CUBLASLT|CUDNN|CUPY|CUTE_DSL|NVTX|TORCH|TORCHDYNAMO|TORCHINDUCTOR|PYTORCH|TRITON)_.*|NVIDIA_TF32_OVERRIDE"
    "|DISABLE_ADDMM_CUDA_LT"
)
PLACES = re.compile(
    ".*_(HOME|ROOT|DIR|DIRECTORY|VERSION)|CUDA_(VISIBLE_DEVICES|DEVICE_ORDER|PATH|INC_PATH|CACHE_PATH|CACHE_MAXSIZE)"
)
"""Variables of the same libraries that only say where something is, or which GPUs to use."""

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
    """Properties of a GPU, in bytes, MHz and W; None where the driver does not tell.

    Attributes:
        card: tells one GPU of a model from another: a hash of its UUID, or of the MIG slice's.
        mig: whether it is a MIG slice, which has neither power nor energy: those are the card's.
        watchdog: whether the driver ends launches that take seconds, as it does where a desktop is shown.
        display: whether a display is attached and lit.
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
    mig: bool = False
    watchdog: bool | None = None
    display: bool | None = None

    @property
    def watched(self) -> bool:
        """Whether a launch of seconds would be ended: by the driver's word, else where a display is attached."""
        return bool(self.display) if self.watchdog is None else self.watchdog

    @property
    def slug(self) -> str:
        return slug(self.name)

    @property
    def machine(self) -> dict[str, str]:
        """The machine that a journal's entries belong to: this card, by the hash of its UUID, and its driver."""
        return {"gpu": self.name, "driver": self.driver, "card": self.card}

    @property
    def arch(self) -> str:
        """Its architecture, such as ``sm_90``."""
        return f"sm_{self.compute_capability[0]}{self.compute_capability[1]}"

    def describe(self) -> dict[str, Any]:
        """The ``gpu`` object of run.json."""
        capability = "{}.{}".format(*self.compute_capability)
        of_card = ("sm_count", "l2_bytes", "memory_bytes", "driver", "clock_max_mhz", "memory_clock_mhz", "power_cap_w")
        told = {name: getattr(self, name) for name in (*of_card, "card")}
        return {"name": self.name, "compute_capability": capability, **told}


def slug(name: str) -> str:
    """A GPU's marketing name as a folder name: ``NVIDIA GeForce RTX 4090`` becomes ``rtx-4090``."""
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word not in ("", "nvidia", "geforce")]
    return "-".join(words) or "gpu"


def throttle_names(mask: int) -> list[str]:
    """Names of the throttle reasons set in NVML's `mask`, lowest bit first."""
    return [name for bit, name in THROTTLE_REASONS.items() if mask & bit]


@dataclass(frozen=True)
class HeldArrays:
    """A kernel's workspace for one shape: arrays by name."""

    kernel: str
    shape: Shape
    arrays: dict[str, Any]


class Session:
    """An open GPU with its sensors, and one stream on which everything runs in order.

    Attributes:
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
        nvml = self._nvml
        # On recent GPUs the plain query averages over a second, which is longer than most bursts.
        power = None
        fields = self._ask(nvml.nvmlDeviceGetFieldValues, [nvml.NVML_FI_DEV_POWER_INSTANT])
        if fields and fields[0].nvmlReturn == nvml.NVML_SUCCESS:
            power = fields[0].value.uiVal
        if power is None:
            power = self._ask(nvml.nvmlDeviceGetPowerUsage)
        reasons = (
            getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
            or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        )
        return {
            "clock_mhz": self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            "power_w": None if power is None or self.gpu.mig else power / 1000.0,
            "temp_c": self._ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            "throttle": self._ask(reasons),
        }

    def energy(self) -> float | None:
        """The energy that the GPU has used since the driver was loaded, in J; None if it does not count it."""
        used = None if self.gpu.mig else self._ask(self._nvml.nvmlDeviceGetTotalEnergyConsumption)
        return None if used is None else float(used) / 1000.0

    def other_processes(self) -> int:
        """Number of processes that use this GPU, except this one and its parent; 0 if the driver does not know."""
        running = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses) or ()
        return sum(1 for process in running if process.pid not in (0, os.getpid(), os.getppid()))

    def _ask(self, query: Callable[..., Any], *args: Any) -> Any:
        return ask(self._nvml, query, self._handle, *args)


def ask(nvml: Any, query: Callable[..., Any], *args: Any) -> Any:
    """NVML's answer to a query; None if it has none, or there is no handle to ask by."""
    try:
        return None if args[0] is None else query(*args)
    except nvml.NVMLError:
        return None


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
    Has no effect without a driver or without NVML's package, which `open_gpu` reports. `preferred`: the card of a
    measurement to be continued (`Gpu.card`)."""
    try:
        import pynvml as nvml
    except ImportError:
        return

    def parent(slice_uuid: str) -> str | None:
        handle = ask(nvml, nvml.nvmlDeviceGetHandleByUUID, slice_uuid)
        card = ask(nvml, nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle)
        uuid: str | None = ask(nvml, nvml.nvmlDeviceGetUUID, card)
        return uuid

    try:
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError:
        return
    gpus = []
    for index in range(count):
        handle = ask(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
        name = ask(nvml, nvml.nvmlDeviceGetName, handle)
        capability = ask(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)
        uuid = ask(nvml, nvml.nvmlDeviceGetUUID, handle)
        if name and capability and uuid:  # else the card is lost
            gpus.append(slots.HostGpu(name, 10 * capability[0] + capability[1], uuid))
    slots.claim(gpus, preferred=preferred, parent=parent)


def free_memory() -> int | None:
    """Free memory of the claimed GPU in bytes, without opening it; None where NVML does not say."""
    try:
        import pynvml as nvml

        nvml.nvmlInit()
        name = os.environ.get(slots.VISIBLE, "0")
        by = nvml.nvmlDeviceGetHandleByIndex if name.isdecimal() else nvml.nvmlDeviceGetHandleByUUID
        return int(nvml.nvmlDeviceGetMemoryInfo(by(int(name) if name.isdecimal() else name)).free)
    except Exception:  # no package, no driver, or a name of several GPUs: then it is not known
        return None


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
    `preferred`: the card of a measurement to be continued (`Gpu.card`). Raises UserError without a GPU, a driver or a
    Python package, for a driver too old for the CUDA libraries, or for another GPU than the run was planned for."""
    drop_switches(os.environ)
    # Imported before it waits for a GPU. CUDA reads CUDA_VISIBLE_DEVICES once, when it is first used, not imported.
    cupy, core, nvml = import_cuda()
    claim_gpu(preferred)
    runtime = cupy.cuda.runtime
    _require_gpu(runtime)
    device = core.Device(0)
    try:
        device.set_current()
    except Exception as error:  # whatever cuda.core makes of CUDA's
        raise UserError(
            f"the GPU cannot be opened ({error}); see with nvidia-smi whether another process has it for itself, or "
            "set 'measure: recorded' in the configuration."
        ) from None
    gpu, handle = _describe(runtime, device, nvml)
    card.use(card.described(gpu.describe()))
    stream = cupy.cuda.Stream(non_blocking=True)
    stream.use()
    return Session(gpu, stream, core.Stream.from_handle(stream.ptr), nvml, handle)


def drop_switches(environ: MutableMapping[str, str]) -> None:
    """Remove what may change how fast, or how exactly, CUDA's and PyTorch's libraries compute; say what."""
    dropped = sorted(name for name in environ if SWITCHES.fullmatch(name) and not PLACES.fullmatch(name))
    for name in dropped:
        del environ[name]
    if dropped:
        print(
            f"gemmrepro: ignoring {', '.join(dropped)} from the environment, which might change what is measured",
            file=sys.stderr,
        )


def _describe(runtime: Any, device: Any, nvml: Any) -> tuple[Gpu, Any]:
    """The current GPU, and its handle in NVML; None where NVML does not know it, as on Jetson.
    Raises UserError if no kernel runs on it, it is not the one that the run was planned for, or NVML does not work."""
    properties = runtime.getDeviceProperties(0)
    name = properties["name"].decode()
    slots.check_expected(name)
    capability = (properties["major"], properties["minor"])
    if 10 * capability[0] + capability[1] < LEAST_CAPABILITY:
        raise UserError(
            f"the {name} has compute capability {capability[0]}.{capability[1]}, and kernels need "
            f"{LEAST_CAPABILITY // 10}.{LEAST_CAPABILITY % 10}; set 'measure: recorded' in the configuration."
        )
    try:
        nvml.nvmlInit()
        driver = nvml.nvmlSystemGetDriverVersion()
    except nvml.NVMLError as error:
        raise UserError(
            f"the driver's NVML does not work ({error}); where nvidia-smi fails as well, restart or reinstall the "
            "driver, else (in a container) pass --nv; or set 'measure: recorded' in the configuration."
        ) from None
    bus = runtime.deviceGetPCIBusId(0)
    handle = ask(nvml, nvml.nvmlDeviceGetHandleByPciBusId, bus)
    modes = ask(nvml, nvml.nvmlDeviceGetMigMode, handle)
    mig = " MIG " in name or (bool(modes) and modes[0] == nvml.NVML_DEVICE_MIG_ENABLE)
    if mig:
        print(f"gemmrepro: {name} is a MIG slice; power and energy are its card's, so none is told", file=sys.stderr)
    # CUDA has the slice's, NVML the card's.
    uuid = None if mig else ask(nvml, nvml.nvmlDeviceGetUUID, handle)
    version = runtime.driverGetVersion()
    cap = None if mig else ask(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    lit = ask(nvml, nvml.nvmlDeviceGetDisplayActive, handle)
    watchdog = None
    with contextlib.suppress(Exception):  # whatever cuda.core makes of CUDA's
        watchdog = bool(device.properties.kernel_exec_timeout)
    return Gpu(
        name=name,
        compute_capability=capability,
        sm_count=properties["multiProcessorCount"],
        l2_bytes=properties["l2CacheSize"],
        memory_bytes=properties["totalGlobalMem"],
        driver=driver,
        driver_cuda=(version // 1000, version % 1000 // 10),
        clock_max_mhz=ask(nvml, nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
        memory_clock_mhz=ask(nvml, nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_MEM),
        power_cap_w=None if cap is None else cap / 1000.0,
        pci_bus=bus,
        card=slots.anonymous(uuid or f"{'MIG' if mig else 'GPU'}-{device.uuid}"),
        mig=mig,
        watchdog=watchdog,
        display=None if lit is None else bool(lit),
    ), handle


def described() -> dict[str, Any]:
    """The output of `python -m gemmrepro gpu`, run as a child process so that this one does not open the GPU.
    Raises UserError if no GPU can be used; the child prints why."""
    try:
        text = subprocess.check_output(
            [sys.executable, "-m", "gemmrepro", "gpu"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "workflow")},
            text=True,
        )
    except subprocess.CalledProcessError:
        raise UserError("nothing can be measured here; see the reason above.") from None
    return json.loads(text)


def describe_step(options: Namespace) -> int:
    gpu = open_gpu().gpu
    print(gpu.slug if options.slug else json.dumps({**gpu.describe(), "slug": gpu.slug}, indent=2))
    return 0


def exclusive(session: Session) -> AbstractContextManager[None]:
    """Hold the GPU exclusively among stages of this project, since a second job would disturb timings."""
    return _locked(session, fcntl.LOCK_EX)


def shared(session: Session) -> AbstractContextManager[None]:
    """Share the GPU with other stages that time nothing, and exclude those that need it exclusively."""
    return _locked(session, fcntl.LOCK_SH)


@contextlib.contextmanager
def _locked(session: Session, how: int) -> Iterator[None]:
    """The lock of the session's card; waits, with a message, while another process holds it."""
    file = files.open_shared(session.gpu.card)
    try:
        if not files.lock(file, how | fcntl.LOCK_NB):
            print("gemmrepro: waiting for another stage that holds the GPU", file=sys.stderr, flush=True)
            files.lock(file, how)
        yield
    finally:
        os.close(file)
