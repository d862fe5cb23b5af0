"""Claims load against their schema, and name known kernels, metrics and published rows."""

from __future__ import annotations

from gemmrepro.check.findings import Findings
from gemmrepro.core import paths
from gemmrepro.errors import UserError
from gemmrepro.judge import claims


def check(family: str, findings: Findings) -> None:
    if not (paths.KERNELS_DIR / family / "claims.yaml").is_file():
        return
    try:
        loaded = claims.load((family,))
    except UserError as error:
        findings.require(False, f"kernels/{family}/claims.yaml", str(error))
        return
    for claim in loaded:
        findings.require(bool(claim.statement), claim.id, "it states nothing.")
