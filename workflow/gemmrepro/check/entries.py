"""A source exists, defines every entry point in its record, and contains no host code."""

from __future__ import annotations

import re

from gemmrepro.check import python_source
from gemmrepro.check.cuda_source import text_of
from gemmrepro.check.findings import Findings
from gemmrepro.registry import Kernel


def check(kernel: Kernel, findings: Findings) -> None:
    path = kernel.source_path
    findings.require(path.is_file(), kernel.id, f"there is no source kernels/{kernel.family}/{kernel.source}.")
    if not path.is_file():
        return
    if kernel.code.compiler == "nvcc":
        _check_cuda(kernel, findings)
    else:
        _check_python(kernel, findings)


def _check_cuda(kernel: Kernel, findings: Findings) -> None:
    text = text_of(kernel)
    for code in kernel.codes:
        entry = code.code.entry
        defined = re.search(rf'extern "C" __global__[^;{{]*\b{re.escape(entry)}\s*\(', text)
        findings.require(
            bool(defined), kernel.id, f'{kernel.source} defines no entry point extern "C" __global__ {entry}(...).'
        )
    host = re.search(r"\bint main\b|<<<", text)
    findings.require(
        not host, kernel.id, f"{kernel.source} holds host code ({host[0] if host else ''}); the pipeline launches it."
    )


def _check_python(kernel: Kernel, findings: Findings) -> None:
    defined = python_source.kernels_of(kernel.source_path)
    for code in kernel.codes:
        name = code.code.function or code.code.entry
        if code.code.compiler == "cute_dsl":  # the DSL numbers its entry points
            name = name.removesuffix("_0")
        findings.require(
            name in defined, kernel.id, f"{kernel.source} defines no kernel {name}; it has {', '.join(defined)}."
        )
