"""Compiles one cuTile kernel with ``cuda.tile``; a child process of ahead-of-time builds:

python -m gemmrepro.build.cutile_export SPEC.json sm_90 OUT.cubin
"""

from __future__ import annotations

import inspect
import json
import math
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemmrepro.errors import UserError, run_stage

ALIGNMENT = 16
"""Guaranteed alignment of every array, in bytes."""

REFUSED = 3
"""Exit code if the compiler itself refuses the source."""


def tile_kernel(spec: Mapping[str, Any]) -> Any:
    """The cuda.tile.kernel that `spec` (`cutile.specification`) describes, with its hints.
    Raises UserError if the source has no such kernel, or its constants are not those of the record."""
    import cuda.tile as ct

    # The file name goes into the line table of the machine code, which must not depend on the repository's location,
    # so it stays relative to the working directory.
    path = Path(spec["source"])
    module = types.ModuleType("cutile_source")
    sys.modules[module.__name__] = module
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    kernel = getattr(module, spec["function"], None)
    if not isinstance(kernel, ct.kernel):
        raise UserError(f"{path.name} defines no cuda.tile kernel '{spec['function']}'; correct the record's entry.")
    names = list(inspect.signature(kernel._pyfunc).parameters)
    passed, constants = len(spec["arrays"]) + spec["integers"], spec["constants"]
    if names[passed:] != list(constants):
        raise UserError(
            f"the kernel '{spec['function']}' of {path.name} takes the constants {', '.join(names[passed:]) or 'none'} "
            f"after {passed} arrays and integers, its record gives {', '.join(constants) or 'none'}; correct one of "
            f"them."
        )
    return kernel.replace_hints(**spec["hints"]) if spec["hints"] else kernel


def export(spec: Mapping[str, Any], arch: str, cubin: Path) -> None:
    """Write the cubin of `tile_kernel` for `arch` ("sm_90"). Raises cuda.tile.TileError if the compiler refuses it."""
    import cuda.tile as ct
    from cuda.tile import compilation

    kernel = tile_kernel(spec)

    def constraint(element: str, multiples: list[int]) -> Any:
        axes = len(multiples)
        return compilation.ArrayConstraint(
            getattr(ct, element),
            axes,
            index_dtype=ct.int32,
            stride_lower_bound_incl=0,
            alias_groups=(),
            may_alias_internally=False,
            # Row-major without gaps: the last stride is 1, and each other one is the product of the later lengths.
            stride_constant=(None,) * (axes - 1) + (1,),
            stride_divisible_by=tuple(math.prod(multiples[axis + 1 :]) for axis in range(axes)),
            shape_divisible_by=tuple(multiples),
            base_addr_divisible_by=ALIGNMENT,
        )

    arrays = [constraint(element, multiples) for element, multiples in spec["arrays"]]
    integers = [compilation.ScalarConstraint(ct.int32)] * spec["integers"]
    signature = compilation.KernelSignature(
        [*arrays, *integers, *spec["constants"].values()],
        compilation.CallingConvention.cutile_python_v1(),
        spec["entry"],
    )
    compilation.export_kernel(kernel, [signature], cubin, gpu_code=arch, output_format="cubin")


def _main() -> int:
    spec, arch, cubin = sys.argv[1:]
    try:
        export(json.loads(Path(spec).read_text()), arch, Path(cubin))
    except Exception as error:
        if not type(error).__module__.startswith("cuda.tile"):
            raise
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    run_stage(_main)
