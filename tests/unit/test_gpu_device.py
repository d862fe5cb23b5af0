"""What is told of a GPU when the driver tells less, or nothing: stand-ins for NVML and CUDA fail call by call."""

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from gemmrepro.errors import UserError
from gemmrepro.gpu import device, slots

PROPERTIES = {
    "name": b"NVIDIA H200",
    "major": 9,
    "minor": 0,
    "multiProcessorCount": 132,
    "l2CacheSize": 50 << 20,
    "totalGlobalMem": 140 << 30,
}


class NVMLError(Exception):
    pass


class Nvml:
    """NVML of a host with one GPU. The calls named in `failing`, or all, raise; `called` has those that were made."""

    NVMLError = NVMLError
    NVML_SUCCESS, NVML_DEVICE_MIG_ENABLE, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 0, 1, 1, 2, 0
    NVML_FI_DEV_POWER_INSTANT = 186

    def __init__(self, failing: set[str] | None = None, mig: bool = False) -> None:
        instant = SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=500_000))
        self.answers: dict[str, Any] = {
            "nvmlInit": None,
            "nvmlSystemGetDriverVersion": "580.65.06",
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": "card",
            "nvmlDeviceGetHandleByPciBusId": "card",
            "nvmlDeviceGetHandleByUUID": "slice",
            "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": "card",
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetUUID": "GPU-1",
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetMigMode": [int(mig)] * 2,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetDisplayActive": 0,
            "nvmlDeviceGetFieldValues": [instant],
            "nvmlDeviceGetPowerUsage": 400_000,
            "nvmlDeviceGetClockInfo": 1755,
            "nvmlDeviceGetTemperature": 45,
            "nvmlDeviceGetCurrentClocksEventReasons": 4,
            "nvmlDeviceGetTotalEnergyConsumption": 2_000,
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=1 << 30)],
        }
        self.failing, self.called = failing or set(), set[str]()

    def __getattr__(self, name: str) -> Any:
        if name not in self.answers:
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            assert None not in arguments
            self.called.add(name)
            if name in self.failing:
                raise NVMLError("Not Supported")
            return self.answers[name]

        return call


def release() -> None:
    """Give back what this process has claimed."""
    while slots._held:
        os.close(slots._held.pop())


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """Opens the GPU of a stand-in for NVML, and reads everything that a session reads."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    environ: dict[str, str] = {}
    monkeypatch.setattr(os, "environ", environ)

    def open_and_read(nvml: Nvml, properties: dict[str, Any] = PROPERTIES, watchdog: Any = True) -> tuple[Any, ...]:
        environ.clear()
        release()
        runtime = SimpleNamespace(
            CUDARuntimeError=RuntimeError,
            getDeviceCount=lambda: 1,
            getDeviceProperties=lambda index: properties,
            deviceGetPCIBusId=lambda index: "0000:1b:00.0",
            driverGetVersion=lambda: 13000,
        )
        stream = SimpleNamespace(use=lambda: None, ptr=0)
        cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime, Stream=lambda non_blocking: stream))

        class Properties:
            @property
            def kernel_exec_timeout(self) -> bool:
                if watchdog is None:
                    raise RuntimeError("CUDA_ERROR_INVALID_VALUE")
                return watchdog

        opened = SimpleNamespace(set_current=lambda: None, uuid="2", properties=Properties())
        core = SimpleNamespace(Device=lambda index: opened, Stream=SimpleNamespace(from_handle=lambda pointer: None))
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        monkeypatch.setattr(device, "import_cuda", lambda: (cupy, core, nvml))
        session = device.open_gpu()
        return session.gpu, session.sensors(), session.energy(), session.other_processes()

    yield open_and_read
    release()


def test_everything_is_told_where_nothing_fails(opened):
    gpu, sensors, energy, others = opened(Nvml())
    assert (gpu.card, gpu.power_cap_w, gpu.watchdog, gpu.display) == (slots.anonymous("GPU-1"), 700.0, True, False)
    assert sensors == {"clock_mhz": 1755, "power_w": 500.0, "temp_c": 45, "throttle": 4}
    assert (energy, others) == (2.0, 1)
    assert opened(Nvml(), watchdog=None)[0].watchdog is None


def facts(told: tuple[Any, ...]) -> dict[str, Any]:
    gpu, sensors, energy, others = told
    return {**vars(gpu), **sensors, "energy": energy, "others": others}


@pytest.mark.parametrize("mig", [False, True])
def test_whichever_call_fails_there_is_an_error_with_a_remedy_or_a_fact_less(mig, opened, capsys):
    properties = PROPERTIES | ({"name": b"NVIDIA H200 MIG 1g.18gb"} if mig else {})
    working = Nvml(mig=mig)
    whole = facts(opened(working, properties))
    refused = set()
    for name in working.called:
        try:
            less = facts(opened(Nvml({name}, mig), properties))
        except UserError as error:
            assert "set 'measure: recorded'" in str(error)
            refused.add(name)
        else:
            # Power averaged over a second, CUDA's name of the card, and no other process that is known of.
            assert {less[fact] for fact in whole if less[fact] != whole[fact]} <= {
                None,
                400.0,
                slots.anonymous("GPU-2"),
                0,
            }
    assert refused == {"nvmlInit", "nvmlSystemGetDriverVersion"}
    nothing = facts(opened(Nvml(working.called - refused, mig), properties))
    assert {nothing[fact] for fact in ("clock_mhz", "power_w", "energy", "power_cap_w", "display")} == {None}
    assert nothing["card"] == slots.anonymous("MIG-2" if mig else "GPU-2")
    if mig:  # a name of its own and no power
        assert (whole["mig"], whole["card"], whole["clock_mhz"]) == (True, slots.anonymous("MIG-2"), 1755)
        assert whole["power_cap_w"] is whole["power_w"] is whole["energy"] is None
        assert "is a MIG slice; power and energy are its card's" in capsys.readouterr().err


def test_an_unsupported_gpu_is_refused_before_anything_runs(opened):
    with pytest.raises(UserError, match=r"NVIDIA H200 has compute capability 7\.5, and kernels need 8\.0"):
        opened(Nvml(), PROPERTIES | {"major": 7, "minor": 5})


SWITCHES = (
    "CUDA_LAUNCH_BLOCKING CUDA_FORCE_PTX_JIT CUDA_INJECTION64_PATH CUDA_MODULE_LOADING CUDA_DEVICE_MAX_CONNECTIONS "
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE CUDA_CACHE_DISABLE CUBLASLT_LOG_LEVEL CUBLAS_WORKSPACE_CONFIG "
    "CUBLAS_EMULATION_STRATEGY NVIDIA_TF32_OVERRIDE CUPY_TF32 CUPY_ACCELERATORS TORCHINDUCTOR_MAX_AUTOTUNE "
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE TORCHDYNAMO_DISABLE PYTORCH_NO_CUDA_MEMORY_CACHING TRITON_DEBUG "
    "DISABLE_ADDMM_CUDA_LT"
).split()
PLACES = (
    "CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_CACHE_PATH CUPY_CACHE_DIR TORCHINDUCTOR_CACHE_DIR CUDA_HOME CUDA_PATH "
    "CUDA_MPS_PIPE_DIRECTORY NVIDIA_VISIBLE_DEVICES PATH"
).split()


def test_switches_that_change_times_or_digits_are_dropped_and_places_stay(capsys):
    environ = dict.fromkeys([*SWITCHES, *PLACES, slots.CLAIMED], "1")
    device.drop_switches(environ)
    assert environ.keys() == {*PLACES, slots.CLAIMED}
    told = capsys.readouterr().err
    assert f"ignoring {', '.join(sorted(SWITCHES))} from the environment, which might change" in told
    device.drop_switches(environ)
    assert capsys.readouterr().err == ""
