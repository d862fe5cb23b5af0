"""A record's expectations about machine code are valid regular expressions, each with a reason."""

from __future__ import annotations

import re

from gemmrepro.check.findings import Findings
from gemmrepro.registry import Expect, Kernel


def check(kernel: Kernel, findings: Findings) -> None:
    findings.require(
        any(code.promises.expects for code in kernel.codes),
        kernel.id,
        "it expects nothing of its machine code; add an Expect that shows its idea.",
    )
    for code in kernel.codes:
        for expect in code.promises.expects:
            _check_expect(kernel, expect, findings)
    for refusal in kernel.promises.refusals:
        findings.require(
            _compiles(refusal.message) and bool(refusal.why),
            kernel.id,
            f"the refusal '{refusal.message}' is no regular expression, or gives no reason.",
        )


def _check_expect(kernel: Kernel, expect: Expect, findings: Findings) -> None:
    findings.require(
        _compiles(expect.opcode), kernel.id, f"the opcode '{expect.opcode}' is no valid regular expression."
    )
    findings.require(bool(expect.why), kernel.id, f"the opcode '{expect.opcode}' is expected without a reason (why).")
    findings.require(
        expect.least >= 0 and (expect.most is None or expect.most >= expect.least),
        kernel.id,
        f"the opcode '{expect.opcode}' is expected between {expect.least} and {expect.most} times.",
    )


def _compiles(expression: str) -> bool:
    try:
        re.compile(expression)
    except re.error:
        return False
    return True
