"""Every source and header in a family's folder belongs to a record."""

from __future__ import annotations

from gemmrepro import experiments, registry
from gemmrepro.check.cuda_source import included
from gemmrepro.check.findings import Findings
from gemmrepro.core import paths
from gemmrepro.errors import UserError
from gemmrepro.experiments import tables
from gemmrepro.judge import calculation

DECLARATIONS = ("family.py", experiments.FILE, tables.FILE, calculation.FILE)
"""Python files of a family that are not sources."""


def check(family: str, findings: Findings) -> None:
    folder = paths.KERNELS_DIR / family
    kernels = registry.kernels(family)
    listed = {kernel.source for kernel in kernels} | {*DECLARATIONS}
    headers = {header for kernel in kernels for header in kernel.code.headers}
    headers |= {
        header for kernel in kernels if kernel.source.endswith(".cu") for header in included(kernel.source_path)
    }
    listed |= {header.removeprefix(f"{family}/") for header in headers}
    try:
        listed |= {source for experiment in experiments.declared(family) for source in experiment.sources}
    except Exception as error:  # the check of experiments reports it
        if not isinstance(error, UserError):
            listed |= {path.name for path in folder.glob("*.py")}
    for path in sorted(folder.iterdir()):
        if path.suffix in (".cu", ".cuh", ".py"):
            findings.require(
                path.name in listed,
                f"kernels/{family}/{path.name}",
                "no record and no experiment names it; add a Kernel to family.py, or remove the file.",
            )
