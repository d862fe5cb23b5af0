"""Tables of a family's kernels by version of their compiler: machine code, from ``kernels/<family>/compilers.csv``, and
speed, from the experiment ``releases``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from markupsafe import Markup

from gemmrepro.build import versions
from gemmrepro.build.versions import Made
from gemmrepro.core.text import format_number
from gemmrepro.paper.claims import experiment_row_anchor
from gemmrepro.paper.discussion.live import Live
from gemmrepro.paper.discussion.sources import Sources
from gemmrepro.paper.discussion.table import table
from gemmrepro.paper.text import anchor

CAPTION = (
    "Registers per thread, shared memory per block in KiB, and instructions, of each entry point for sm_{arch}, by "
    "version of {package}. Bytes that a thread spills are set off by +. An asterisk marks code that lets wgmma run on "
    "into the next K step; a dagger, code that waits for every wgmma."
)

EXPERIMENT = "releases"

SPEEDS = (
    "At {n}: TFLOP/s of what {package} {image} makes, and the speed of what other versions make, relative to it. Each "
    "pair ran in turn on the same matrices."
)


@dataclass(frozen=True)
class Compilers:
    """The machine code that versions of a compiler make of the family's kernels, and its speed."""

    sources: Sources

    @property
    def _rows(self) -> list[Made]:
        """Rows of today's sources; a tuned kernel may have got other constants since."""
        family = self.sources.family
        return versions.current(family, versions.read(versions.path_of(family)))

    def table(self) -> Markup:
        """A row for each entry point, a column for each version; empty for a family without such a table."""
        rows = self._rows
        if not rows:
            return Markup("")
        known = list(dict.fromkeys(row.compiler for row in rows))
        entries = dict.fromkeys((row.kernel, row.entry) for row in rows)
        made = {(row.kernel, row.entry, row.compiler): row for row in rows}
        caption = CAPTION.format(arch=versions.ARCH, package="nvidia-cuda-tileiras")
        head = Markup("").join(Markup('<th scope="col" class="n">{}</th>').format(version) for version in known)
        lines = [
            _line(_name(*entry, list(entries)), [made.get((*entry, version)) for version in known]) for entry in entries
        ]
        return Markup(
            '<div class="scroll" role="region" aria-label="Machine code by version of the compiler" tabindex="0">\n'
            "<table>\n<caption><span>{}</span></caption>\n<thead><tr><td></td>{}</tr></thead>\n<tbody>\n{}\n</tbody>\n"
            "</table>\n</div>"
        ).format(caption, head, Markup("\n").join(lines))

    def speeds(self, n: int) -> Markup:
        """A row for each kernel that was timed at size `n`, a column for each version; empty where none was."""
        results = self.sources.results.get(EXPERIMENT)
        rows = results.rows[results.rows["n"] == n] if results else pd.DataFrame()
        if rows.empty:
            return Markup("")
        refused = {(row.kernel, row.compiler) for row in self._rows if row.error}
        others = list(dict.fromkeys(row.compiler for row in self._rows if row.compiler in {*rows["compiler"]}))
        lines = []
        for kernel, timed in rows.groupby("kernel", sort=False):
            known: dict[str, object] = {row["compiler"]: self._speed(row, "ratio") for _, row in timed.iterrows()}
            known |= {other: "refused" for other in others if (kernel, other) in refused}
            cells = [known.get(other, Live()) for other in others]
            lines.append((str(kernel).split(".", 1)[1], self._speed(timed.iloc[0], "image"), *cells))
        package, image = "nvidia-cuda-tileiras", versions.locked("nvidia-cuda-tileiras")
        return table(SPEEDS.format(n=n, package=package, image=image), ("", image, *others), lines)

    def _speed(self, row: pd.Series, column: str) -> Live:
        link = experiment_row_anchor(self.sources.family, EXPERIMENT, row.name)
        return Live(format_number(row[column]), float(row[column]), link, row["status"] == "stale")

    def differing(self, before: str, after: str) -> Live:
        """How many entry points two versions make different numbers of registers, bytes or instructions for."""
        rows = self._rows
        one, other = (
            {(row.kernel, row.entry): _counts(row) for row in rows if row.compiler == version}
            for version in (before, after)
        )
        changed = sum(one[entry] != other[entry] for entry in one if entry in other)
        return Live(str(changed), float(changed)) if one and other else Live()


def _counts(row: Made) -> tuple[object, ...]:
    return (row.error, row.registers, row.spill_bytes, row.shared_bytes, row.instructions, row.in_flight)


def _name(kernel: str, entry: str, entries: Sequence[tuple[str, str]]) -> str:
    """The kernel's name, with the entry point where there are several."""
    name = kernel.split(".", 1)[1]
    return f"{name}, {entry}" if sum(one == kernel for one, _ in entries) > 1 else name


def _line(name: str, cells: Sequence[Made | None]) -> Markup:
    columns = Markup("").join(Markup('<td class="n">{}</td>').format(_linked(cell)) for cell in cells)
    return Markup('<tr><th scope="row">{}</th>{}</tr>').format(name, columns)


def _linked(made: Made | None) -> Markup | str:
    """What a version made of an entry point, with a link to its kernel's source, machine code and samples."""
    if made is None or made.error:
        return _shown(made)
    return Markup('<a href="#code-{}">{}</a>').format(anchor(made.kernel), _shown(made))


def _shown(made: Made | None) -> str:
    if made is None:
        return "\N{EN DASH}"
    if made.error:
        return "refused"
    spilled = f" + {made.spill_bytes}" if made.spill_bytes else ""
    mark = ""
    if made.tensor and made.waits is not None:
        mark = " \N{DAGGER}" if made.waits >= made.tensor else " *" if made.in_flight else ""
    return f"{made.registers}{spilled}, {round((made.shared_bytes or 0) / 1024)}, {made.instructions}{mark}"
