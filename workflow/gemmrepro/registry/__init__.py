"""The registry: which kernels exist, and how each is built, judged, launched and presented.

``kernels/<family>/family.py`` defines a ``FAMILY`` record and its ``KERNELS``. Importing it needs no GPU and no CUDA
package, so that the workflow can read the registry while it plans jobs.

- `records`: the record `Kernel`, made of `groups`.
- `families`, `ladders`: lookup of families, kernels and tuned constants, and relations between rungs.
- `keys`, `callables`: hashes of records, for the keys of measurements and for the workflow's rules.
"""

from gemmrepro.operations import Problem, Shape
from gemmrepro.registry import card
from gemmrepro.registry.families import (
    TUNE_AGAIN,
    Family,
    Tunable,
    candidates_path,
    family,
    family_names,
    kernel,
    kernels,
    tunable,
    tunables,
    tuned,
    winners_path,
)
from gemmrepro.registry.groups import (
    COMPILERS,
    Accepts,
    Buffer,
    Call,
    Code,
    CompilerTraits,
    Compute,
    Expect,
    Launch,
    LibraryStep,
    Platform,
    Promises,
    Refusal,
    Run,
    Step,
    Steps,
    Story,
    TensorMap,
    Timing,
    Variant,
)
from gemmrepro.registry.records import LARGE_SHAPE, USUAL_SHAPES, Kernel, parameters, targets
