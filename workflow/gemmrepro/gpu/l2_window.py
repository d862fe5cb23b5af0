"""L2 persistence: the set-aside part of the L2 cache, and the access policy window that uses it.

See the CUDA C++ Programming Guide, "Device Memory L2 Access Management". Both sizes are limited by the GPU and its
partitioning, so they are queried.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gemmrepro.errors import UserError
from gemmrepro.gpu.device import Session


@dataclass(frozen=True)
class Limits:
    """Maximum sizes in bytes: of the set-aside part of L2, and of one window."""

    set_aside: int
    window: int


def _call(function: Any, *arguments: Any) -> Any:
    from cuda.bindings import driver

    status, *rest = function(*arguments)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise UserError(f"the driver refuses {function.__name__} ({status.name}); leave the L2 persisting window out.")
    return rest[0] if rest else None


def limits(session: Session) -> Limits:
    """The limits of the open GPU; zeros if it cannot set L2 aside (before compute capability 8.0, or under MIG)."""
    from cuda.bindings import driver

    attributes = driver.CUdevice_attribute
    names = (
        attributes.CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE,
        attributes.CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE,
    )
    device = _call(driver.cuCtxGetDevice)
    return Limits(*(int(_call(driver.cuDeviceGetAttribute, name, device)) for name in names))


def _set_window(session: Session, pointer: int, size: int) -> None:
    from cuda.bindings import driver

    value = driver.CUstreamAttrValue()
    window = value.accessPolicyWindow
    window.base_ptr, window.num_bytes, window.hitRatio = pointer, size, 1.0 if size else 0.0
    window.hitProp = driver.CUaccessProperty.CU_ACCESS_PROPERTY_PERSISTING
    window.missProp = driver.CUaccessProperty.CU_ACCESS_PROPERTY_STREAMING
    if not size:
        window.hitProp = window.missProp = driver.CUaccessProperty.CU_ACCESS_PROPERTY_NORMAL
    which = driver.CUstreamAttrID.CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
    _call(driver.cuStreamSetAttribute, session.stream.ptr, which, value)


@contextlib.contextmanager
def window(session: Session, array: Any) -> Iterator[int]:
    """Keep `array` (CuPy) in the set-aside part of L2 for launches on the session's stream, with hit ratio 1.
    The set-aside part is as large as the array, as far as the GPU allows. Yields its size in bytes. Raises UserError if
    the GPU cannot set L2 aside."""
    from cuda.bindings import driver

    allowed = limits(session)
    if not allowed.set_aside or not allowed.window:
        raise UserError(f"the {session.gpu.name} sets no part of L2 aside (under MIG it does not).")
    limit = driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
    session.sync()
    _call(driver.cuCtxSetLimit, limit, min(array.nbytes, allowed.set_aside))
    try:
        _set_window(session, array.data.ptr, min(array.nbytes, allowed.window))
        yield int(_call(driver.cuCtxGetLimit, limit))
    finally:
        session.sync()
        _set_window(session, 0, 0)
        _call(driver.cuCtxResetPersistingL2Cache)
        _call(driver.cuCtxSetLimit, limit, 0)
