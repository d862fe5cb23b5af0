"""Results of a family's checks."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Problem:
    """A failed check: the kernel or file, and a sentence on what is wrong and what to do."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass
class Findings:
    """The number of passed checks, and a problem for each failed one."""

    passed: int = 0
    problems: list[Problem] = field(default_factory=list)

    def require(self, holds: bool, where: str, what: str) -> None:
        """Count a check that `holds`, or record the problem."""
        if holds:
            self.passed += 1
        else:
            self.problems.append(Problem(where, what))
