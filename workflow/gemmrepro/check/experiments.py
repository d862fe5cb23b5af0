"""Experiments are complete, and refer to existing kernels."""

from __future__ import annotations

from gemmrepro import experiments, registry
from gemmrepro.check.findings import Findings
from gemmrepro.errors import UserError
from gemmrepro.experiments import Experiment


def check(family: str, findings: Findings) -> None:
    where = f"kernels/{family}/experiments.py"
    if not experiments.path_of(family).is_file():
        return
    try:
        declared = experiments.declared(family)
    except UserError as error:
        findings.require(False, where, str(error))
        return
    except Exception as error:  # an import can raise anything
        findings.require(False, where, f"importing it fails with {type(error).__name__}: {error}")
        return
    for experiment in declared:
        _check_experiment(experiment, where, findings)


def _check_experiment(experiment: Experiment, file: str, findings: Findings) -> None:
    where = f"{file}, {experiment.name}"
    known = {kernel.id for name in registry.family_names() for kernel in registry.kernels(name)}
    unknown = [kernel_id for kernel_id in experiment.kernels if kernel_id not in known]
    findings.require(not unknown, where, f"it runs {', '.join(unknown)}, which no family has.")
    findings.require(
        bool(experiment.kernels or experiment.libraries), where, "it runs neither a kernel nor a library; name one."
    )
    findings.require(
        bool(experiment.title and experiment.question), where, "it has no title, or asks no question in the report."
    )
    points = experiment.points(experiment.parameters)
    findings.require(bool(points), where, "its parameters give no point to measure.")
    names = [figure.name for figure in experiment.figures]
    findings.require(
        not set(names) & set(registry.FIGURES), where, "one of its figures is called as a figure of the measurements."
    )
