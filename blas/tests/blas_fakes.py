"""A GPU that launches nothing: what the driver, cuBLAS and pools of memory would be asked for is noted."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gemmrepro_blas import calls, driver, library, program, single


@dataclass
class OnGpu:
    """A NumPy array that says it is on a GPU."""

    array: np.ndarray
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.array.__array_interface__, **self.more}


@dataclass(frozen=True)
class Map:
    """A tensor map."""

    address: int
    lengths: tuple[int, ...]


@dataclass
class Gpu:
    """What was asked for, in order: (what, launch or None, arguments), and how the device decides.

    Attributes:
        capturing: whether a CUDA graph is being captured.
        device: the GPU at every address.
        places: first byte and end of what was allocated, by name.
    """

    log: list[tuple[str, Any, list[Any]]] = field(default_factory=list)
    plan: tuple[int, int, int] = (14, 30, 6)
    kinds: bytes = b""
    capturing: bool = False
    device: int = 0
    stream: int = 7
    allocated: list[int] = field(default_factory=list)
    events: int = 0

    def entries(self) -> list[str]:
        return [what for what, _, _ in self.log]


class _Event:
    def __init__(self, stream: int) -> None:
        _Event.gpu.events += 1
        self.number = _Event.gpu.events
        _Event.gpu.log.append(("record", None, [self.number, stream]))

    gpu: Gpu

    def hold(self, stream: int) -> None:
        self.gpu.log.append(("hold", None, [self.number, stream]))

    def wait(self) -> None:
        self.gpu.log.append(("wait", None, [self.number]))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = _Event.gpu = Gpu()

    class Function:
        def __init__(self, code: Any, entry: str) -> None:
            self.entry = entry

        def launch(self, launch: Any, stream: int, *values: Any) -> None:
            made.log.append((self.entry, launch, [*values]))

    def take(like: Any, size: int, device: int, need: str) -> tuple[int, Any]:
        start = 2**40 * (1 + len(made.allocated))
        made.allocated.append(size)
        return start, SimpleNamespace(size=size)

    def note(what: str) -> Any:
        return lambda *values: made.log.append((what, None, [*values]))

    fakes = {
        **{"Function": Function, "Code": lambda path, device: None, "Event": _Event, "_context": lambda device: None},
        **{"multiprocessors": lambda device: 132, "is_captured": lambda stream: made.capturing},
        **{"device_of": lambda pointer: made.device, "new_stream": lambda: 99, "synchronize": note("synchronize")},
        **{"read_words": lambda address, count, stream, device: made.plan, "read": lambda *_: made.kinds},
        **{name: note(name) for name in ("copy", "clear", "write")},
        **{"push": lambda device: False, "cuda": lambda: lambda *_: None},
        "tensor_map": lambda address, dtype, box, lengths, row_bytes: Map(address, lengths),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(driver, name, fake)
    for module in (program, single):
        monkeypatch.setattr(module, "allocated", take)
    monkeypatch.setattr(library, "multiply", note("cuBLAS"))
    monkeypatch.setattr(library, "scale", note("scale"))
    stream = SimpleNamespace(ptr=made.stream)
    cuda = SimpleNamespace(get_current_stream=lambda device: stream)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    calls._known.clear()
    program.program.cache_clear()
    single.program.cache_clear()
    return made
