"""The CUDA driver, by its C interface: launches of kernels for arrays of any library, a few microseconds each."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from gemmrepro_blas.errors import UserError
from gemmrepro_blas.table import KEPT, Launch

_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuGetErrorName": (c_int, c_void_p),
    "cuDeviceGetAttribute": (c_void_p, c_int, c_int),
    "cuDevicePrimaryCtxRetain": (c_void_p, c_int),
    "cuCtxGetCurrent": (c_void_p,),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (c_void_p,),
    "cuLibraryLoadData": (c_void_p, c_void_p, c_void_p, c_void_p, c_uint, c_void_p, c_void_p, c_uint),
    "cuLibraryGetKernel": (c_void_p, c_void_p, c_char_p),
    "cuKernelGetFunction": (c_void_p, c_void_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuFuncGetParamInfo": (c_void_p, c_size_t, c_void_p, c_void_p),
    "cuLaunchKernel": (c_void_p, *7 * (c_uint,), c_void_p, c_void_p, c_void_p),
    "cuLaunchKernelEx": (c_void_p, c_void_p, c_void_p, c_void_p),
    "cuTensorMapEncodeTiled": (c_void_p, c_int, c_uint, *5 * (c_void_p,), *4 * (c_int,)),
    "cuPointerGetAttribute": (c_void_p, c_int, c_uint64),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamIsCapturing": (c_void_p, c_void_p),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuStreamCreate": (c_void_p, c_uint),
    "cuEventCreate": (c_void_p, c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventDestroy_v2": (c_void_p,),
    "cuEventSynchronize": (c_void_p,),
    "cuMemHostAlloc": (c_void_p, c_size_t, c_uint),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoDAsync_v2": (c_uint64, c_uint64, c_size_t, c_void_p),
    "cuMemsetD32Async": (c_uint64, c_uint, c_size_t, c_void_p),
    "cuDriverGetVersion": (c_void_p,),
}
_MAJOR, _MINOR, _SMS = 75, 76, 16
"""CUdevice_attribute."""
_SHARED_BYTES = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""
_POINTER_DEVICE = 9
"""CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL."""
_CAPTURED = (900, 906)
"""CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED and _IMPLICIT: what the default stream answers while another is captured."""
_MAP_TYPES = {"int8": 0, "fp32": 7, "bf16": 9}
"""CUtensorMapDataType; bytes are only moved."""
_MAGIC, _INVALID_IMAGE = (b"\x50\xed\x55\xba", b"\x7fELF"), 200
"""How a fat binary and a cubin begin, and CUDA_ERROR_INVALID_IMAGE."""
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_PROMOTED_256 = 3
_MAP_BYTES, _MAP_ALIGNED = 128, 64
_WORDS = 8192
"""Bytes of a thread's page-locked memory."""


class _Library:
    """libcuda, each function of which raises what it returns, but for `status`."""

    def __init__(self) -> None:
        try:
            self._code = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise UserError(
                "this machine has no CUDA driver (libcuda.so.1); gemmrepro_blas needs a GPU of compute capability 9.0 "
                "and driver 580 or later."
            ) from None
        self.forked = False
        os.register_at_fork(after_in_child=self._fork)
        self.status: dict[str, Any] = {}
        for name, types in _FUNCTIONS.items():
            function = getattr(self._code, name, None)
            if function is None:
                raise UserError(f"the CUDA driver has no {name}; update it to 580 or later.")
            function.argtypes, function.restype = types, c_int
            self.status[name] = function
        status, no_device = self.status["cuInit"](0), 100
        if status == no_device:
            raise UserError("CUDA sees no GPU; look at CUDA_VISIBLE_DEVICES, and whether the container passes it on.")
        self.check(status, "cuInit")

    def _fork(self) -> None:
        self.forked = True

    def check(self, status: int, what: str) -> None:
        if status:
            name = c_char_p()
            self.status["cuGetErrorName"](status, byref(name))
            raise UserError(
                f"{what} failed with {(name.value or b'?').decode()}; see that the GPU is free and healthy, and "
                "whether an earlier launch failed."
            )

    def __call__(self, name: str, *arguments: Any) -> None:
        status = self.status[name](*arguments)
        if status:
            self.check(status, name)


@cache
def _opened() -> _Library:
    return _Library()


def cuda() -> _Library:
    """The driver. Raises UserError if there is none, or this process was forked from one that used it."""
    library = _opened()
    if library.forked:
        raise UserError(
            "this process was forked from one that had used the GPU, which CUDA does not allow; start it with "
            "multiprocessing's method 'spawn' or 'forkserver'."
        )
    return library


def device_attribute(device: int, attribute: int) -> int:
    value = c_int()
    cuda()("cuDeviceGetAttribute", byref(value), attribute, device)
    return value.value


@cache
def multiprocessors(device: int) -> int:
    """SMs of a GPU. Raises UserError if it is not of compute capability 9.0."""
    capability = device_attribute(device, _MAJOR), device_attribute(device, _MINOR)
    if capability != (9, 0):
        raise UserError(
            f"gemmrepro_blas runs on Hopper (compute capability 9.0) and GPU {device} has {capability[0]}."
            f"{capability[1]}; use the library's own product there."
        )
    return device_attribute(device, _SMS)


def version() -> tuple[int, int]:
    """The newest CUDA that the driver supports."""
    value = c_int()
    cuda()("cuDriverGetVersion", byref(value))
    return value.value // 1000, value.value % 1000 // 10


@cache
def _context(device: int) -> int:
    """The primary context, the one of CuPy and PyTorch."""
    context = c_void_p()
    cuda()("cuDevicePrimaryCtxRetain", byref(context), device)
    return int(context.value or 0)


def push(device: int) -> bool:
    """Make a GPU current in this thread; False if it was already, so that nothing is to be undone."""
    code, scratch, wanted = cuda(), _scratch, _context(device)
    status = code.status["cuCtxGetCurrent"](scratch.at_handle)
    if status:
        code.check(status, "cuCtxGetCurrent")
    if scratch.handle.value == wanted:
        return False
    code("cuCtxPushCurrent_v2", wanted)
    return True


class current:
    """A GPU that is current in this thread for a while, as a context manager's value."""

    __slots__ = ("_pushed", "device")

    def __init__(self, device: int) -> None:
        self.device, self._pushed = device, False

    def __enter__(self) -> int:
        self._pushed = push(self.device)
        return self.device

    def __exit__(self, *_: object) -> None:
        if self._pushed:
            cuda()("cuCtxPopCurrent_v2", _scratch.at_handle)


def device_of(pointer: int) -> int:
    """The GPU that holds an address; -1 if none does."""
    device = c_int()
    status = cuda().status["cuPointerGetAttribute"](byref(device), _POINTER_DEVICE, pointer)
    return -1 if status else device.value


def is_captured(stream: int) -> bool:
    """Whether a CUDA graph is being captured on a stream, or on another one while this is the default stream."""
    driver, scratch = cuda(), _scratch
    status = driver.status["cuStreamIsCapturing"](stream, scratch.at_flag)
    if status:
        if status in _CAPTURED:
            return True
        driver.check(status, "cuStreamIsCapturing")
    return bool(scratch.flag.value)


class Event:
    """A place in a stream, which others can wait for."""

    def __init__(self, stream: int) -> None:
        handle, timeless = c_void_p(), 2
        cuda()("cuEventCreate", byref(handle), timeless)
        self._handle = handle.value
        cuda()("cuEventRecord", self._handle, stream)

    def hold(self, stream: int) -> None:
        """Make what follows on `stream` wait for it."""
        cuda()("cuStreamWaitEvent", stream, self._handle, 0)

    def wait(self) -> None:
        """Wait for it on the host."""
        cuda()("cuEventSynchronize", self._handle)

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None and not _opened().forked:
            _opened().status["cuEventDestroy_v2"](handle)


def new_stream() -> int:
    """A stream that does not wait for the default one."""
    handle, non_blocking = c_void_p(), 1
    cuda()("cuStreamCreate", byref(handle), non_blocking)
    return int(handle.value or 0)


def synchronize(stream: int) -> None:
    cuda()("cuStreamSynchronize", stream)


class _Scratch(threading.local):
    """A thread's memory: results, arguments and clusters of launches, and page-locked words, by GPU."""

    def __init__(self) -> None:
        self.handle, self.flag = c_void_p(), c_int()
        self.at_handle, self.at_flag = byref(self.handle), byref(self.flag)
        self.clusters: dict[Launch, tuple[_Config, Any]] = {}
        self.arguments = ctypes.create_string_buffer(4096)
        self.size = c_size_t()
        begin, length, end = 1, 2, 0  # CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END
        self.extra = (c_void_p * 5)(begin, ctypes.addressof(self.arguments), length, ctypes.addressof(self.size), end)
        self.words: dict[int, int] = {}


_scratch = _Scratch()


def _locked(device: int) -> int:
    """The address of `_WORDS` page-locked bytes of this thread."""
    if device not in _scratch.words:
        address, portable = c_void_p(), 1
        cuda()("cuMemHostAlloc", byref(address), _WORDS, portable)
        _scratch.words[device] = int(address.value or 0)
    return _scratch.words[device]


def read_words(address: int, count: int, stream: int, device: int) -> tuple[int, ...]:
    """`count` int32 at an address on the GPU, once all before on the stream is done."""
    words = _locked(device)
    cuda()("cuMemcpyDtoHAsync_v2", words, address, 4 * count, stream)
    cuda()("cuStreamSynchronize", stream)
    return struct.unpack(f"<{count}i", ctypes.string_at(words, 4 * count))


def read(address: int, size: int, stream: int) -> bytes:
    """Bytes at an address on the GPU, once all before on the stream is done."""
    held = ctypes.create_string_buffer(size)
    synchronize(stream)
    cuda()("cuMemcpyDtoH_v2", held, address, size)
    return held.raw


def write(address: int, content: bytes, stream: int) -> None:
    """Copy bytes to the GPU; from ordinary memory, so that they may go once this returns."""
    cuda()("cuMemcpyHtoDAsync_v2", address, content, len(content), stream)


def copy(to: int, source: int, size: int, stream: int) -> None:
    cuda()("cuMemcpyDtoDAsync_v2", to, source, size, stream)


def clear(address: int, words: int, stream: int) -> None:
    """Set `words` int32 to zero."""
    cuda()("cuMemsetD32Async", address, 0, words, stream)


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, of a cluster."""

    _fields_ = (("id", c_int), ("pad", c_int), ("cluster", c_uint * 3), ("rest", ctypes.c_char * 52))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    kept: Any  # keeps what it points to alive
    _fields_ = (
        *(("grid", c_uint * 3), ("block", c_uint * 3), ("shared_bytes", c_uint)),
        *(("stream", c_void_p), ("attributes", c_void_p), ("count", c_uint)),
    )


def packing(parameters: Sequence[tuple[int, int]], values: Sequence[Any]) -> struct.Struct:
    """How `values` lie in the parameters of a kernel, (offset, bytes) each: bytes, floats and integers.

    Raises:
        UserError: there are more or fewer, or of other sizes.
    """
    at, form = 0, "<"
    letters = {(int, 8): "Q", (int, 4): "i", (float, 8): "d", (float, 4): "f"}
    if len(parameters) != len(values):
        raise UserError(
            f"a kernel takes {len(parameters)} arguments and gets {len(values)}; its binary is of another version: "
            "install or build it again."
        )
    for (offset, size), value in zip(parameters, values, strict=True):
        letter = f"{size}s" if isinstance(value, bytes) else letters.get((type(value), size))
        if letter is None or (isinstance(value, bytes) and len(value) != size):
            raise UserError(
                f"a kernel's argument of {size} bytes gets {value!r}; its binary is of another version: install or "
                "build it again."
            )
        form += f"{offset - at}x{letter}"
        at = offset + size
    return struct.Struct(form)


class Function:
    """An entry point on one GPU, which is current."""

    def __init__(self, code: Code, entry: str) -> None:
        kernel, handle = c_void_p(), c_void_p()
        self.entry, self._start = entry, cuda().status["cuLaunchKernel"]
        self._start_clusters = cuda().status["cuLaunchKernelEx"]
        status = cuda().status["cuLibraryGetKernel"](byref(kernel), code.handle, entry.encode())
        if status:
            raise UserError(f"the binary {code.path} has no launch '{entry}'; install or build it again.")
        cuda()("cuKernelGetFunction", byref(handle), kernel)
        self._handle, self._shared = handle.value, 0
        self._packing: struct.Struct | None = None
        self._parameters = tuple(self._described())

    def _described(self) -> Iterator[tuple[int, int]]:
        """Offset and size of each parameter."""
        offset, size, index = c_size_t(), c_size_t(), 0
        read = cuda().status["cuFuncGetParamInfo"]
        while read(self._handle, index, byref(offset), byref(size)) == 0:
            yield offset.value, size.value
            index += 1

    def launch(self, launch: Launch, stream: int, *values: Any) -> None:
        """Launch it. `values`: pointers and int32 as int, doubles and floats as float, tensor maps as bytes."""
        if self._packing is None:
            self._packing = packing(self._parameters, values)
        if launch.shared_bytes > self._shared:
            cuda()("cuFuncSetAttribute", self._handle, _SHARED_BYTES, launch.shared_bytes)
            self._shared = launch.shared_bytes
        scratch = _scratch
        packed = self._packing
        packed.pack_into(scratch.arguments, 0, *values)
        scratch.size.value = packed.size
        grid, block, cluster, size = launch
        if cluster is None:
            status = self._start(self._handle, *grid, *block, size, stream, None, scratch.extra)
            if status:
                cuda().check(status, f"the launch of {self.entry}")
            return
        found = scratch.clusters.get(launch)
        if found is None:
            if len(scratch.clusters) > KEPT:
                scratch.clusters.clear()
            config = _clustered(launch)
            found = scratch.clusters[launch] = config, byref(config)
        config, at_config = found
        config.stream = stream or None
        status = self._start_clusters(at_config, self._handle, None, scratch.extra)
        if status:
            cuda().check(status, f"the launch of {self.entry}")


def _clustered(launch: Launch) -> _Config:
    cluster = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    attribute = _Attribute(cluster, 0, launch.cluster)
    sizes = (c_uint * 3)(*launch.grid), (c_uint * 3)(*launch.block), launch.shared_bytes
    config = _Config(*sizes, None, ctypes.addressof(attribute), 1)
    config.kept = attribute
    return config


class Code:
    """A fat binary, loaded. Raises UserError if the driver cannot load it."""

    def __init__(self, path: Path, device: int) -> None:
        self.path, handle, image = path, c_void_p(), path.read_bytes()
        status = _INVALID_IMAGE
        if image[:4] in _MAGIC:
            status = cuda().status["cuLibraryLoadData"](byref(handle), image, None, None, 0, None, None, 0)
        self.handle = handle.value
        if status:
            newest = ".".join(map(str, version()))
            raise UserError(
                f"{path} cannot be loaded on GPU {device} (CUDA error {status}); if the driver, which supports CUDA "
                f"{newest}, is older than CUDA 13 update it, else install or build the binary again."
            )


def tensor_map(address: int, dtype: str, box: tuple[int, int, int], lengths: tuple[int, ...], row_bytes: int) -> bytes:
    """The TMA descriptor of a matrix of `lengths` at an address; loads outside of it read zeros.

    Raises:
        UserError: the driver refuses it.
    """
    rows = 1
    for length in lengths[:-1]:
        rows *= length
    held = ctypes.create_string_buffer(_MAP_BYTES + _MAP_ALIGNED)
    start = -ctypes.addressof(held) % _MAP_ALIGNED
    pairs = (c_uint * 2)(box[1], box[0]), (c_uint * 2)(1, 1)
    sizes = (c_uint64 * 2)(lengths[-1], rows), (c_uint64 * 1)(row_bytes)
    cuda()(
        *("cuTensorMapEncodeTiled", ctypes.addressof(held) + start, _MAP_TYPES[dtype], 2, address),
        *(*sizes, *pairs, 0, _SWIZZLES[box[2]], _PROMOTED_256, 0),
    )
    return held.raw[start : start + _MAP_BYTES]
