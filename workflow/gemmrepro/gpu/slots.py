"""A GPU of its own for each stage that measures.

The first process of a stage claims a GPU that no other has claimed, and makes it the only one that it and its children
see (``CUDA_VISIBLE_DEVICES``); one GPU given by a scheduler is obeyed. A stage that finds all claimed waits, its
libraries imported: a GPU idles only while the next stage opens it.
"""

import fcntl
import hashlib
import os
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace

from gemmrepro.core import files
from gemmrepro.core.architectures import COMPILED, compiles, dotted
from gemmrepro.core.names import LEAST_CAPABILITY
from gemmrepro.errors import UserError

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER, BY_BUS = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
"""The variable that says what numbers in `VISIBLE` count, and its value for nvidia-smi's order."""

EXPECTED = "GEMMREPRO_GPU"
"""The environment variable with the model that a run was planned for, where that is not the planning machine's."""

CLAIMED = "GEMMREPRO_CLAIMED"
"""The environment variable with the GPU that a parent has claimed, for its children."""

PAUSE = 0.1
"""Seconds between two looks for a free GPU."""

_held: list[int] = []
"""Locks of this process, open until it ends."""


@dataclass(frozen=True)
class HostGpu:
    """A GPU as the driver lists it. `capability` is compute capability x 10 (90 for sm_90)."""

    name: str
    capability: int
    uuid: str = ""


def listed(
    gpus: Sequence[HostGpu], visible: str | None, parent: Callable[[str], str | None] = lambda uuid: None
) -> dict[str, HostGpu]:
    """The GPUs that CUDA would open if ``CUDA_VISIBLE_DEVICES`` were `visible`, each once, by their names there.
    `gpus`: the host's GPUs, numbered as in the list. `visible`: None if it is not set. `parent`: the UUID of the GPU
    that a MIG slice is a part of; None if there is no such slice."""
    if visible is None:
        return {gpu.uuid: gpu for gpu in gpus}
    named: dict[str, HostGpu] = {}
    for name in (part.strip() for part in visible.split(",")):
        gpu = _meant(name, gpus, parent)
        if gpu is None:  # CUDA reads no further either
            break
        if gpu not in named.values():  # of one that is there twice, CUDA would open none
            named[name] = gpu
    return named


def _meant(name: str, gpus: Sequence[HostGpu], parent: Callable[[str], str | None]) -> HostGpu | None:
    """The GPU that an entry of ``CUDA_VISIBLE_DEVICES`` means: a number, a UUID or the beginning of one, a slice."""
    if name.isascii() and name.isdecimal():
        return gpus[int(name)] if int(name) < len(gpus) else None
    if name.startswith("MIG-"):
        whole = parent(name)
        return next((replace(gpu, uuid=name) for gpu in gpus if gpu.uuid == whole), None)
    meant = [gpu for gpu in gpus if name.startswith("GPU-") and gpu.uuid.startswith(name)]
    return meant[0] if len(meant) == 1 else None


def usable(named: Mapping[str, HostGpu]) -> dict[str, HostGpu]:
    """Those of `listed` that jobs may be spread over: of the first model that is supported.
    One recording holds the rows of one model."""
    supported = {name: gpu for name, gpu in named.items() if not unsupported(gpu.capability)}
    model = next((gpu.name for gpu in supported.values()), None)
    return {name: gpu for name, gpu in supported.items() if gpu.name == model}


def unsupported(capability: int) -> str:
    """Why no kernel runs on a GPU of a compute capability x 10, after its name; else ""."""
    has = f"has compute capability {dotted(divmod(capability, 10))}"
    if capability < LEAST_CAPABILITY:
        return f"{has}, and kernels need {dotted(divmod(LEAST_CAPABILITY, 10))}"
    runs = any(compiles(toolkit, divmod(capability, 10)) for toolkit in COMPILED)
    return "" if runs else f"{has}, for which no toolkit here compiles"


def claim(
    gpus: Sequence[HostGpu],
    environ: MutableMapping[str, str] | None = None,
    preferred: str = "",
    parent: Callable[[str], str | None] = lambda uuid: None,
) -> None:
    """Restrict this process and its children to one GPU that no other stage has claimed, until this process ends.

    It waits, with a message, while all are claimed; a single GPU is claimed without restriction. `preferred`: the card
    (`anonymous`) of a measurement to be continued, the only one taken if the host has it, as its journal is the card's.
    Raises UserError if a lock file cannot be opened.
    """
    environ = os.environ if environ is None else environ
    if environ.get(CLAIMED):
        return
    visible = environ.get(VISIBLE)
    named = {name: gpu.uuid for name, gpu in usable(listed(gpus, visible, parent)).items()}
    if not named:
        return
    own = {name: uuid for name, uuid in named.items() if anonymous(uuid) == preferred}
    name = _first_free(own or named)
    environ[CLAIMED] = named[name]
    if len(gpus) > 1 or visible is not None:
        environ.update({VISIBLE: name, ORDER: BY_BUS})


def check_expected(name: str) -> None:
    """Raises UserError if the GPU `name` is not the model that the run was planned for."""
    expected = os.environ.get(EXPECTED)
    if expected and expected != name:
        raise UserError(
            f"this job got an {name}, and the configuration says gpu.name: {expected}; have the scheduler give it that "
            "model (resources such as gpu_model), or plan for this one. One recording holds one model's rows."
        )


def anonymous(uuid: str) -> str:
    """A card's name in recordings: 16 hex digits that tell cards apart and cannot be turned back into `uuid`."""
    return hashlib.sha256(f"gemmrepro {uuid}".encode()).hexdigest()[:16]


def _first_free(names: Mapping[str, str]) -> str:
    """The first of `names` whose GPU, by its UUID, is free; waits for one."""
    said = False
    while True:
        for name, uuid in names.items():
            if _take(uuid):
                return name
        if not said:
            which = "the GPU" if len(names) == 1 else "one of the GPUs"
            print(f"gemmrepro: waiting for {which}, which another stage holds", file=sys.stderr, flush=True)
            said = True
        time.sleep(PAUSE)


def _take(uuid: str) -> bool:
    file = files.open_shared(f"slot-{uuid}")
    if files.lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB):
        _held.append(file)
        return True
    os.close(file)
    return False
