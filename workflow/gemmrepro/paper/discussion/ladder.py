"""Which kernels a family has, in which order, and what each is called."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from gemmrepro import registry
from gemmrepro.errors import UserError
from gemmrepro.paper.discussion.sources import Sources
from gemmrepro.paper.text import anchor
from gemmrepro.registry import ladders
from gemmrepro.registry.ladders import is_tuned, level_name, twins


@dataclass(frozen=True)
class Ladder:
    """The kernels of the family discussed, by id."""

    sources: Sources

    def steps(self, dtype: str | None = None) -> list[str]:
        """The family's steps in a type (its first)."""
        return [kernel.id for kernel in ladders.steps(self.sources.family, dtype)]

    def past_article(self) -> list[str]:
        """The steps after the last one that the article gives a figure for."""
        steps = ladders.steps(self.sources.family)
        printed = [place for place, kernel in enumerate(steps) if kernel.story.published_system]
        return [kernel.id for kernel in steps[(printed[-1] + 1 if printed else 0) :]]

    def last(self, dtype: str | None = None) -> str:
        """The last step that was timed, or the last of all where none was. Raises UserError if there is none."""
        steps = self.steps(dtype)
        if not steps:
            raise UserError(f"the family {self.sources.family} has no step in {dtype or 'any type'}.")
        measured = self.sources.measured.get(self.sources.family)
        timed = set(measured.summary["kernel"]) if measured else set()
        return ([step for step in steps if step in timed] or steps)[-1]

    def before(self, kernel: str) -> str | None:
        """The kernel that the gain of `kernel` is relative to."""
        known = self.sources.kernel(kernel)
        earlier = ladders.before(known) if known else None
        return earlier.id if earlier else None

    def tuned(self, kernel: str) -> str | None:
        """The same source with constants found by tuning, if there is one."""
        known = self.sources.kernel(kernel)
        return next((twin.id for twin in twins(known) if is_tuned(twin)), None) if known else None

    def constants(self, kernel: str) -> str:
        """How a tuned kernel's constants differ from those of its step: ``BK 16 → 8, WM 64 → 32``."""
        known = self.sources.kernel(kernel)
        earlier = ladders.before(known) if known else None
        if not known or not earlier:
            return ""
        changes = [
            f"{name.upper()} {earlier.params.get(name, 'none')} \N{RIGHTWARDS ARROW} {value}"
            for name, value in known.params.items()
            if earlier.params.get(name) != value
        ]
        return ", ".join(changes) or "the same"

    def level(self, kernel: str) -> Markup:
        """A kernel's name, linked to its section."""
        known = self.sources.kernel(kernel)
        if known is None:
            return Markup("<code>{}</code>").format(kernel)
        if known.family not in self.sources.measured:
            return Markup("{}").format(level_name(known))
        return Markup('<a href="#{}">{}</a>').format(anchor(known.id), level_name(known))

    def idea(self, kernel: str) -> str:
        """What a kernel is about, in its record's words. Raises UserError if it has no record on this GPU."""
        known = self.sources.kernel(kernel)
        if known is None:
            raise UserError(
                f"{kernel} was never tuned for this GPU, so it has no idea to quote; ask if registered('{kernel}')."
            )
        return known.story.idea

    def registered(self, kernel: str) -> bool:
        """Whether there is such a kernel."""
        return any(kernel == known.id for known in registry.kernels())
