"""Looks up families, kernels and tuned constants under kernels/."""

import difflib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from types import ModuleType

from gemmrepro.core import paths
from gemmrepro.core.files import load_module
from gemmrepro.errors import UserError
from gemmrepro.registry.records import Kernel


@dataclass(frozen=True)
class Family:
    """A folder of kernels around one article or question.

    Attributes:
        article: the article's folder in articles/; None for a family without one.
        summary: one sentence on what is computed, and how.
        figures: names of the figures of its measurements, in order: "ratio", or functions of its figures.py.
        main_dtype: input type of its main ladder; by default that of its first GEMM with a baseline.
    """

    name: str
    title: str
    article: str | None
    summary: str
    figures: tuple[str, ...] = ()
    main_dtype: str = ""


def family_names() -> tuple[str, ...]:
    """Names of the folders under kernels/ that contain a family.py, in alphabetical order."""
    return tuple(sorted(path.parent.name for path in paths.KERNELS_DIR.glob("*/family.py")))


def family_module(name: str) -> ModuleType:
    """The module kernels/<name>/family.py. Raises UserError if there is none."""
    path = paths.KERNELS_DIR / name / "family.py"
    if not re.fullmatch(r"\w+", name) or not path.is_file():
        raise UserError(
            f"there is no kernel family '{' '.join(name.split())}'; known families: {', '.join(family_names())}."
        )
    return _loaded(path)


@cache
def _loaded(path: Path) -> ModuleType:
    """The module at `path`, loaded once per path, so that tests can substitute other families."""
    return load_module(f"gemmrepro_family_{path.parent.name}", path)


def family(name: str) -> Family:
    """The family called `name`. Raises UserError if there is none."""
    record: Family = family_module(name).FAMILY
    return record


def kernels(family_name: str | None = None) -> tuple[Kernel, ...]:
    """All kernels of a family, or of all families, in the order of KERNELS."""
    names = family_names() if family_name is None else (family_name,)
    return tuple(kernel for name in names for kernel in family_module(name).KERNELS)


def kernel(kernel_id: str) -> Kernel:
    """The kernel called `kernel_id` (``ladder.warptile``). Raises UserError with similar ids if there is none."""
    # Its family first: to look through all takes a millisecond, and a run asks thousands of times.
    with suppress(UserError):
        if found := [each for each in kernels(kernel_id.partition(".")[0]) if each.id == kernel_id]:
            return found[0]
    known = [candidate.id for candidate in kernels()]
    near = difflib.get_close_matches(kernel_id, known, n=3, cutoff=0.4) or known
    raise UserError(f"there is no kernel '{' '.join(kernel_id.split())}'; did you mean {', '.join(near)}?")


@dataclass(frozen=True)
class Tunable:
    """A rung whose constants can be tuned.

    `id`: that of the kernel with the best constants (``ladder.warptile_tuned``). `space`: values to try, by constant;
    `allowed`: which combinations can be compiled and launched. `sizes`: to time it at, instead of the configuration's.
    """

    id: str
    space: Mapping[str, tuple[int, ...]]
    allowed: Callable[[Mapping[str, int]], bool]
    make: Callable[[Mapping[str, int]], Kernel]
    sizes: tuple[int, ...] = ()

    def candidates(self) -> Iterator[dict[str, int]]:
        """Every allowed combination, in the order of the space."""
        for values in product(*self.space.values()):
            params = dict(zip(self.space, values, strict=True))
            if self.allowed(params):
                yield params

    def holds(self, params: Mapping[str, int]) -> bool:
        """Whether `params` is one of the candidates."""
        return (
            set(params) == set(self.space)
            and all(params[name] in values for name, values in self.space.items())
            and self.allowed(params)
        )


def winners_path(family_name: str, gpu: str | None = None) -> Path:
    """The file of a family's tuned constants for `gpu`, by default for the one that GEMMREPRO_TUNED names, or H200."""
    return paths.KERNELS_DIR / family_name / "tuned" / f"{gpu or os.environ.get('GEMMREPRO_TUNED', 'h200')}.json"


def candidates_path(tunable_id: str, gpu: str | None = None) -> Path:
    """The table of all candidates of a search, in a folder next to the winners."""
    winners = winners_path(tunable_id.split(".", 1)[0], gpu)
    return winners.with_suffix("") / f"{tunable_id.split('.', 1)[1]}.csv"


TUNE_AGAIN = "run snakemake --config tuned_gpu=none tune on that GPU"


def tuned(tunable: Tunable) -> tuple[Kernel, ...]:
    """The kernel with the tuned constants, or nothing if it was never tuned for this GPU.
    Raises UserError if the file of winners is corrupt, or has constants outside the tunable's space."""
    path = winners_path(tunable.id.split(".", 1)[0])
    if not path.is_file():
        return ()
    try:
        winner = json.loads(path.read_text()).get(tunable.id)
        params = None if winner is None else dict(winner["params"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is corrupt ({error}); restore it, or {TUNE_AGAIN}.") from None
    if params is None:
        return ()
    if not tunable.holds(params):
        raise UserError(f"{path} gives {tunable.id} constants outside its space ({params}); {TUNE_AGAIN}.")
    # In the order of the space, since the order of definitions is part of the build key.
    kernel = tunable.make({name: params[name] for name in tunable.space})
    return (kernel.with_platform(chosen_for=winner.get("target", "")),)


def tunables(family_name: str | None = None) -> tuple[Tunable, ...]:
    """The tunable kernels of a family, or of all families."""
    names = family_names() if family_name is None else (family_name,)
    return tuple(candidate for name in names for candidate in getattr(family_module(name), "TUNABLES", ()))


def tunable(kernel_id: str) -> Tunable:
    """The tunable called `kernel_id`. Raises UserError if there is none."""
    for candidate in tunables():
        if candidate.id == kernel_id:
            return candidate
    known = ", ".join(candidate.id for candidate in tunables()) or "none"
    raise UserError(f"'{kernel_id}' cannot be tuned; tunable kernels: {known}.")
