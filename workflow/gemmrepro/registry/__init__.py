"""The registry: which kernels exist, and how each is built, judged, launched and presented.

``kernels/<family>/family.py`` defines a ``FAMILY`` record and its ``KERNELS``; importing it needs no GPU and no CUDA
package. `records` has the record `Kernel`, made of `groups`; `families` and `ladders` look up families, kernels, tuned
constants and relations between rungs; `keys` and `callables` hash records, for measurements and for rules.
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
