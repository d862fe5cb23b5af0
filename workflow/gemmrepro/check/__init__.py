"""Checks kernel families against the contract, without a GPU or a CUDA toolkit: ``python -m gemmrepro check``.

`stage` is the command and `subject` runs all checks on a family. Each other module is one check with a function
`check`, on a kernel (`entries`, `includes`, `constants`, `launches`, `signatures`, `promises`, `shapes`, `stories`) or
on a family (`identities`, `rungs`, `files`, `imports`, `claims`, `experiments`, `texts`). It adds to `Findings`; each
problem says where it is and what to do. `cuda_source` and `python_source` parse sources.
"""

from __future__ import annotations

from gemmrepro.check.findings import Findings, Problem
from gemmrepro.check.subject import check_family

__all__ = ["Findings", "Problem", "check_family"]
