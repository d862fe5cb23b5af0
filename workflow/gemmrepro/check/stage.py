"""The command ``python -m gemmrepro check``: one line per family, and one per problem."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from gemmrepro import registry
from gemmrepro.check.subject import check_family
from gemmrepro.errors import UserError
from gemmrepro.judge import claims


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
