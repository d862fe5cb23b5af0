"""What compute-sanitizer said of a kernel's binaries, as its page shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro.measure.recording import CLEAN, SANITIZERS, TOOLS, check_manifest, read_sanitizers

NOT_RUN = "not run on today's binary"


@dataclass(frozen=True)
class SanitizerView:
    """What the tools said of the binaries of some toolkits: ``memcheck, racecheck: clean``, or NOT_RUN.

    `found` is everything that they printed where they were not clean; `source` the GPU and the day.
    """

    toolkits: str
    text: str
    found: str
    source: str


def load_sanitizers(recorded: Path | None, families: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The outcomes in a GPU's recordings, by kernel; none without recordings, or for families that have none.

    Raises:
        UserError: a file of them is corrupt.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for family in families if recorded else ():
        folder = Path(recorded or "") / family
        check_manifest(folder, SANITIZERS)
        found |= read_sanitizers(folder / SANITIZERS)
    return found


def sanitizer_views(outcome: Mapping[str, Any] | None, build_keys: Mapping[str, str]) -> tuple[SanitizerView, ...]:
    """What was said of today's binaries, by toolkit; toolkits of which the same was said are together.

    Args:
        outcome: the kernel's recorded outcome, if there is one.
        build_keys: today's build keys by toolkit.
    """
    by_toolkit = outcome["toolkits"] if outcome else {}
    together: dict[tuple[str, str, str], list[str]] = {}
    for toolkit, key in sorted(build_keys.items()):
        said = by_toolkit.get(toolkit)
        shown = NOT_RUN, "", ""
        if outcome and said and said["build_key"] == key:
            shown = *_shown(said["tools"]), f"{outcome['gpu']}, {said['date']}"
        together.setdefault(shown, []).append(toolkit)
    return tuple(SanitizerView(", ".join(names), *shown) for shown, names in together.items())


def _shown(said: Mapping[str, Any]) -> tuple[str, str]:
    """The outcome of each tool in a line, and everything that those printed which were not clean."""
    clean = [tool for tool in TOOLS if said.get(tool) == CLEAN]
    found = {tool: said[tool] for tool in TOOLS if said.get(tool, CLEAN) != CLEAN}
    parts = [f"{', '.join(clean)}: clean"] if clean else []
    # A tool ends with its summary.
    parts += [f"{tool}: {lines[-1].rpartition('SUMMARY: ')[2]}" for tool, lines in found.items()]
    if missing := [tool for tool in TOOLS if tool not in said]:
        parts.append(f"{', '.join(missing)}: not run")
    return "; ".join(parts), "\n".join(line for lines in found.values() for line in lines)
