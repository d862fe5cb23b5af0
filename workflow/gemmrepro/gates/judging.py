"""The numerical gate's verdict on what can be bound to operands: a loaded binary, or a file of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmrepro.errors import UserError, shortage
from gemmrepro.gates.operations import Gates, gate_key
from gemmrepro.gpu.device import Session
from gemmrepro.gpu.loaded import Loaded
from gemmrepro.gpu.own import Bound
from gemmrepro.operands import Operands
from gemmrepro.registry import Kernel


def judge(
    session: Session, loaded: Loaded | Bound, seeds: Sequence[int], gates: Gates | None = None, entry: str = ""
) -> dict[str, Any]:
    """The gate's verdict on one loaded binary, or on one `entry` point: an entry of ``toolkits`` in the gate's JSON."""
    kernel = loaded.kernel
    gate_of_kernel = (gates or Gates()).of(kernel.compute.op)
    records, failures = [], []
    try:
        for part in kernel.parts:
            if entry and part.code.entry != entry:
                continue
            named = {"entry": part.code.entry} if kernel.run.variants else {}

            def launch(operands: Operands, part: Kernel = part) -> None:
                loaded.bind(operands, part)()

            for judged in gate_of_kernel.cases(session, part, launch, seeds):
                records.append({**judged.record(), **named})
                if not judged.verdict.passed:
                    case = f"{judged.case.shape} {judged.case.inputs}: {judged.verdict.message}"
                    failures.append(" ".join([*named.values(), case]))
        reason = f"{len(failures)} of {len(records)} cases failed; {failures[0]}" if failures else ""
    except UserError as error:
        # A launch that corrupts the GPU's context ends this kernel's gate, with a verdict.
        failures.append(str(error))
        reason = str(error)
    except Exception as error:
        reason = shortage(error)
        if not reason:
            raise
        return {"status": "not run", **keys_of(kernel, loaded.build_key), "reason": reason, "cases": []}
    return {
        "status": "failed" if failures else "passed",
        **keys_of(loaded.kernel, loaded.build_key),
        "reason": reason,
        "cases": records,
    }


def keys_of(kernel: Kernel, build_key: str) -> dict[str, str]:
    """The keys that a verdict on this binary is filed under."""
    return {"build_key": build_key, "gate_key": gate_key(kernel, build_key)}
