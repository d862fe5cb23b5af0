"""The family under check: its records loaded, and all checks run over them."""

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

OF_A_FAMILY = (rungs.check, files.check, imports.check, claims.check, experiments.check)
"""Checks of all records together, and of the files beside them."""


def check_family(name: str) -> Findings:
    """Every check of the family called `name`. Raises UserError if there is none."""
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
    """The family's records; none, and a problem, if its registry cannot be read."""
    if name not in registry.family_names():
        registry.family(name)  # raises, naming the known families
    where = f"kernels/{name}/family.py"
    try:
        kernels = registry.kernels(name)
    except UserError as error:
        findings.require(False, where, str(error))
        return ()
    except Exception as error:  # whatever a module may raise while it is imported
        findings.require(False, where, f"importing it fails with {type(error).__name__}: {error}")
        return ()
    findings.require(bool(kernels), where, "KERNELS is empty; add a record.")
    return kernels
