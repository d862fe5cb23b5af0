"""The L2 persisting window: what the GPU allows is asked, never exceeded, and given back whatever happens."""

import sys
from types import SimpleNamespace

import pytest

from gemmrepro.errors import UserError
from gemmrepro.gpu import l2_window

SUCCESS, REFUSED = SimpleNamespace(name="CUDA_SUCCESS"), SimpleNamespace(name="CUDA_ERROR_NOT_SUPPORTED")
SESSION = SimpleNamespace(sync=lambda: None, stream=SimpleNamespace(ptr=7), gpu=SimpleNamespace(name="Test GPU"))


class Names:
    """An enumeration of the driver: a member is its name."""

    def __getattr__(self, name: str) -> str:
        return name


def driver_of(monkeypatch, aside: int, span: int, refuse: bool = False) -> list:
    """Put a driver with these limits in the place of CUDA's; returns the log of what was set."""
    log: list = []

    def set_window(stream, which, value):
        window = value.accessPolicyWindow
        log.append((stream, window.base_ptr, window.num_bytes, window.hitRatio, window.hitProp.rpartition("_")[2]))
        return (REFUSED if refuse and window.num_bytes else SUCCESS,)

    driver = SimpleNamespace(
        **dict.fromkeys(("CUdevice_attribute", "CUlimit", "CUaccessProperty", "CUstreamAttrID"), Names()),
        CUresult=SimpleNamespace(CUDA_SUCCESS=SUCCESS),
        CUstreamAttrValue=lambda: SimpleNamespace(accessPolicyWindow=SimpleNamespace()),
        cuCtxGetDevice=lambda: (SUCCESS, 0),
        cuDeviceGetAttribute=lambda name, _: (SUCCESS, aside if "PERSISTING" in name else span),
        cuCtxSetLimit=lambda which, value: log.append(value) or (SUCCESS,),
        cuCtxGetLimit=lambda which: (SUCCESS, log[0]),
        cuCtxResetPersistingL2Cache=lambda: log.append("reset") or (SUCCESS,),
        cuStreamSetAttribute=set_window,
    )
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace(bindings=SimpleNamespace(driver=driver)))
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=driver))
    return log


def array(size: int) -> SimpleNamespace:
    return SimpleNamespace(nbytes=size, data=SimpleNamespace(ptr=4096))


@pytest.mark.parametrize(("size", "aside", "span"), [(1000, 1000, 1000), (5000, 3000, 4000)])
def test_a_window_asks_for_no_more_than_the_gpu_allows(monkeypatch, size, aside, span):
    log = driver_of(monkeypatch, aside=3000, span=4000)
    with l2_window.window(SESSION, array(size)) as kept:
        assert kept == aside and log == [aside, (7, 4096, span, 1.0, "PERSISTING")]
    assert log[2:] == [(7, 0, 0, 0.0, "NORMAL"), "reset", 0]


def test_an_error_of_the_driver_is_told_and_everything_given_back(monkeypatch):
    driver_of(monkeypatch, aside=0, span=4000)
    with pytest.raises(UserError, match="Test GPU sets no part of L2 aside"), l2_window.window(SESSION, array(8)):
        pass
    log = driver_of(monkeypatch, aside=3000, span=4000, refuse=True)
    with pytest.raises(UserError, match="CUDA_ERROR_NOT_SUPPORTED"), l2_window.window(SESSION, array(8)):
        pass
    assert log[2:] == [(7, 0, 0, 0.0, "NORMAL"), "reset", 0]
