"""The configuration: checked against its schema, with errors that name the key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gemmrepro import experiments, registry
from gemmrepro.core import schemas
from gemmrepro.core.paths import ROOT, SCHEMAS
from gemmrepro.errors import UserError

SCHEMA = SCHEMAS / "config.schema.yaml"


def toolkits(config: dict[str, Any]) -> list[str]:
    """The toolkits to build with: those that have architectures to build for."""
    return [name for name, architectures in config["build"].items() if architectures]


def _wrong_settings(wanted: dict[str, Any], families: Sequence[str]) -> Iterator[UserError]:
    """What is wrong with the settings of experiments."""
    for family, named in wanted.items():
        if family not in families:
            yield UserError(f"there is no kernel family '{family}' (known: {', '.join(families)})")
            continue
        for name, settings in named.items():
            try:
                experiments.with_settings(experiments.experiment(family, name), settings)
            except UserError as error:
                yield error


def check(config: dict[str, Any]) -> None:
    """Check a whole configuration.

    Raises:
        UserError: names every wrong key, what is wrong with it, and where the schema is.
    """
    problems = [
        f"{'.'.join(str(part) for part in error.absolute_path) or 'top level'}: {error.message}"
        for error in schemas.errors(config, SCHEMA.name)
    ]
    if not problems:
        known = registry.family_names()
        problems += [
            f"families: there is no kernel family '{name}' (known: {', '.join(known)})"
            for name in config["families"]
            if name not in known
        ]
        problems += [
            f"sweep.sizes: family '{name}' has no sizes"
            for name in config["families"]
            if name not in config["sweep"]["sizes"]
        ]
        problems += [
            f"experiments: {str(error).rstrip('.')}" for error in _wrong_settings(config.get("experiments", {}), known)
        ]
        built = toolkits(config)
        if not built:
            problems.append("build: no toolkit has an architecture to build for")
        problems += [
            f"sweep.toolkits: '{toolkit}' is not built (build has {', '.join(built)})"
            for toolkit in config["sweep"]["toolkits"]
            if toolkit not in built
        ]
        least, most = config["sweep"]["samples_per_round"]
        if least > most:
            problems.append(f"sweep.samples_per_round: the least, {least}, exceeds the most, {most}")
    if problems:
        raise UserError(
            "the configuration is wrong: " + "; ".join(sorted(problems)) + f". See {SCHEMA.relative_to(ROOT)}."
        )
