"""A table of a discussion."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from gemmrepro.paper.discussion.live import Live


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> Markup:
    """Numbers under a caption, as HTML: a row for each of `rows`, named by its first cell.

    A row without any number is left out, and so is a table without rows. Texts are escaped unless they are
    Markup.

    Args:
        head: the columns' headings, the first one over the rows' names; it may be empty.
    """
    lines = [_row(row) for row in rows if any(isinstance(cell, Live) and cell.value is not None for cell in row)]
    if not lines:
        return Markup("")
    first, *others = head
    headings = Markup('<th scope="col">{}</th>').format(first) if first else Markup("<td></td>")
    headings += Markup("").join(Markup('<th scope="col" class="n">{}</th>').format(each) for each in others)
    label = Markup(escape(caption)).striptags()
    return Markup(
        '<div class="scroll" role="region" aria-label="{}" tabindex="0">\n<table>\n<caption><span>{}</span></caption>\n'
        "<thead><tr>{}</tr></thead>\n<tbody>\n{}\n</tbody>\n</table>\n</div>"
    ).format(label, caption, headings, Markup("\n").join(lines))


def _row(cells: Sequence[object]) -> Markup:
    name, *others = cells
    columns = Markup("").join(Markup('<td class="n">{}</td>').format(_shown(cell)) for cell in others)
    return Markup('<tr><th scope="row">{}</th>{}</tr>').format(name, columns)


def _shown(cell: object) -> object:
    """The cell as it is written, with a dash for a number that is unknown."""
    if cell is None:
        return ""
    if not isinstance(cell, Live):
        return cell
    return "\N{EN DASH}" if cell.value is None else Markup(cell.__html__())
