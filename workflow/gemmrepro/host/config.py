"""The configuration: checked against its schema and against what is there, with errors that name key and remedy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmrepro import experiments, registry
from gemmrepro.core import paths, schemas
from gemmrepro.core.architectures import COMPILED
from gemmrepro.errors import UserError
from gemmrepro.host import config_files, config_messages
from gemmrepro.host.config_sizes import size_problems

SCHEMA = "config.schema.yaml"
_SHOWN = 5


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
    problems = [problem for file in files for problem in config_files.repeated_keys(Path(file))]
    problems += sorted(config_messages.sentence(error) for error in schemas.errors(config, SCHEMA, whole_numbers=True))
    if not problems:
        problems = [
            *_family_problems(config),
            *_gpu_problems(config),
            *_architecture_problems(config),
            *_experiment_problems(config),
            *_sweep_problems(config),
            *_regime_problems(config),
            *size_problems(config),
        ]
    if problems:
        shown = "; ".join(" ".join(problem.split()) for problem in problems[:_SHOWN])
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise UserError(f"the configuration is wrong: {shown}{more}. config/README.md describes every key.")


def _family_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Families that do not exist, or have no sizes."""
    known = registry.family_names()
    for name in config["families"]:
        if name not in known:
            yield f"families: {_unknown(name)}"
        elif name not in config["sweep"]["sizes"]:
            yield f"sweep.sizes: family {json.dumps(name)} has no sizes; add a list, such as [1024]"


def _gpu_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """A folder of recordings, or constants of a GPU, that are not there."""
    recorded = sorted(path.name for path in paths.RECORDINGS.iterdir() if path.is_dir())
    if config["measure"] != "live" and config["recorded_gpu"] not in recorded:
        yield (
            f"recorded_gpu: there are no recordings of {config['recorded_gpu']} in reports/recorded; choose one of "
            f"{', '.join(recorded)}, or record it with workflow/scripts/record"
        )
    tuned = sorted({path.stem for path in paths.KERNELS_DIR.glob("*/tuned/*.json")})
    if config["tuned_gpu"] not in ("none", *tuned):
        yield (
            f"tuned_gpu: there are no tuned constants of {config['tuned_gpu']}; choose one of {', '.join(tuned)} or "
            "none, or search them with the target tune"
        )


def _architecture_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Architectures that the toolkit cannot compile for, unknown families, and candidates of a toolkit not built."""
    for name in config.get("compiled_once", ()):
        if not _is_known(name):
            yield f"compiled_once: {_unknown(name)}"
    for toolkit, wanted in config["build"].items():
        for architecture in wanted if isinstance(wanted, list) else ():
            if architecture not in COMPILED[toolkit]:
                yield f"build.{toolkit}: {_not_compiled(architecture, toolkit)}"
    tune, built = config["tune"], toolkits(config)
    if tune["toolkit"] not in built and built:
        yield f"tune.toolkit: {tune['toolkit']} is not built; choose one of {', '.join(built)}"
    if tune["arch"] not in COMPILED[tune["toolkit"]]:
        yield f"tune.arch: {_not_compiled(tune['arch'], tune['toolkit'])}"


def _not_compiled(architecture: int, toolkit: str) -> str:
    known = ", ".join(map(str, COMPILED[toolkit]))
    return f"{toolkit} does not compile for {architecture}; choose among {known} (compute capability x 10)"


def _experiment_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Settings of experiments that do not exist, or that the experiment refuses."""
    for family, by_experiment in config.get("experiments", {}).items():
        if family not in registry.family_names():
            yield f"experiments: {_unknown(family)}"
            continue
        for name, settings in by_experiment.items():
            try:
                experiments.with_settings(experiments.experiment(family, name), settings)
            except UserError as error:
                yield f"experiments.{family}: {str(error).rstrip('.')}"


def _sweep_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Toolkits that are not built, families that do not exist, and a range of samples that is empty."""
    built = toolkits(config)
    if not built:
        yield "build: no toolkit has an architecture to build for; give cuda12 or cuda13 one, such as [90]"
        return
    for toolkit in config["sweep"]["toolkits"]:
        if toolkit not in built:
            yield f"sweep.toolkits: {toolkit} is not built; take it out, or give build.{toolkit} an architecture"
    for name in ("toolkit_of", "cache_of", "sizes_of", "kernels_at"):
        for family in config["sweep"].get(name, {}):
            if not _is_known(family):
                yield f"sweep.{name}: {_unknown(family)}"
    for family, few in (config["sweep"].get("kernels_at") or {}).items():
        if few and _is_known(family):
            yield from _not_timed(f"sweep.kernels_at.{family}", family, few["kernels"])
    least, most = config["sweep"]["samples_per_round"]
    if least > most:
        yield f"sweep.samples_per_round: the minimum, {least}, exceeds the maximum, {most}; swap them"


def _not_timed(key: str, family: str, kernels: Iterable[str]) -> Iterator[str]:
    """Kernels listed under `key` that the family does not time."""
    timed = [kernel.id for kernel in registry.kernels(family) if kernel.timing.timed]
    for name in (each for each in kernels if each not in timed):
        known = f"choose among {', '.join(timed)}" if timed else "take the family out"
        yield f"{key}: there is no timed kernel {name}; {known}"


def _regime_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Kernels that are not timed, and limits of families that do not exist."""
    for family, kernels in config["regimes"]["kernels"].items():
        if _is_known(family):
            yield from _not_timed(f"regimes.kernels.{family}", family, kernels)
    for key in ("kernels", "minutes"):
        for family in config["regimes"][key]:
            if not _is_known(family):
                yield f"regimes.{key}: {_unknown(family)}"


def _is_known(family: str) -> bool:
    return family in registry.family_names()


def _unknown(family: str) -> str:
    return f"there is no kernel family {json.dumps(family)}; choose among {', '.join(registry.family_names())}"
