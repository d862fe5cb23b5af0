"""cuTile's releases in turn: which binaries are timed, what is left out, and how the page shows the speeds."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pandas as pd
import pytest

from gemmrepro import experiments, registry
from gemmrepro.build import versions
from gemmrepro.core.journal import fresh_seeds
from gemmrepro.errors import UserError
from gemmrepro.experiments.results import Results
from gemmrepro.experiments.run import Context, Subject
from gemmrepro.measure.records import Check
from gemmrepro.paper.discussion.compilers import Compilers
from gemmrepro.paper.discussion.sources import Sources
from gemmrepro.paper.experiments import SkippedView
from gemmrepro.timing import Burst

EXPERIMENT = experiments.experiment("cutile", "releases")
KERNEL = registry.kernel("cutile.matmul_bf16")
RELEASES = EXPERIMENT.parameters["releases"]
IMAGE = versions.locked("nvidia-cuda-tileiras")


def test_every_timed_product_is_compared_and_one_of_each_kind_at_8192():
    timed = {
        kernel.id
        for kernel in registry.kernels("cutile")
        if kernel.timing.timed and kernel.problem.operation.matrix_product and not kernel.name.endswith("_tuned")
    }
    sizes = EXPERIMENT.parameters["sizes"]
    assert {name for name in EXPERIMENT.kernels if not name.endswith("_tuned")} == timed
    assert sizes["4096"] == [*EXPERIMENT.kernels] and {*sizes["8192"]} < {*EXPERIMENT.kernels}
    assert (*sorted([*RELEASES, IMAGE]),) == versions.VERSIONS
    points = EXPERIMENT.points(EXPERIMENT.parameters)
    assert len(points) == len(sizes["4096"]) + len(sizes["8192"]) and points[-1]["n"] == 8192
    assert all("fp64" not in point["kernel"] for point in points if point["n"] == 8192), "those take seconds"


@dataclass
class Machine:
    """A GPU that takes as many µs for a binary as `us` says, by release; what is in `wrong` fails its judgement."""

    us: dict[str, float]
    wrong: set[str] = field(default_factory=set)
    refuses: set[str] = field(default_factory=set)
    judged: list[str] = field(default_factory=list)
    plans: list = field(default_factory=list)

    def loaded(self, session, kernel, path, toolkit):
        if toolkit in self.refuses:
            raise UserError("the driver does not know it.")
        assert path == versions.binary(versions.BINARIES, kernel, toolkit)
        return SimpleNamespace(bind=lambda operands: toolkit)

    def check(self, call, timer, kernel=None):
        self.judged.append(call)
        return Check(call not in self.wrong, "wrong" if call in self.wrong else "", 0.0, 0.0, self.us[call])

    def burst(self, kernel, baseline, cache, plan, estimates, graphs):
        (mine,), (theirs,) = kernel, baseline
        self.plans.append(plan)
        return Burst([self.us[mine]] * 7, [self.us[theirs]] * 7)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Such a GPU, with binaries of all releases."""
    made = Machine({IMAGE: 200.0, "13.3.36": 400.0, "13.4.59": 200.0, "13.5.37": 160.0})
    monkeypatch.setattr(versions, "BINARIES", tmp_path)
    for release in RELEASES:
        path = versions.binary(tmp_path, KERNEL, release)
        path.parent.mkdir()
        path.touch()
    monkeypatch.setattr("gemmrepro.gpu.loaded.Loaded.from_file", made.loaded)
    monkeypatch.setattr("gemmrepro.timing.Timer", lambda session: made)

    def workspace(session, problem, shape, seed):
        return SimpleNamespace(operands=lambda kernel: (problem, shape), check=made.check)

    monkeypatch.setattr("gemmrepro.measure.workspace.Workspace", workspace)
    return made


def measured(build_key=None, session=None) -> tuple[list[dict], list[str]]:
    """The rows of KERNEL at 4096, and why what is left out is left out."""
    subject = Subject(KERNEL.id, "cuda13", build_key or versions.key_of(KERNEL, IMAGE))
    context = Context(session, EXPERIMENT, {subject: SimpleNamespace(bind=lambda operands: IMAGE)}, {})
    rows = list(EXPERIMENT.measure(context, {"kernel": KERNEL.id, "n": 4096}))
    return rows, [entry.reason for entry in context.left_out]


def test_each_release_has_a_row_relative_to_the_images(machine):
    rows, left_out = measured()
    assert not left_out and [row["compiler"] for row in rows] == RELEASES
    assert [row["ratio"] for row in rows] == [0.5, 1.0, 1.25]
    assert all(row["low"] <= row["ratio"] <= row["high"] for row in rows)
    assert {row["image"] for row in rows} == {2 * 4096**3 / 200 * 1e-6}
    assert rows[0]["tflops"] == rows[0]["image"] / 2
    assert [row["compiled"] for row in rows] == [versions.key_of(KERNEL, release) for release in RELEASES]
    assert {row["build_key"] for row in rows} == {versions.key_of(KERNEL, IMAGE)}
    assert machine.judged == [IMAGE, *RELEASES] * EXPERIMENT.settings["rounds"], "anew in each round"
    assert {plan.seconds for plan in machine.plans} == {EXPERIMENT.settings["seconds"]}


def test_products_that_take_long_get_the_time_of_some_pairs(machine):
    machine.us = dict.fromkeys(machine.us, 150_000.0)
    measured()
    assert all(plan.needed(0.3) == plan.least == 3 for plan in machine.plans)


def test_what_is_wrong_or_cannot_be_loaded_is_left_out_and_the_others_are_timed(machine):
    machine.wrong, machine.refuses = {"13.3.36"}, {"13.4.59"}
    rows, left_out = measured()
    assert [row["compiler"] for row in rows] == ["13.5.37"]
    assert left_out == ["13.4.59: the driver does not know it.", "13.3.36 at 4096: wrong"]
    assert machine.judged.count("13.3.36") == 1


def test_a_wrong_binary_of_the_image_leaves_no_row(machine):
    machine.wrong = {IMAGE}
    rows, left_out = measured()
    assert not rows and left_out == [f"{release} at 4096: wrong" for release in RELEASES]


def test_without_binaries_or_with_another_release_in_the_image_nothing_is_timed(machine):
    for release in RELEASES:
        versions.binary(versions.BINARIES, KERNEL, release).unlink()
    assert measured() == ([], ["results/compilers has none of its binaries by another release; see docs/running.md"])
    rows, (reason,) = measured(build_key="0")
    assert not rows and reason == f"its binary is not of the release that the images hold, {IMAGE}"
    assert not machine.judged
    nothing = Context(None, EXPERIMENT, {}, {})
    assert not list(EXPERIMENT.measure(nothing, {"kernel": KERNEL.id, "n": 4096}))


def test_seeds_of_rounds_differ():
    assert len({*fresh_seeds(EXPERIMENT.settings["rounds"])}) == EXPERIMENT.settings["rounds"] > 1


def row(kernel: str, release: str, ratio: float, n: int = 4096, status: str = "current") -> dict:
    shown = {"compiler": release, "n": n, "compiled": "0", "tflops": 600 * ratio, "image": 600.0}
    about = {"kernel": f"cutile.{kernel}", "toolkit": "cuda13", "build_key": "0", "status": status}
    return about | shown | {"ratio": ratio, "low": ratio, "high": ratio}


def test_the_page_has_a_row_for_each_kernel_and_says_what_is_refused():
    seen = (("matmul_bf16", "13.3.36", 0.98), ("matmul_bf16", "13.5.37", 1.003), ("pairs_bf16", "13.5.37", 0.9))
    rows = [row(*one) for one in seen]
    rows += [row("matmul_bf16", "13.5.37", 0.5, n=8192, status="stale")]
    table = pd.DataFrame(rows, columns=list(EXPERIMENT.header))
    page = Compilers(Sources("cutile", {}, {"releases": Results(EXPERIMENT, table)}))
    text = str(page.speeds(4096))
    assert text.count("<tr><th") == 2 and f'<th scope="col" class="n">{IMAGE}</th>' in text
    assert '<th scope="row">matmul_bf16</th><td class="n"><a href="#row-cutile-releases-0">600</a></td>' in text
    assert ">0.980</a>" in text and ">1.00</a>" in text and ">0.900</a>" in text
    assert text.count("refused") == 1, "13.3.36 refuses pairs_bf16"
    assert '<s class="stale">' in str(page.speeds(8192)) and "13.3.36" not in str(page.speeds(8192))
    assert not page.speeds(2048) and not Compilers(Sources("cutile", {})).speeds(4096)


def test_kernels_left_out_for_one_reason_are_named_together():
    entries = [{"kernel": name, "toolkit": "cuda13", "reason": "no binaries"} for name in "abbcdef"]
    several, one = SkippedView.grouped([*entries, {"kernel": "a", "toolkit": "cuda12", "reason": "no binaries"}])
    assert several == SkippedView("a, b, c, d and 2 more", "cuda13", "no binaries")
    assert one == SkippedView("a", "cuda12", "no binaries")
    assert SkippedView.grouped(entries[:5]) == (SkippedView("a, b, c and d", "cuda13", "no binaries"),)
