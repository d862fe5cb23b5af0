"""The configuration: checked against its schema, with errors that name the key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gemmrepro import experiments, registry
from gemmrepro.core import schemas
from gemmrepro.core.paths import ROOT, SCHEMAS
from gemmrepro.errors import UserError

SCHEMA = SCHEMAS / "config.schema.yaml"


def toolkits(config: Mapping[str, Any]) -> list[str]:
    """The toolkits to build with: those that have architectures to build for."""
    return [name for name, architectures in config["build"].items() if architectures]


def check(config: Mapping[str, Any]) -> None:
    """Check a whole configuration.

    Raises:
        UserError: names every wrong key, what is wrong with it, and where the schema is.
    """
    problems = [
        f"{'.'.join(str(part) for part in error.absolute_path) or 'top level'}: {error.message}"
        for error in schemas.errors(config, SCHEMA.name)
    ]
    if not problems:
        problems = [*_family_problems(config), *_experiment_problems(config), *_sweep_problems(config)]
    if problems:
        raise UserError(
            "the configuration is wrong: " + "; ".join(sorted(problems)) + f". See {SCHEMA.relative_to(ROOT)}."
        )


def _family_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Families that do not exist, or have no sizes."""
    known = registry.family_names()
    for name in config["families"]:
        if name not in known:
            yield f"families: {_unknown(name)}"
        if name not in config["sweep"]["sizes"]:
            yield f"sweep.sizes: family '{name}' has no sizes"


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
                yield f"experiments: {str(error).rstrip('.')}"


def _sweep_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Toolkits that are not built, and a range of samples that is empty."""
    built = toolkits(config)
    if not built:
        yield "build: no toolkit has an architecture to build for"
    for toolkit in config["sweep"]["toolkits"]:
        if toolkit not in built:
            yield f"sweep.toolkits: '{toolkit}' is not built (build has {', '.join(built)})"
    least, most = config["sweep"]["samples_per_round"]
    if least > most:
        yield f"sweep.samples_per_round: the least, {least}, exceeds the most, {most}"


def _unknown(family: str) -> str:
    return f"there is no kernel family '{family}' (known: {', '.join(registry.family_names())})"
