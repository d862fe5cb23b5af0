"""Constants in a record equal those in its source; the report and the launches use the record's."""

from __future__ import annotations

from gemmrepro.check import python_source
from gemmrepro.check.cuda_source import constants, text_of, value_of
from gemmrepro.check.findings import Findings
from gemmrepro.registry import Kernel

TILE = ("bm", "bn", "bk")
"""Constants that every tiled source must define."""


def check(kernel: Kernel, findings: Findings) -> None:
    if not kernel.source_path.is_file():
        return
    if kernel.code.compiler == "cutile":
        _check_cutile(kernel, findings)
        return
    if kernel.code.compiler == "cute_dsl":
        defined: dict[str, int | None] = {**python_source.module_constants(kernel.source_path)}
    else:
        named = constants(text_of(kernel), kernel.code.defines)
        defined = {name: value_of(expression, named) for name, expression in named.items()}
    for name, value in kernel.code.params.items():
        actual = defined.get(name.upper(), defined.get("TILE") if name in TILE else None)
        if actual is None:
            findings.require(
                name not in TILE or bool(kernel.run.variants),
                kernel.id,
                f"{kernel.source} has no constant {name.upper()}, which Code.params gives as {value}.",
            )
        else:
            findings.require(
                actual == value, kernel.id, f"Code.params says {name} = {value}; in {kernel.source} it is {actual}."
            )


def _check_cutile(kernel: Kernel, findings: Findings) -> None:
    """The constants that a record passes to a function are the function's constant parameters."""
    functions = python_source.kernels_of(kernel.source_path)
    for code in kernel.codes:
        name = code.code.function or code.code.entry
        pairs = [pair.split("=") for pair in code.code.defines.get("PARAMETERS", "").split(",") if "=" in pair]
        passed = {key: int(value) for key, value in pairs}
        accepted = set(functions.get(name, ()))
        findings.require(
            set(passed) == accepted,
            kernel.id,
            f"{name} of {kernel.source} takes the constants {', '.join(sorted(accepted))}; "
            f"its record gives {', '.join(sorted(passed))}.",
        )
        different = {key: value for key, value in code.code.params.items() if passed.get(key.upper(), value) != value}
        findings.require(
            not different,
            kernel.id,
            f"Code.params and Code.defines of {name} differ in {', '.join(sorted(different))}.",
        )
