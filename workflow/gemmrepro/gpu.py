"""The GPU at hand: what it is, how kernels are loaded and launched on it, and what its sensors say.

Everything that needs a driver is imported inside functions, so that this module can be imported, and its pure parts
tested, on a machine without a GPU. CuPy holds the arrays, cuda.core loads and launches, NVML (nvidia-ml-py) reads the
sensors.

    python -m gemmrepro.gpu            prints the GPU as JSON; exits 1 with the reason where none can be used
    python -m gemmrepro.gpu --slug     prints the name its recordings go by ("h200")
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro.cublas import opened, opened_lt
from gemmrepro.errors import UserError, run_stage
from gemmrepro.files import ROOT, read_json
from gemmrepro.operands import STORAGE, Operands
from gemmrepro.registry import Kernel, Launch, LibraryStep, Shape, Step

# Switches by which libraries silently trade precision for speed, or the reverse. What is measured here is plain
# arithmetic of the stated type, so none of them may be inherited from the caller's shell.
PRECISION_SWITCHES = (
    "NVIDIA_TF32_OVERRIDE",
    "CUPY_TF32",
    "CUBLAS_EMULATE_SINGLE_PRECISION",
    "CUBLAS_EMULATE_DOUBLE_PRECISION",
    "CUBLAS_EMULATION_STRATEGY",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)

PORTABLE_SHARED_BYTES = 48 * 1024

# Bits of NVML's clocks-event-reasons mask (nvml.h, nvmlClocksEventReason*). "Idle" is no throttling and is left out.
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
    """What a GPU is. Bytes, MHz and W; a field NVML does not know is None."""

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

    @property
    def slug(self) -> str:
        """The name under which its recordings are filed."""
        return slug(self.name)

    @property
    def arch(self) -> str:
        """Its machine code's name, such as ``sm_90``."""
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
        }


def slug(name: str) -> str:
    """A GPU's marketing name as a folder name: ``NVIDIA GeForce RTX 4090`` becomes ``rtx-4090``."""
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word not in ("", "nvidia", "geforce")]
    return "-".join(words) or "gpu"


def throttle_names(mask: int) -> list[str]:
    """Names of the throttle reasons set in NVML's `mask`, lowest bit first."""
    return [name for bit, name in THROTTLE_REASONS.items() if mask & bit]


def pick_arch(archs: list[str], capability: tuple[int, int]) -> str | None:
    """Which of a fat binary's machine codes a GPU of `capability` runs, or None.

    Machine code runs on its own major version at the same or a later minor one; code for an architecture-specific
    target (``sm_90a``) runs on exactly that one (CUDA C++ Programming Guide, "Binary Compatibility").
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


class Session:
    """An open GPU: one stream on which everything runs, in order, and its sensors."""

    def __init__(self, gpu: Gpu, stream: Any, core_stream: Any, nvml: Any, nvml_handle: Any) -> None:
        self.gpu = gpu
        self.stream = stream
        self.core_stream = core_stream
        self._nvml = nvml
        self._handle = nvml_handle
        self.workspace: tuple[str, Shape, dict[str, Any]] | None = None

    def sync(self) -> None:
        """Wait for the stream; a kernel that failed on the GPU surfaces here as a UserError."""
        from cupy.cuda.runtime import CUDARuntimeError

        try:
            self.stream.synchronize()
        except CUDARuntimeError as error:
            raise UserError(
                f"a kernel failed on the {self.gpu.name} ({error}); run it under compute-sanitizer to find where."
            ) from None

    def free_bytes(self) -> int:
        """Free memory of the GPU, CuPy's cached blocks given back first."""
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()
        return int(cupy.cuda.runtime.memGetInfo()[0])

    def sensors(self) -> dict[str, Any]:
        """SM clock in MHz, power in W, temperature in °C, throttle mask. A sensor the GPU lacks is None."""
        nvml, handle = self._nvml, self._handle

        def read(query: Callable[..., Any], *args: Any) -> Any:
            try:
                return query(handle, *args)
            except nvml.NVMLError:
                return None

        # The plain query averages over a second on recent GPUs, longer than most bursts here.
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

    def other_processes(self) -> int:
        """How many processes but this one and its parent have this GPU open; 0 where the driver does not tell."""
        try:
            running = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except self._nvml.NVMLError:
            return 0
        return sum(1 for process in running if process.pid not in (0, os.getpid(), os.getppid()))


def _import_cuda() -> tuple[Any, Any, Any]:
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
        raise UserError(f"{error.name} cannot be imported; install cuda-core and nvidia-ml-py beside CuPy.") from None
    return cupy, core, pynvml


def open_gpu() -> Session:
    """Open the first visible GPU.

    Raises:
        UserError: no GPU, no driver, a driver too old for the CUDA libraries, or a Python package is missing.
    """
    for name in PRECISION_SWITCHES:
        if os.environ.pop(name, None) is not None:
            print(f"gemmrepro: ignoring {name} from the environment; it would change what is measured", file=sys.stderr)
    cupy, core, nvml = _import_cuda()
    runtime = cupy.cuda.runtime
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

    name = properties["name"]
    version = runtime.driverGetVersion()
    cap = optional(nvml.nvmlDeviceGetEnforcedPowerLimit)
    gpu = Gpu(
        name=name.decode() if isinstance(name, bytes) else name,
        compute_capability=(properties["major"], properties["minor"]),
        sm_count=properties["multiProcessorCount"],
        l2_bytes=properties["l2CacheSize"],
        memory_bytes=properties["totalGlobalMem"],
        driver=nvml.nvmlSystemGetDriverVersion(),
        driver_cuda=(version // 1000, version % 1000 // 10),
        clock_max_mhz=optional(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_SM),
        memory_clock_mhz=optional(nvml.nvmlDeviceGetMaxClockInfo, nvml.NVML_CLOCK_MEM),
        power_cap_w=None if cap is None else cap / 1000.0,
        pci_bus=bus if isinstance(bus, str) else bus.decode(),
    )
    stream = cupy.cuda.Stream(non_blocking=True)
    stream.use()
    return Session(gpu, stream, core.Stream.from_handle(stream.ptr), nvml, handle)


@contextlib.contextmanager
def exclusive(session: Session) -> Iterator[None]:
    """Hold the GPU against other stages of this project: two jobs on one GPU would time each other.

    Waits, and says so, while another process holds it.
    """
    with _held(session, fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def shared(session: Session) -> Iterator[None]:
    """Hold the GPU beside others that check numbers and time nothing, against stages that hold it alone."""
    with _held(session, fcntl.LOCK_SH):
        yield


@contextlib.contextmanager
def _held(session: Session, how: int) -> Iterator[None]:
    path = Path(tempfile.gettempdir()) / f"gemmrepro-{re.sub(r'[^0-9a-zA-Z]+', '-', session.gpu.pci_bus)}.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
        except OSError:
            print("gemmrepro: waiting for another stage that holds the GPU", file=sys.stderr, flush=True)
            fcntl.flock(handle, how)
        yield
    finally:
        os.close(handle)


FATBIN_MAGIC = 0xBA55ED50
"""How a fat binary begins (fatbinary.h): magic, version, size of this header, and of what follows it."""


def fat_binaries(data: bytes) -> list[bytes]:
    """The fat binaries that stand one behind the other in `data`; a cubin is given back as it is.

    Raises:
        UserError: the last one is cut short.
    """
    if data.startswith(b"\x7fELF"):
        return [data]
    found, start = [], 0
    while start < len(data):
        magic, _, header, size = struct.unpack_from("<IHHQ", data.ljust(start + 16, b"\0"), start)
        end = start + header + size
        if magic != FATBIN_MAGIC or end > len(data):
            raise UserError("the binary is no fat binary, or is cut short; run the build stage again.")
        found.append(data[start:end])
        start = end
    return found


def build_record(kernel: Kernel, build: Path, toolkit: str) -> dict[str, Any]:
    """The build stage's JSON of `kernel`. Raises UserError if it is missing or corrupt."""
    return read_json(
        Path(build) / toolkit / f"{kernel.id}.json",
        "the build record",
        f"run the build stage: python -m gemmrepro.build --kernel {kernel.id} --toolkit {toolkit}",
    )


class Loaded:
    """A kernel of the registry, loaded on the GPU from the binary the build stage made."""

    def __init__(self, session: Session, kernel: Kernel, build: Path, toolkit: str) -> None:
        """Load it.

        Raises:
            UserError: the binary is missing, has no code for this GPU, needs a newer driver, or cannot be loaded.
        """
        record = build_record(kernel, build, toolkit)
        gpu = session.gpu
        if gpu.compute_capability < kernel.min_capability:
            raise UserError(
                f"{kernel.id} needs compute capability {kernel.min_capability[0]}.{kernel.min_capability[1]} and the "
                f"{gpu.name} has {gpu.compute_capability[0]}.{gpu.compute_capability[1]}."
            )
        arch = pick_arch(list(record["archs"]), gpu.compute_capability)
        if arch is None:
            number = gpu.arch.removeprefix("sm_")
            if any(number in refusal.archs for refusal in kernel.refusals):
                raise UserError(f"{kernel.id} cannot run on the {gpu.name}: its compiler refuses {gpu.arch}.")
            if kernel.targets:
                raise UserError(
                    f"{kernel.id} is written for sm_{', sm_'.join(kernel.targets)} alone and cannot run on the "
                    f"{gpu.name} ({gpu.arch})."
                )
            raise UserError(
                f"the {toolkit} binary of {kernel.id} has code for {', '.join(record['archs'])} and none for the "
                f"{gpu.name} ({gpu.arch}); add {number} to build.{toolkit} in the configuration and build again."
            )
        toolkit_major = int(str(record["toolkit_version"]).split(".")[0])
        if toolkit_major > gpu.driver_cuda[0]:
            raise UserError(
                f"driver {gpu.driver} supports CUDA {gpu.driver_cuda[0]}.{gpu.driver_cuda[1]} and cannot load what "
                f"CUDA {record['toolkit_version']} built; update the driver, or leave {toolkit} out of sweep.toolkits."
            )
        path = Path(build) / toolkit / f"{kernel.id}.fatbin"
        if not path.is_file():
            raise UserError(f"the binary {path} is missing; run the build stage again.")
        self._setup(session, kernel, toolkit, record["build_key"], arch, path)

    def _setup(self, session: Session, kernel: Kernel, toolkit: str, build_key: str, arch: str, path: Path) -> None:
        from cuda.core import ObjectCode

        self.session, self.kernel, self.toolkit = session, kernel, toolkit
        self.build_key, self.arch = build_key, arch
        try:
            images = [ObjectCode.from_fatbin(one, name=kernel.id) for one in fat_binaries(path.read_bytes())]
            held = images if len(images) == len(kernel.codes) else images * len(kernel.codes)
            self._functions = {
                code.entry: image.get_kernel(code.entry) for code, image in zip(kernel.codes, held, strict=True)
            }
        except Exception as error:
            raise UserError(
                f"{path} cannot be loaded on the {session.gpu.name} ({error}); build it again, with code for "
                f"{session.gpu.arch}, and check that its entry point is called '{kernel.entry}'."
            ) from None
        self._code = images
        self._shared_set = dict.fromkeys(self._functions, 0)

    @classmethod
    def from_file(cls, session: Session, kernel: Kernel, path: Path, toolkit: str = "test") -> Loaded:
        """Load `kernel` from any fat binary or cubin, without a build record; for tests of changed sources."""
        self = cls.__new__(cls)
        self._setup(session, kernel, toolkit, "unrecorded", session.gpu.arch, Path(path))
        return self

    def _config(self, launch: Launch, entry: str) -> Any:
        from cuda.core import LaunchConfig

        if launch.shared_bytes > PORTABLE_SHARED_BYTES and launch.shared_bytes > self._shared_set[entry]:
            from cuda.bindings import driver

            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            (status,) = driver.cuKernelSetAttribute(
                attribute, launch.shared_bytes, driver.CUkernel(int(self._functions[entry].handle)), driver.CUdevice(0)
            )
            if status != driver.CUresult.CUDA_SUCCESS:
                raise UserError(
                    f"{self.kernel.id} wants {launch.shared_bytes} bytes of dynamic shared memory a block, which the "
                    f"{self.session.gpu.name} does not give ({status.name})."
                )
            self._shared_set[entry] = launch.shared_bytes
        grid = launch.grid
        options: dict[str, Any] = {}
        if launch.cluster is not None:
            if any(blocks % size for blocks, size in zip(grid, launch.cluster, strict=True)):
                raise UserError(f"{self.kernel.id}: grid {grid} is not a multiple of its cluster {launch.cluster}.")
            # The registry counts the grid in blocks, cuda.core in clusters.
            grid = tuple(blocks // size for blocks, size in zip(grid, launch.cluster, strict=True))
            options["cluster"] = launch.cluster
        return LaunchConfig(grid=grid, block=launch.block, shmem_size=launch.shared_bytes, **options)

    def bind(self, operands: Operands, part: Kernel | None = None) -> Callable[[], None]:
        """A function that launches the kernel once on `operands`, asynchronously on the session's stream.

        Args:
            part: which of the kernel's parts; by default the one that it chooses for the shape.

        Raises:
            UserError: the rung cannot run this shape; it is named.
        """
        self.kernel.check(operands.shape)
        part = part or self.kernel.at(operands.shape)
        steps = part.steps_at(operands.shape)
        if not steps:
            return self._bound(operands, part, {})
        if part.program is not None:
            launches, program = self.launches(operands), part.program
            return lambda: program(launches)
        arrays = self.workspace(operands.shape)
        calls = [
            self._bound(operands, part.part(step), arrays)
            if isinstance(step, Step)
            else self._library(operands.shape, step, arrays)
            for step in steps
        ]
        return _in_order(calls)

    def workspace(self, shape: Shape) -> dict[str, Any]:
        """The arrays that the kernel's launches hand on, for `shape`: the same until another kernel or shape comes.

        They begin as NaN, or as the integer whose bits are all set: whoever relies on zeros there shows. What was bound
        to them keeps them.
        """
        import cupy

        held = self.session.workspace
        if held is None or held[:2] != (self.kernel.id, shape):
            self.session.workspace = None
            cupy.get_default_memory_pool().free_all_blocks()  # what the last one leaves is of other sizes
            arrays = {}
            for name, buffer in self.kernel.workspace.items():
                arrays[name] = cupy.empty(buffer.lengths(shape), STORAGE[buffer.dtype])
                cupy.cuda.runtime.memsetAsync(arrays[name].data.ptr, 0xFF, arrays[name].nbytes, self.session.stream.ptr)
            held = self.session.workspace = (self.kernel.id, shape, arrays)
        return held[2]

    def launches(self, operands: Operands) -> Launches:
        """Its launches on `operands`, to be made one by one."""
        return Launches(self, operands)

    def _bound(self, operands: Operands, part: Kernel, arrays: Mapping[str, Any]) -> Callable[[], None]:
        """A function that makes one launch, with `arrays` beside the operands; they live as long as it does."""
        from cuda.core import launch

        config = self._config(part.launch(operands.shape), part.entry)
        arguments = operands.arguments(part, arrays)
        stream, function = self.session.core_stream, self._functions[part.entry]

        def call(kept: Any = arrays) -> None:
            launch(stream, config, function, *arguments)

        return call

    def _library(self, shape: Shape, step: LibraryStep, arrays: Mapping[str, Any]) -> Callable[[], None]:
        """A function that has cuBLAS do `step`, as cublasLt's heuristic likes best."""
        strides = step.strides(shape)
        flat = [arrays[name].reshape(-1) for name in step.arrays]
        calls = []
        for i in range(step.count):
            a, b, c = (array[i * stride :] for array, stride in zip(flat, strides, strict=True))
            one = Operands(step.problem, step.shape(shape), (a, b), c)
            ways = opened_lt(self.session).candidates(one, 1)
            calls.append(ways[0] if ways else opened(self.session).gemm_ex(one))
        return _in_order(calls)


def _in_order(calls: list[Callable[[], None]]) -> Callable[[], None]:
    """One function that makes all `calls`."""

    def call() -> None:
        for one in calls:
            one()

    return call


class Launches:
    """What a kernel's `program` works with: its launches by entry, its workspace and operands, and the stream."""

    def __init__(self, loaded: Loaded, operands: Operands) -> None:
        self._loaded, self._operands = loaded, operands
        self.shape = operands.shape
        self.workspace = loaded.workspace(operands.shape)
        self.operands = {name: array.reshape(operands.lengths(name)) for name, array in operands.arrays().items()}

    def bind(self, *entries: str, **arrays: Any) -> Callable[[], None]:
        """A function that makes the launches called so, in the order of the run, asynchronously.

        Args:
            arrays: what to pass in place of the arrays that their arguments name.

        Raises:
            UserError: the kernel has no such launch.
        """
        kernel = self._loaded.kernel
        launches = [step for step in kernel.steps_at(self.shape) if isinstance(step, Step)]
        if unknown := {*entries} - {step.entry for step in launches}:
            named = ", ".join(f"'{entry}'" for entry in sorted(unknown))
            raise UserError(f"{kernel.id} has no launch {named}; mend its program, or name one among its steps.")
        steps = [step for step in launches if step.entry in entries]
        given = {**self.workspace, **arrays}
        return _in_order([self._loaded._bound(self._operands, kernel.part(step), given) for step in steps])

    def __call__(self, entry: str, **arrays: Any) -> None:
        """Make the launches called `entry`; see `bind`."""
        self.bind(entry, **arrays)()

    def read(self, array: Any) -> Any:
        """`array` on the host, once everything that was launched is done."""
        return array.get(stream=self._loaded.session.stream)


def described() -> dict[str, Any]:
    """What `python -m gemmrepro.gpu` prints, asked in another process: this one must not occupy the GPU.

    Raises:
        UserError: no GPU can be used; the other process has said why.
    """
    try:
        text = subprocess.check_output(
            [sys.executable, "-m", "gemmrepro.gpu"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "workflow")},
            text=True,
        )
    except subprocess.CalledProcessError:
        raise UserError("nothing can be measured here; see the reason above.") from None
    return json.loads(text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gemmrepro.gpu", description="Describe the GPU at hand.")
    parser.add_argument("--slug", action="store_true", help="print only the name its recordings go by")
    arguments = parser.parse_args()
    gpu = open_gpu().gpu
    print(gpu.slug if arguments.slug else json.dumps({**gpu.describe(), "slug": gpu.slug}, indent=2))
    return 0


if __name__ == "__main__":
    run_stage(main)
