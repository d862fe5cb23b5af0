"""Checks kernel families against the contract, without a GPU or a CUDA toolkit: ``python -m gemmrepro check``.

`stage` is the command; `kernel` has the checks of one record, `family` those of a family and its files. Each adds to
`Findings`; a problem says where it is and what to do. `sources` parses sources.
"""

from __future__ import annotations

from gemmrepro.check.findings import Findings, Problem
from gemmrepro.check.stage import check_family

__all__ = ["Findings", "Problem", "check_family"]
