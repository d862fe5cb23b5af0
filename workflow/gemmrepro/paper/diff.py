"""A kernel's source beside that of the kernel before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

from gemmrepro import registry
from gemmrepro.paper.text import LinkView, anchor
from gemmrepro.registry import ladders

CONTEXT = 3
"""Unchanged lines shown around each change."""

MOST_LINES = 1200
"""The longest comparison that is shown; beyond it the two have little in common."""


@dataclass(frozen=True)
class DiffLine:
    """A pair of lines: `kind` is ``same``, ``changed`` or ``gap``; a side that has no line is empty, with number 0."""

    kind: str
    left_number: int
    left: str
    right_number: int
    right: str


@dataclass(frozen=True)
class DiffView:
    """How a kernel's source differs from that of `before`; `added` and `removed` count lines."""

    before: LinkView
    lines: tuple[DiffLine, ...]
    added: int
    removed: int


def diff_view(kernel: registry.Kernel) -> DiffView | None:
    """The comparison with the kernel before; None without one, and where both are made from one source."""
    before = ladders.before(kernel)
    if before is None or before.source_path == kernel.source_path:
        return None
    if not (before.source_path.is_file() and kernel.source_path.is_file()):
        return None
    lines = tuple(
        side_by_side(before.source_path.read_text().splitlines(), kernel.source_path.read_text().splitlines())
    )
    if len(lines) > MOST_LINES:
        return None
    changed = [line for line in lines if line.kind == "changed"]
    return DiffView(
        before=LinkView(ladders.level_name(before), anchor(before.id)),
        lines=lines,
        added=sum(bool(line.right_number) for line in changed),
        removed=sum(bool(line.left_number) for line in changed),
    )


def side_by_side(left: Sequence[str], right: Sequence[str]) -> Iterator[DiffLine]:
    """The changed lines of two texts with CONTEXT around them; a ``gap`` stands for what is left out."""
    end = 0
    for group in SequenceMatcher(None, left, right, autojunk=False).get_grouped_opcodes(CONTEXT):
        if group[0][1] > end:
            yield DiffLine("gap", 0, "", 0, "")
        for tag, left_start, left_end, right_start, right_end in group:
            kind = "same" if tag == "equal" else "changed"
            for a, b in zip_longest(range(left_start, left_end), range(right_start, right_end)):
                yield DiffLine(
                    kind,
                    0 if a is None else a + 1,
                    "" if a is None else left[a],
                    0 if b is None else b + 1,
                    "" if b is None else right[b],
                )
        end = group[-1][2]
    if 0 < end < len(left):
        yield DiffLine("gap", 0, "", 0, "")
