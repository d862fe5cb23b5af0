"""Compiles one kernel in CuTe's Python DSL; a child process, since the DSL reads its settings from the environment:

python -m gemmrepro.build.cute_dsl_trace SPEC.json OUT.ptx
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from gemmrepro.core.files import load_module
from gemmrepro.errors import UserError, run_stage

OPTIONS = "--opt-level 3"
"""Options of ``cute.compile`` that can affect the code."""

ALIGNMENT = 16
"""Guaranteed alignment of every array in bytes: one access of 128 bits."""

SUFFIX = "_0"
"""The DSL always appends this to the name of the first kernel that it traces."""

MAP = "map:"
"""Prefix of an argument that is a tensor map."""

SWIZZLE = 128
"""The swizzle of every tensor map, in bytes: that of the atoms which wgmma reads."""


def trace(spec: Mapping[str, Any], ptx: Path) -> None:
    """Write the PTX of the kernel that `spec` describes (`cute_dsl.compile_ptx`), for the environment's architecture.
    Raises UserError if the source has no such kernel, or the DSL gives it another name."""
    import cutlass
    import cutlass.cute as cute

    path, entry, parameters = Path(spec["source"]), spec["entry"], spec["parameters"]
    name = entry.removesuffix(SUFFIX)
    source = load_module(path.stem, path)
    kernel = getattr(source, name, None)
    if kernel is None:
        raise UserError(f"{path.name} defines no kernel '{name}' for the entry point '{entry}'.")
    kernel.set_name_prefix(name, remove_cutlass_symbol=True, keep_mangled_name=False)
    block = tuple(spec["block"])

    @cute.jit  # type: ignore[untyped-decorator]
    def host(*values: Any) -> None:
        # The grid is a run-time value, so that the compiler derives nothing from it; so are the lengths of a matrix.
        kernel(*_arguments(parameters, values, source)).launch(grid=values[-3:], block=block)

    compiled = cute.compile(host, *_values(parameters), *(cutlass.Int32(1) for _ in range(5)), options=OPTIONS)
    names = list(compiled.kernel_info)
    if names != [entry]:
        raise UserError(
            f"the DSL names the kernel of {path.name} {', '.join(names)}, and its record says entry='{entry}'; "
            f"enter the DSL's name into family.py."
        )
    ptx.write_text(compiled.__ptx__)


def _values(parameters: Iterable[tuple[str, str]]) -> list[Any]:
    """A value for each parameter, of which only the type matters; for a tensor map a pointer to its matrix.
    Numbers and addresses that are passed to a host function are not compiled in."""
    import cutlass
    import cutlass.cute as cute
    from cutlass.cute.runtime import make_ptr

    values = []
    for name, kind in parameters:
        element = getattr(cutlass, re.split(r"\W", kind)[0])
        pointer = kind.endswith("*") or name.startswith(MAP)
        values.append(make_ptr(element, 0, cute.AddressSpace.gmem, assumed_align=ALIGNMENT) if pointer else element(1))
    return values


def _arguments(parameters: Iterable[tuple[str, str]], values: Sequence[Any], source: ModuleType) -> list[Any]:
    """The kernel's arguments from the host function's: a tensor map becomes the copy atom that the kernel takes."""
    *given, rows, columns, _, _, _ = values
    return [
        _atom(value, rows, columns, kind, source.COPIES[name.removeprefix(MAP)]) if name.startswith(MAP) else value
        for (name, kind), value in zip(parameters, given, strict=True)
    ]


def _atom(pointer: Any, rows: Any, columns: Any, kind: str, operation: Any) -> Any:
    """The atom that copies boxes of a row-major matrix, of `kind` "BFloat16[128x64]", by an operation of the engine."""
    import cutlass.cute as cute
    from cutlass.cute.nvgpu import cpasync, warpgroup

    box = tuple(map(int, re.findall(r"\d+", kind.partition("[")[2])))
    matrix = cute.make_tensor(pointer, cute.make_layout((rows, columns), stride=(cute.assume(columns, 8), 1)))
    swizzled = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, matrix.element_type)
    return cpasync.make_tiled_tma_atom(operation, matrix, cute.tile_to_shape(swizzled, box, (0, 1)), box)[0]


def _main() -> int:
    spec, ptx = map(Path, sys.argv[1:])
    trace(json.loads(spec.read_text()), ptx)
    return 0


if __name__ == "__main__":
    run_stage(_main)
