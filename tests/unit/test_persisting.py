"""The L2 persisting window: what the GPU allows is asked, never exceeded, and given back whatever happens."""

import sys
from types import SimpleNamespace

import pytest

from gemmrepro.errors import UserError
from gemmrepro.gpu import l2_window

SUCCESS, REFUSED = SimpleNamespace(name="CUDA_SUCCESS"), SimpleNamespace(name="CUDA_ERROR_NOT_SUPPORTED")


class Names:
    """An enumeration of the driver: a member is its name."""

    def __getattr__(self, name: str) -> str:
        return name


class Driver:
    """What of cuda.bindings.driver the module uses; `windows` and `limits` log what was set."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=SUCCESS)
    CUdevice_attribute = CUlimit = CUaccessProperty = CUstreamAttrID = Names()

    def __init__(self, aside: int, span: int, refuse: bool = False) -> None:
        self.aside, self.span, self.refuse = aside, span, refuse
        self.windows: list[tuple] = []
        self.limits: list[int] = []
        self.resets = 0

    def CUstreamAttrValue(self):
        return SimpleNamespace(accessPolicyWindow=SimpleNamespace())

    def cuCtxGetDevice(self):
        return SUCCESS, 0

    def cuDeviceGetAttribute(self, name, device):
        return SUCCESS, self.aside if "PERSISTING" in name else self.span

    def cuCtxSetLimit(self, which, value):
        self.limits.append(value)
        return (SUCCESS,)

    def cuCtxGetLimit(self, which):
        return SUCCESS, self.limits[-1]

    def cuCtxResetPersistingL2Cache(self):
        self.resets += 1
        return (SUCCESS,)

    def cuStreamSetAttribute(self, stream, which, value):
        window = value.accessPolicyWindow
        kind = window.hitProp.rpartition("_")[2]
        self.windows.append((stream, window.base_ptr, window.num_bytes, window.hitRatio, kind))
        return (REFUSED if self.refuse and window.num_bytes else SUCCESS,)


SESSION = SimpleNamespace(sync=lambda: None, stream=SimpleNamespace(ptr=7), gpu=SimpleNamespace(name="Test GPU"))


def use(monkeypatch, **options) -> Driver:
    driver = Driver(**options)
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace(bindings=SimpleNamespace(driver=driver)))
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=driver))
    return driver


def array(size: int) -> SimpleNamespace:
    return SimpleNamespace(nbytes=size, data=SimpleNamespace(ptr=4096))


@pytest.mark.parametrize(("size", "aside", "span"), [(1000, 1000, 1000), (5000, 3000, 4000)])
def test_a_window_asks_for_no_more_than_the_gpu_allows(monkeypatch, size, aside, span):
    driver = use(monkeypatch, aside=3000, span=4000)
    with l2_window.window(SESSION, array(size)) as kept:
        assert kept == aside
        assert driver.windows == [(7, 4096, span, 1.0, "PERSISTING")]
        assert driver.limits == [aside]
    assert driver.windows[1:] == [(7, 0, 0, 0.0, "NORMAL")]
    assert driver.limits == [aside, 0] and driver.resets == 1


def test_an_error_of_the_driver_is_told_and_everything_given_back(monkeypatch):
    use(monkeypatch, aside=0, span=4000)
    with pytest.raises(UserError, match="Test GPU sets no part of L2 aside"), l2_window.window(SESSION, array(8)):
        pass
    driver = use(monkeypatch, aside=3000, span=4000, refuse=True)
    with pytest.raises(UserError, match="CUDA_ERROR_NOT_SUPPORTED"), l2_window.window(SESSION, array(8)):
        pass
    assert driver.limits == [8, 0] and driver.windows[-1][2] == 0
