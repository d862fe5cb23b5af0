"""The configuration: checked against its schema and against what is there, with errors that name key and remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmrepro import experiments, operations, registry
from gemmrepro.core import paths, schemas
from gemmrepro.core.architectures import COMPILED
from gemmrepro.errors import UserError
from gemmrepro.gpu.slots import unsupported
from gemmrepro.host import command_line

if TYPE_CHECKING:
    import jsonschema

MOST_BYTES = 1 << 40
"""The operands of one problem may fill a TiB; no GPU has as much memory."""

_SHOWN = 5
"""Mistakes, and names near one of them, that one error lists."""

_LISTED = 15
"""Names that are listed in full; of more, the nearest."""

_LONGEST = 160


def toolkits(config: Mapping[str, Any]) -> list[str]:
    """The toolkits to build with: those that have architectures to build for."""
    return [name for name, architectures in config["build"].items() if architectures]


def check(config: Mapping[str, Any], files: Sequence[Path | str] = ()) -> None:
    """Check a whole configuration.

    Args:
        files: the YAML files that it was read from; a key that one of them has twice is an error.

    Raises:
        UserError: names every wrong key and what to write instead, in one line.
    """
    problems = [problem for file in files for problem in command_line.repeated_keys(Path(file))]
    violations = schemas.errors(config, "config.schema.yaml", whole_numbers=True)
    problems += sorted(_sentence(violation) for violation in violations)
    if not problems:
        checks = (_gpu, _families, _recordings, _build, _experiments, _sweep, _regimes, _sizes)
        problems = [problem for check_part in checks for problem in check_part(config)]
    if problems:
        shown = "; ".join(" ".join(problem.split()) for problem in problems[:_SHOWN])
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise UserError(f"the configuration is wrong: {shown}{more}. config/config.yaml describes every key.")


def _sentence(violation: jsonschema.ValidationError) -> str:
    """The key, what is wrong with its value, and what to write: the keys that there are, or what the schema says."""
    key = ".".join(map(str, violation.absolute_path)) or "the configuration"
    why = violation.message
    if len(why) > _LONGEST:
        why = f"{why[: _LONGEST // 2]} ... {why[-_LONGEST // 2 :]}"
    return f"{key}: {why}; {schemas.remedy(violation)}"


def _unknown(key: str, name: str, known: Iterable[str], what: str = "kernel family", otherwise: str = "") -> str:
    """A mistake: under `key` stands a name that nothing has."""
    choice = list(known)
    if len(choice) > _LISTED:
        near = difflib.get_close_matches(name, choice, n=_SHOWN, cutoff=0)
        choice = [*near, f"{len(choice) - _SHOWN} more"]
    return f"{key}: there is no {what} {name}; choose among {', '.join(choice)}{otherwise}"


def _unknown_families(key: str, names: Iterable[str]) -> Iterator[str]:
    known = registry.family_names()
    return (_unknown(key, name, known) for name in names if name not in known)


def _gpu(config: Mapping[str, Any]) -> Iterator[str]:
    """A GPU that no kernel runs on."""
    if (gpu := config.get("gpu")) and (lacks := unsupported(gpu["capability"])):
        yield f"gpu.capability: {gpu['name']} {lacks}; give compute capability x 10, such as 90"


def _families(config: Mapping[str, Any]) -> Iterator[str]:
    """Families that do not exist, or have no sizes."""
    yield from _unknown_families("families", config["families"])
    for name in config["families"]:
        if name in registry.family_names() and name not in config["sweep"]["sizes"]:
            yield f"sweep.sizes: family {name} has no sizes; add a list, such as [1024]"


def _recordings(config: Mapping[str, Any]) -> Iterator[str]:
    """A folder of recordings, or constants of a GPU, that are not there."""
    recorded = sorted(path.name for path in paths.RECORDINGS.iterdir() if path.is_dir())
    if config["measure"] != "live" and (name := config["recorded_gpu"]) not in recorded:
        otherwise = ", or record it with workflow/scripts/record"
        yield _unknown("recorded_gpu", name, recorded, "folder in reports/recorded", otherwise)
    tuned = sorted({path.stem for path in paths.KERNELS_DIR.glob("*/tuned/*.json")})
    if (name := config["tuned_gpu"]) not in ("none", *tuned):
        otherwise = ", or search them with the target tune"
        yield _unknown("tuned_gpu", name, (*tuned, "none"), "GPU with tuned constants", otherwise)


def _build(config: Mapping[str, Any]) -> Iterator[str]:
    """Architectures that the toolkit cannot compile for, unknown families, and candidates of a toolkit not built."""
    yield from _unknown_families("compiled_once", config.get("compiled_once", ()))
    for toolkit, wanted in config["build"].items():
        yield from _not_compiled(f"build.{toolkit}", toolkit, wanted if isinstance(wanted, list) else ())
    tune, built = config["tune"], toolkits(config)
    if not built:
        yield "build: no toolkit has an architecture to build for; give cuda12 or cuda13 one, such as [90]"
    elif tune["toolkit"] not in built:
        yield f"tune.toolkit: {tune['toolkit']} is not built; choose one of {', '.join(built)}"
    yield from _not_compiled("tune.arch", tune["toolkit"], [tune["arch"]])


def _not_compiled(key: str, toolkit: str, architectures: Iterable[int]) -> Iterator[str]:
    known = ", ".join(map(str, COMPILED[toolkit]))
    for arch in architectures:
        if arch not in COMPILED[toolkit]:
            yield f"{key}: {toolkit} does not compile for {arch}; choose among {known} (compute capability x 10)"


def _experiments(config: Mapping[str, Any]) -> Iterator[str]:
    """Settings of experiments that do not exist, or that the experiment refuses."""
    by_family = config.get("experiments", {})
    yield from _unknown_families("experiments", by_family)
    for family in registry.family_names():
        for name, settings in by_family.get(family, {}).items():
            try:
                experiments.with_settings(experiments.experiment(family, name), settings)
            except UserError as error:
                yield f"experiments.{family}: {str(error).rstrip('.')}"


def _sweep(config: Mapping[str, Any]) -> Iterator[str]:
    """Toolkits that are not built, families and kernels that do not exist, and a range of samples that is empty."""
    sweep, built = config["sweep"], toolkits(config)
    for toolkit in sweep["toolkits"]:
        if built and toolkit not in built:
            yield f"sweep.toolkits: {toolkit} is not built; take it out, or give build.{toolkit} an architecture"
    for key in ("toolkit_of", "cache_of", "sizes_of", "kernels_at"):
        yield from _unknown_families(f"sweep.{key}", sweep.get(key) or {})
    for family, few in (sweep.get("kernels_at") or {}).items():
        yield from _not_timed(f"sweep.kernels_at.{family}", family, few["kernels"] if few else ())
    least, most = sweep["samples_per_round"]
    if least > most:
        yield f"sweep.samples_per_round: the minimum, {least}, exceeds the maximum, {most}; swap them"


def _regimes(config: Mapping[str, Any]) -> Iterator[str]:
    """Kernels that are not timed, and limits of families that do not exist."""
    kernels = config["regimes"]["kernels"]
    for key in ("kernels", "minutes"):
        yield from _unknown_families(f"regimes.{key}", config["regimes"][key])
    for family in kernels:
        yield from _not_timed(f"regimes.kernels.{family}", family, kernels[family])


def _not_timed(key: str, family: str, kernels: Iterable[str]) -> Iterator[str]:
    """Kernels listed under `key` that the family, if it exists, does not time."""
    if family in registry.family_names():
        timed = [kernel.id for kernel in registry.kernels(family) if kernel.timing.timed]
        for name in (name for name in kernels if name not in timed):
            yield _unknown(key, name, timed or ["none: take the family out"], "timed kernel")


def _sizes(config: Mapping[str, Any]) -> Iterator[str]:
    """Sizes of families that do not exist, or that no kernel of theirs can run, and sizes chosen that are not timed."""
    sweep = config["sweep"]
    yield from _unknown_families("sweep.counters", sweep["counters"])
    for key in ("sweep", "regimes", "tune"):
        yield from _unknown_families(f"{key}.sizes", config[key]["sizes"])
        for family, sizes in config[key]["sizes"].items():
            for size in sizes if family in registry.family_names() else ():
                if reason := _refusal(family, size):
                    yield f"{key}.sizes.{family}: {reason}"
    for key in ("counters", "sizes_of", "kernels_at"):
        for family, few in (sweep.get(key) or {}).items():
            timed = sweep["sizes"].get(family, ())
            for size in command_line.sizes_in(few) if family in registry.family_names() else ():
                if size not in timed:
                    choice = f"sweep.sizes.{family} ({', '.join(map(str, timed)) or 'none'})"
                    yield f"sweep.{key}.{family}: {size} is not timed; choose among {choice}"


def _refusal(family: str, size: int) -> str:
    """Why no kernel of `family` whose problem depends on the size can run `size`; empty if one can."""
    reason = ""
    for kernel in registry.kernels(family):
        shape = operations.shape_of(kernel.compute.op, size)
        if shape == operations.shape_of(kernel.compute.op, 2 * size):
            continue
        if operations.nbytes(kernel.problem, shape) > MOST_BYTES:
            reason = f"{size} needs more than a TiB of memory; choose a smaller size"
            continue
        try:
            kernel.check(shape)
            return ""
        except UserError as error:
            reason = f"no kernel can run {size}; {str(error).rstrip('.')}"
    return reason
