import pytest

from gemmrepro.errors import UserError
from gemmrepro.host.gpu_probe import HostGpu, resolve_measure

GPU = HostGpu("NVIDIA H200", 90, "580.159")


@pytest.mark.parametrize(
    ("wanted", "gpu", "resolved"),
    [
        ("auto", GPU, "live"),
        ("auto", None, "recorded"),
        ("live", GPU, "live"),
        ("recorded", GPU, "recorded"),
        ("recorded", None, "recorded"),
    ],
)
def test_measure_resolves(wanted, gpu, resolved):
    assert resolve_measure(wanted, gpu, "nvidia-smi is not on PATH") == resolved


def test_live_without_gpu_names_the_reason_and_the_way_out():
    with pytest.raises(UserError, match=r"nvidia-smi is not on PATH.*auto or recorded"):
        resolve_measure("live", None, "nvidia-smi is not on PATH")
