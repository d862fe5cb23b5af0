"""A kernel of several entry points: one runs a shape, every one passes the gates."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest

from gemmrepro import registry
from gemmrepro.gates import numeric, stage
from gemmrepro.gates.gate import Case, Gate, Judged, Verdict
from gemmrepro.gates.operations import Gates
from gemmrepro.operations import Shape
from gemmrepro.registry import Variant

RECORD = json.loads((Path(__file__).parent / "data" / "warptile.build.json").read_text())
WARPTILE = registry.kernel("ladder.warptile")


def doubled():
    """warptile as if its source had two entry points, the second one for large problems."""
    variants = tuple(Variant(entry, WARPTILE.launch, WARPTILE.params) for entry in (WARPTILE.code.entry, "large"))
    return replace(
        WARPTILE, run=replace(WARPTILE.run, variants=variants, choose=lambda shape: variants[shape.m > 1000])
    )


@pytest.mark.parametrize("spilled", [None, "large"])
def test_the_static_gate_looks_at_every_variant(tmp_path, spilled):
    record = copy.deepcopy(RECORD)
    record["variants"] = {part.code.entry: copy.deepcopy(record["archs"]) for part in doubled().parts}
    if spilled:
        record["variants"][spilled]["sm_90"]["spill_store_bytes"] = 8
    folder = tmp_path / record["toolkit"]
    folder.mkdir()
    (folder / f"{record['kernel']}.json").write_text(json.dumps(record))
    result = stage.gate(doubled(), tmp_path, ["cuda13"], None, None)
    checks = result["toolkits"]["cuda13"]["static"]["checks"]
    failed = [(check["arch"], check["check"]) for check in checks if not check["passed"]]
    assert failed == ([("sm_90", f"{spilled}: spilled bytes")] if spilled else [])


def test_the_numerical_gate_launches_every_variant():
    launched = []

    class Loaded:
        kernel, build_key = doubled(), "key"

        def bind(self, operands, part):
            return lambda: launched.append((operands, part.code.entry))

    class OneCase(Gate):
        def cases(self, session, kernel, launch, seeds):
            launch("operands")
            good = kernel.code.entry != "large"
            case = Case(Shape.cube(8), 1.0, 0.0, "normal", 1)
            yield Judged(case, Verdict(good, 0.0, 0.0, "" if good else "wrong"), 1.0)

        def judge(self, operands, reference, kernel=None):
            raise NotImplementedError

    judged = numeric.judge(None, Loaded(), [1], Gates({"gemm": OneCase}))
    assert launched == [("operands", WARPTILE.code.entry), ("operands", "large")]
    assert [case["entry"] for case in judged["cases"]] == [WARPTILE.code.entry, "large"]
    assert judged["status"] == "failed"
    assert "large 8x8x8 normal: wrong" in judged["reason"]
