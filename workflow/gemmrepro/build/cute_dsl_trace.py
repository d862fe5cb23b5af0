"""Compiles one kernel in CuTe's Python DSL; a child process, since the DSL reads its settings from the environment:

python -m gemmrepro.build.cute_dsl_trace SPEC.json OUT.ptx
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from gemmrepro.errors import UserError, run_stage

OPTIONS = "--opt-level 3"
"""Options of ``cute.compile`` that can affect the code."""

ALIGNMENT = 16
"""Guaranteed alignment of every array in bytes: one access of 128 bits."""

SUFFIX = "_0"
"""The DSL always appends this to the name of the first kernel that it traces."""


def trace(spec: Mapping[str, Any], ptx: Path) -> None:
    """Compile the kernel that `spec` describes, for the architecture in the environment, and write its PTX.

    Args:
        spec: {source, entry, parameters, block}; see `cute_dsl.compile_ptx`.

    Raises:
        UserError: the source has no such kernel, or the DSL gives it another name.
    """
    import cutlass
    import cutlass.cute as cute
    from cutlass.cute.runtime import make_ptr

    path, entry = Path(spec["source"]), spec["entry"]
    name = entry.removesuffix(SUFFIX)
    kernel = getattr(_imported(path), name, None)
    if kernel is None:
        raise UserError(f"{path.name} defines no kernel '{name}' for the entry point '{entry}'.")
    kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)

    # Only the types of these values matter: numbers and addresses passed to a host function are not compiled in.
    values = []
    for _, kind in spec["parameters"]:
        element = getattr(cutlass, kind.removesuffix("*"))
        pointer = kind.endswith("*")
        values.append(make_ptr(element, 0, cute.AddressSpace.gmem, assumed_align=ALIGNMENT) if pointer else element(1))
    block = tuple(spec["block"])

    @cute.jit  # type: ignore[untyped-decorator]
    def host(*values: Any) -> None:
        # The grid is a run-time value, so that the compiler derives nothing from it.
        kernel(*values[:-3]).launch(grid=values[-3:], block=block)

    compiled = cute.compile(host, *values, *(cutlass.Int32(1) for _ in range(3)), options=OPTIONS)
    names = list(compiled.kernel_info)
    if names != [entry]:
        raise UserError(
            f"the DSL names the kernel of {path.name} {', '.join(names)}, and its record says entry='{entry}'; "
            f"enter the DSL's name into family.py."
        )
    ptx.write_text(compiled.__ptx__)


def _imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path.name} is not a Python source; correct the record's source.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _main() -> int:
    spec, ptx = map(Path, sys.argv[1:])
    trace(json.loads(spec.read_text()), ptx)
    return 0


if __name__ == "__main__":
    run_stage(_main)
