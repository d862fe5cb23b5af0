"""Installs the winners of searches: the constants that the registry's tuned kernels are built with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.core.files import read_json, write_atomic
from gemmrepro.errors import UserError
from gemmrepro.registry import Tunable
from gemmrepro.tune.progress import say

_RESTORE = "restore it, or delete it and install again"


@dataclass(frozen=True)
class Winner:
    """The best candidate of a search on the GPU that `gpu` names, and how it was found.

    `tflops` and `ratio` (baseline time over kernel time) are by size.
    """

    tunable: Tunable
    gpu: str
    params: Mapping[str, int]
    target: str
    toolkit: str
    toolkit_version: str
    driver: str
    baseline: str
    candidates: int
    tflops: Mapping[str, float]
    ratio: Mapping[str, float]

    @classmethod
    def read(cls, path: Path) -> Winner:
        """The winner of a result file that `search.search` wrote.

        Raises:
            UserError: it is missing or corrupt, names no tunable, or constants outside the space.
        """
        result = read_json(path, "the tuning result", "run the measure step again")
        try:
            sizes = result["winner"]["sizes"]
            winner = cls(
                tunable=registry.tunable(result["kernel"]),
                gpu=result["gpu"]["slug"],
                params=dict(result["winner"]["params"]),
                target=result["target"],
                toolkit=result["toolkit"],
                toolkit_version=result["toolkit_version"],
                driver=result["driver"],
                baseline=result["baseline"]["version"],
                candidates=result["count"]["candidates"],
                tflops={size: point["tflops"] for size, point in sizes.items()},
                ratio={size: point["ratio"] for size, point in sizes.items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"{path} is no tuning result ({type(error).__name__}: {error}); run the measure step again."
            ) from None
        if not winner.tunable.holds(winner.params):
            raise UserError(
                f"{path} names constants that the space of {winner.tunable.id} does not hold ({winner.params}); run "
                "the compile and measure steps again."
            )
        return winner

    @property
    def path(self) -> Path:
        """The file of winners that it belongs in."""
        return registry.winners_path(self.tunable.id.split(".", 1)[0], self.gpu)

    def to_json(self) -> dict[str, Any]:
        """Its entry there, with constants in the order of the space, as they enter the build key."""
        return {
            "params": {name: self.params[name] for name in self.tunable.space},
            "target": self.target,
            "toolkit": self.toolkit,
            "toolkit_version": self.toolkit_version,
            "driver": self.driver,
            "baseline": self.baseline,
            "candidates": self.candidates,
            "tflops": self.tflops,
            "ratio": self.ratio,
        }


def install(results: Sequence[Path]) -> list[Path]:
    """Enter the winners of result files into ``kernels/<family>/tuned/<gpu>.json``; returns the files written.

    The table of all candidates, if it lies beside the result, goes into a folder of the GPU's name there.

    Raises:
        UserError: a result or a file of winners is corrupt, or names constants outside the space; nothing is written.
    """
    winners = {result: Winner.read(result) for result in results}
    files = {winner.path: _installed(winner.path) for winner in winners.values()}
    tables: dict[Path, str] = {}
    for result, winner in winners.items():
        files[winner.path][winner.tunable.id] = winner.to_json()
        table = result.with_suffix(".csv")
        if table.is_file():
            tables[registry.candidates_path(winner.tunable.id, winner.gpu)] = table.read_text()
        constants = " ".join(f"{name}={value}" for name, value in winner.params.items())
        say(f"{winner.tunable.id}: {constants} in {winner.path}")
    for path, entries in files.items():
        write_atomic(path, json.dumps(dict(sorted(entries.items())), indent=2) + "\n")
    for path, text in tables.items():
        write_atomic(path, text)
    return list(files)


def _installed(path: Path) -> dict[str, Any]:
    """What a file of winners holds so far."""
    if not path.is_file():
        return {}
    entries = read_json(path, "the file of winners", _RESTORE)
    if not isinstance(entries, dict):
        raise UserError(f"the file of winners {path} is corrupt; {_RESTORE}.")
    return entries
