"""What a verdict says is in words: no ids, no columns, and sentences with quantities and units."""

import re
import shutil

import pytest

from gemmrepro import registry
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.experiments import results
from gemmrepro.gpu.baselines import BASELINES
from gemmrepro.judge import wording
from gemmrepro.judge.judging import judge_all

RECORDED = sorted(path for path in (ROOT / "reports" / "recorded").iterdir() if path.is_dir())


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.name)
def test_no_explanation_names_an_id_or_a_column(tmp_path, recorded):
    """Of every claim judged on a GPU's recordings as they are, without builds."""
    names = tuple(registry.family_names())
    for name in names:
        if (experiments := recorded / name / "experiments").is_dir():
            shutil.copytree(experiments, copied := tmp_path / "experiments" / name)
            try:
                results.load(copied.parent, name)
            except UserError:  # of another declaration; the stage that takes recordings over leaves them out
                shutil.rmtree(copied)
    judged = judge_all(recorded, tmp_path, tmp_path, names, experiments_dir=tmp_path / "experiments")
    ids = "|".join(map(re.escape, [*(kernel.id for kernel in registry.kernels()), *BASELINES]))
    named = re.compile(rf"_|\b(?:{ids})(?!\.?\w)|^On .*? \S+ of ")
    texts = {claim["id"]: claim["explanation"].replace("torch._scaled_mm", "") for claim in judged["claims"]}
    assert {name: text for name, text in texts.items() if named.search(text)} == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ladder.warptile over cublas.sgemm, cuda12", "Warptiling (L7) over cuBLAS, CUDA 12"),
        ("ladder.warptile_tuned, sm_120", "Warptiling, tuned (L7 tuned), compute capability 12.0"),
        (
            "of fp16_acc32, in fp8_e4m3 by torch.compile.default",
            "of fp16 with fp32 sums, in e4m3 by torch.compile, default",
        ),
        ("https://ladder.warptile.org and xladder.naive", "https://ladder.warptile.org and xladder.naive"),
    ],
)
def test_ids_in_words(text, words):
    assert wording.in_words(text) == words


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"FADD(\..*)?", "FADD"),
        (r"LDG\.E(\..*)?\.128(\..*)?", "LDG.E….128"),
        (r"HMMA\.(?!16816\.F32$).*|HGMMA.*", "HMMA. (not 16816.F32)… or HGMMA"),
    ],
)
def test_patterns_of_opcodes_in_words(pattern, words):
    assert wording.opcodes(pattern) == words


def test_a_time_has_the_unit_that_suits_it():
    assert [wording.duration(each) for each in (5.66, 999, 2689)] == ["5.66 µs", "999 µs", "2.69 ms"]
