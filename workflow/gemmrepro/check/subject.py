"""Loads a family's records and runs all checks on them."""

from __future__ import annotations

from gemmrepro import registry
from gemmrepro.check import (
    claims,
    constants,
    entries,
    experiments,
    files,
    identities,
    imports,
    includes,
    launches,
    promises,
    rungs,
    shapes,
    signatures,
    stories,
    texts,
)
from gemmrepro.check.findings import Findings
from gemmrepro.errors import UserError
from gemmrepro.registry import Kernel

OF_A_KERNEL = (
    entries.check,
    includes.check,
    constants.check,
    launches.check,
    signatures.check,
    promises.check,
    shapes.check,
    stories.check,
)
"""Checks of one record."""

OF_A_FAMILY = (rungs.check, files.check, imports.check, claims.check, experiments.check, texts.check)
"""Checks of a whole family and its files."""


def check_family(name: str) -> Findings:
    """Run all checks on the family called `name`. Raises UserError if there is none."""
    findings = Findings()
    kernels = _loaded(name, findings)
    if kernels:
        identities.check(name, findings)
    if findings.problems:
        return findings
    for kernel in kernels:
        for of_a_kernel in OF_A_KERNEL:
            of_a_kernel(kernel, findings)
    for of_a_family in OF_A_FAMILY:
        of_a_family(name, findings)
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
