"""The command ``python -m gemmrepro check``: one line per family, and one per problem."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from dataclasses import dataclass, field

from gemmrepro import registry
from gemmrepro.check.family import CHECKS as OF_A_FAMILY
from gemmrepro.check.family import check_identities
from gemmrepro.check.kernel import CHECKS as OF_A_KERNEL
from gemmrepro.errors import UserError
from gemmrepro.judge import claims
from gemmrepro.registry import Kernel


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

    def add(self, checks: Iterable[tuple[object, str, str]]) -> None:
        """Count the checks that hold, and record the place and the words of the others."""
        for holds, where, what in checks:
            if holds:
                self.passed += 1
            else:
                self.problems.append(Problem(where, what))


def main(options: Namespace) -> int:
    """Check the named families, by default all; 1 if there is a problem."""
    names = options.family or list(registry.family_names())
    return max([_report(name) for name in names], default=0)


def _report(name: str) -> int:
    findings = check_family(name)
    counts = f"{findings.passed} checks passed"
    if not findings.problems:
        print(f"{name}: {len(registry.kernels(name))} kernels, {_claims(name)} claims, {counts}")
        return 0
    print(f"{name}: {counts}, {len(findings.problems)} problems")
    for problem in findings.problems:
        print(f"  {problem}")
    return 1


def _claims(name: str) -> int:
    try:
        return len(claims.load((name,)))
    except UserError:
        return 0


def check_family(name: str) -> Findings:
    """Run all checks on the family called `name`. Raises UserError if there is none."""
    findings = Findings()
    kernels = _loaded(name, findings)
    for check in (check_identities,) if kernels else ():
        findings.add(check(name))
    if findings.problems:
        return findings
    for kernel in kernels:
        for check_kernel in OF_A_KERNEL:
            findings.add((holds, kernel.id, what) for holds, what in check_kernel(kernel))
    for check_whole in OF_A_FAMILY:
        findings.add(check_whole(name))
    return findings


def _loaded(name: str, findings: Findings) -> tuple[Kernel, ...]:
    """The family's records; empty, with a problem in `findings`, if they cannot be imported."""
    if name not in registry.family_names():
        registry.family(name)  # raises, naming the known families
    where = f"kernels/{name}/family.py"
    try:
        kernels = registry.kernels(name)
    except UserError as error:
        findings.add([(False, where, str(error))])
        return ()
    except Exception as error:  # an import can raise anything
        findings.add([(False, where, f"importing it fails with {type(error).__name__}: {error}")])
        return ()
    findings.add([(kernels, where, "KERNELS is empty; add a record.")])
    return kernels
