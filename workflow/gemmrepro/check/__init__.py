"""Judges a kernel family against the contract, without a GPU or a CUDA toolkit: ``python -m gemmrepro check``.

One module per idea: what a source defines, what a record says of it, launches, shapes, the order of rungs, claims,
experiments, files that nothing lists, imports. Each is a function from a `Family` under check to `Findings`; a finding
that does not hold says where it is and what to do.
"""

from __future__ import annotations

from gemmrepro.check.findings import Findings, Problem
from gemmrepro.check.subject import check_family

__all__ = ["Findings", "Problem", "check_family"]
