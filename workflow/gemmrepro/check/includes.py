"""A record lists every header under kernels/ that its source includes, since their content enters the build key."""

from __future__ import annotations

from gemmrepro.check.cuda_source import included
from gemmrepro.check.findings import Findings
from gemmrepro.core import paths
from gemmrepro.registry import Kernel


def check(kernel: Kernel, findings: Findings) -> None:
    if kernel.code.compiler != "nvcc":
        return
    listed = set(kernel.code.headers)
    for header in sorted(listed):
        findings.require((paths.KERNELS_DIR / header).is_file(), kernel.id, f"there is no header kernels/{header}.")
    missing = sorted(included(kernel.source_path) - listed)
    findings.require(
        not missing,
        kernel.id,
        f"{kernel.source} includes {', '.join(missing)}, which Code.headers lacks: its edits would rebuild nothing.",
    )
    idle = sorted(listed - included(kernel.source_path))
    findings.require(not idle, kernel.id, f"{kernel.source} does not include {', '.join(idle)} of Code.headers.")
