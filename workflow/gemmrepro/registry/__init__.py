"""The registry: which kernels exist, and how each is built, judged, launched and presented.

``kernels/<family>/family.py`` defines a ``FAMILY`` record and its ``KERNELS``. Importing it needs no GPU and no CUDA
package, so that the workflow can read the registry while it plans jobs.

- `records`: the record `Kernel`, made of `groups`, `launches` and `promises`; `compilers`: traits of compilers.
- `families`, `tuning`, `ladders`: lookup of families and kernels, tuned constants, and relations between rungs.
- `keys`, `callables`: hashes of records, for the keys of measurements and for the workflow's rules.
"""

from gemmrepro.core.dtypes import DTYPES
from gemmrepro.operations import LAYOUTS, Problem, Shape
from gemmrepro.registry import card
from gemmrepro.registry.compilers import COMPILERS, CompilerTraits
from gemmrepro.registry.families import FIGURES, Family, family, family_names, kernel, kernels
from gemmrepro.registry.groups import Accepts, Call, Code, Compute, Platform, Story, Timing
from gemmrepro.registry.launches import Buffer, Launch, LibraryStep, Run, Step, Steps, TensorMap, Variant
from gemmrepro.registry.promises import Expect, Promises, Refusal
from gemmrepro.registry.records import LARGE_SHAPE, USUAL_SHAPES, Kernel, parameters, targets
from gemmrepro.registry.tuning import (
    TUNE_AGAIN,
    Tunable,
    candidates_path,
    tunable,
    tunables,
    tuned,
    winners_path,
)

__all__ = [
    "COMPILERS",
    "DTYPES",
    "FIGURES",
    "LARGE_SHAPE",
    "LAYOUTS",
    "TUNE_AGAIN",
    "USUAL_SHAPES",
    "Accepts",
    "Buffer",
    "Call",
    "Code",
    "CompilerTraits",
    "Compute",
    "Expect",
    "Family",
    "Kernel",
    "Launch",
    "LibraryStep",
    "Platform",
    "Problem",
    "Promises",
    "Refusal",
    "Run",
    "Shape",
    "Step",
    "Steps",
    "Story",
    "TensorMap",
    "Timing",
    "Tunable",
    "Variant",
    "candidates_path",
    "card",
    "family",
    "family_names",
    "kernel",
    "kernels",
    "parameters",
    "targets",
    "tunable",
    "tunables",
    "tuned",
    "winners_path",
]
