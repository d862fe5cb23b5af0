"""The command ``python -m gemmrepro check``: one line per family, and one per problem."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from gemmrepro import registry
from gemmrepro.check.family import CHECKS as OF_A_FAMILY
from gemmrepro.check.family import check_identities
from gemmrepro.check.findings import Findings
from gemmrepro.check.kernel import CHECKS as OF_A_KERNEL
from gemmrepro.errors import UserError
from gemmrepro.judge import claims
from gemmrepro.registry import Kernel


def main(arguments: Sequence[str]) -> int:
    """Check the named families, by default all. Returns the exit code: 1 if there is a problem."""
    parser = argparse.ArgumentParser(
        prog="gemmrepro check", description="Check kernel families against the contract; needs no GPU and no toolkit."
    )
    parser.add_argument("family", nargs="*", help="names of folders under kernels/; default: all")
    names = parser.parse_args(arguments).family or list(registry.family_names())
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
    if kernels:
        check_identities(name, findings)
    if findings.problems:
        return findings
    for kernel in kernels:
        for check_kernel in OF_A_KERNEL:
            check_kernel(kernel, findings)
    for check_whole in OF_A_FAMILY:
        check_whole(name, findings)
    return findings


def _loaded(name: str, findings: Findings) -> tuple[Kernel, ...]:
    """The family's records; empty, with a problem in `findings`, if they cannot be imported."""
    if name not in registry.family_names():
        registry.family(name)  # raises, naming the known families
    where = f"kernels/{name}/family.py"
    try:
        kernels = registry.kernels(name)
    except UserError as error:
        findings.require(False, where, str(error))
        return ()
    except Exception as error:  # an import can raise anything
        findings.require(False, where, f"importing it fails with {type(error).__name__}: {error}")
        return ()
    findings.require(bool(kernels), where, "KERNELS is empty; add a record.")
    return kernels
