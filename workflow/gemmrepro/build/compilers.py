"""The compilers a kernel record may name."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from gemmrepro import registry
from gemmrepro.build import cute_dsl, cutile

COMPILERS: Mapping[str, ModuleType] = {"cute_dsl": cute_dsl, "cutile": cutile}
"""Compilers beside nvcc, by the name that a record gives them: modules with three functions.

`packages(kernel)` says which packages of which versions compile it, `flags(kernel)` what else decides the machine code,
and `compile_images(kernel, archs, threads, folder)` makes a file an architecture: ``.ptx``, which ptxas assembles, or a
``.cubin``. One whose refusals a record may expect has `refusals` too, of the same arguments. Where a compiler differs
from ptxas, its module says how: `KEEPS_PTX`; `asked_for(arch)`, the target whose code is named `arch`; `usage`, if it
prints no registers and spills.
"""


def _asked(kernel: registry.Kernel, name: str, otherwise: Any) -> Any:
    """What the module of a kernel's compiler has under `name`; what holds for nvcc if it says nothing."""
    return getattr(COMPILERS.get(kernel.compiler), name, otherwise)
