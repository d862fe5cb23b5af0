"""What the checks of a family found."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: the kernel or file it is about, and a sentence on it and on what to do."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass
class Findings:
    """Checks that passed, counted, and the problems of those that did not."""

    passed: int = 0
    problems: list[Problem] = field(default_factory=list)

    def require(self, holds: bool, where: str, what: str) -> None:
        """Count a check that `holds`; else note the problem."""
        if holds:
            self.passed += 1
        else:
            self.problems.append(Problem(where, what))
