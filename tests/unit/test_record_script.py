"""workflow/scripts/record without a GPU: which stages it runs, on what, and what it files. Stages are stood in for."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT
from synthetic import World

from gemmrepro import __main__ as command
from gemmrepro import registry
from gemmrepro.build.record import read_build
from gemmrepro.errors import UserError
from gemmrepro.gates.operations import gate_key
from gemmrepro.gpu import device
from gemmrepro.measure import regimes as regime_files
from gemmrepro.measure.recording import FILES
from gemmrepro.recordings import record as script

GPU = {"name": "NVIDIA H200", "driver": "580", "slug": "h200"}


def judged_of(words: tuple[str, ...]) -> list[str]:
    return [*words[words.index("--kernels") + 1 :]] if "--kernels" in words else []


class Stages:
    """Writes what the stages would write; `ends` are exit codes by stage, `about` is the JSON of experiments."""

    def __init__(self, build: Path) -> None:
        self.build, self.calls, self.ends, self.about = build, [], {}, "{}"

    def __call__(self, module: str, *arguments: str) -> int:
        given = dict(zip(arguments[::2], arguments[1::2], strict=False))
        self.calls.append((module, arguments, given))
        if code := self.ends.get(module, 0):
            return code
        out = Path(given.get("--out") or given["--out-dir"])
        out.mkdir(parents=True, exist_ok=True)
        if module == "judge-numbers":
            for name in judged_of(arguments):
                kernel = registry.kernel(name)
                toolkits = {
                    toolkit: {
                        "status": "passed",
                        "build_key": (build_key := read_build(kernel, self.build, toolkit).build_key),
                        "gate_key": gate_key(kernel, build_key),
                        "cases": [],
                    }
                    for toolkit in kernel.platform.toolkits
                }
                verdict = {"kernel": name, "gpu": GPU["name"], "driver": GPU["driver"], "toolkits": toolkits}
                (out / f"{name}.json").write_text(json.dumps(verdict))
        alone = "--regimes" in arguments
        for name in FILES if module == "sweep" and not alone else ():
            (out / name).write_text("rows")
        for name in regime_files.FILES if alone else ():
            (out / name).write_text(f"take with {given['--journal']}")
        for name in given["--name"].split(",") if module == "experiments" else ():
            (out / f"{name}.csv").write_text("rows")
            (out / f"{name}.json").write_text(self.about)
        return 0

    def judged(self, call: int) -> list[str]:
        return judged_of(self.calls[call][1])

    def named(self) -> list[str]:
        return [module for module, *_ in self.calls]


@pytest.fixture
def record(monkeypatch, tmp_path):
    """Runs the script's main with arguments on synthetic builds; returns its exit code."""
    world = World(tmp_path / "world", families=("crt", "ozaki")).write()
    stages = Stages(world.build)
    monkeypatch.setattr(script, "stage", stages)
    monkeypatch.setattr(device, "described", lambda: GPU)
    # What gates make of machine code is test_gates' affair; these builds hold none.
    gate = {"toolkits": {}, "passed": True}
    monkeypatch.setattr(script, "gate", lambda kernel, *_: {"kernel": kernel.id, **gate})
    # Nor do stages write rows that could be merged; test_merge.py has some.
    monkeypatch.setattr(script, "merge", lambda *_: 0)
    folders = [f"--{name}={tmp_path / name}" for name in ("work", "out")]

    def run(*arguments: str) -> int:
        stages.calls.clear()
        return command.run(["record", f"--build={world.build}", *folders, *arguments])

    run.stages, run.out, run.work, run.patch = stages, tmp_path / "out" / "h200", tmp_path / "work", monkeypatch
    return run


def test_experiments_are_filed_without_times_and_guests_are_judged_with_the_family(record):
    assert record("--families", "ozaki", "--toolkits", "cuda13", "--no-sweep", "--jobs", "1") == 0
    assert record.stages.named() == ["judge-numbers", "experiments"], "one process judges them all"
    judged = record.stages.judged(0)
    assert judged[: len(registry.kernels("ozaki"))] == [kernel.id for kernel in registry.kernels("ozaki")]
    assert {"crt.fused_14", "crt.fused", "crt.fused_16", "crt.accurate"} <= set(judged)
    filed = {path.relative_to(record.out).as_posix() for path in record.out.rglob("*") if path.is_file()}
    experiments = {
        f"ozaki/experiments/{name}.{kind}"
        for name in ("products", "accuracy", "accumulator", "variants", "direct")
        for kind in ("csv", "json")
    }
    assert filed == {"ozaki/gates.json", "ozaki/manifest.json", *experiments}
    assert set(json.loads((record.out / "ozaki/gates.json").read_text())) == {k.id for k in registry.kernels("ozaki")}
    assert (record.work / "gates/crt.fused.json").is_file(), "the experiment asks for the guests' gates"


def test_settings_of_a_file_lie_over_those_of_a_recording(record, tmp_path):
    """Rounds of the file, toolkits of the command line, kernels at 16384 as in config/record.yaml."""
    (tmp_path / "mine.yaml").write_text("sweep: {rounds: 7, sizes: {ozaki: [4096]}, kernels_at: {ladder: null}}")
    arguments = ("--families", "ozaki", "--experiments", "none", "--jobs", "1", "--toolkits", "cuda13")
    assert record(*arguments, "--config", str(tmp_path / "mine.yaml")) == 0
    sweep = json.loads((record.work / "config.ozaki.json").read_text())["sweep"]
    assert sweep["rounds"] == 7 and sweep["sizes"]["ozaki"] == [4096] and sweep["sizes"]["ladder"][-1] == 16384
    assert sweep["toolkits"] == ["cuda13"] and not sweep["toolkit_of"] and sweep["cache_of"]["hopper"] is None
    assert "ozaki.fused_bf16_d9" in sweep["kernels_at"]["ozaki"]["kernels"] and sweep["kernels_at"]["ladder"] is None


@pytest.mark.parametrize(
    ("status", "driver", "again"),
    [("passed", "580", 0), ("failed", "580", 0), ("not run", "580", 1), ("passed", "600", None)],
)
def test_a_filed_verdict_on_these_binaries_and_this_machine_stands(record, monkeypatch, status, driver, again):
    """One that was not judged for want of something is judged now, and all are with another driver."""
    asked = ("--families", "crt", "--toolkits", "cuda13", "--experiments", "none")
    assert record(*asked) == 0
    filed = json.loads((record.out / "crt/gates.json").read_text())
    filed["crt.fused"]["toolkits"]["cuda13"] |= {"status": status, "cases": []}
    (record.out / "crt/gates.json").write_text(json.dumps(filed))
    shutil.rmtree(record.work)
    monkeypatch.setattr(device, "described", lambda: {**GPU, "driver": driver})
    assert record(*asked) == 0
    judged = record.stages.judged(0) if "judge-numbers" in record.stages.named() else []
    assert judged == ["crt.fused"][:again] if again is not None else len(judged) == len(registry.kernels("crt"))
    assert again or driver != "580" or json.loads((record.out / "crt/gates.json").read_text()) == filed


def test_synthetic_rows_are_not_filed(record):
    record.stages.about = '{"synthetic": true}'
    with pytest.raises(UserError, match=r"accuracy\.json is synthetic: its rows were made for tests"):
        record("--families=crt", "--no-sweep")
    assert not record.out.exists()


def test_an_unfinished_sweep_files_nothing_and_goes_on_from_its_verdicts(record):
    record.stages.ends = {"sweep": 75}
    with pytest.raises(SystemExit) as ended:
        record("--families", "crt", "--toolkits", "cuda13", "--budget", "5")
    assert ended.value.code == 75
    assert not record.out.exists()
    record.stages.ends = {}
    assert record("--families", "crt", "--toolkits", "cuda13") == 0
    assert record.stages.named() == ["sweep", "experiments"]


def test_only_what_is_missing_is_timed_and_the_other_rows_stay(record, capsys, tmp_path):
    shutil.copytree(ROOT / "reports/recorded/h200/crt", record.out / "crt")
    merged = []
    record.patch.setattr(script, "merge", lambda *folders: merged.append(folders[:2]) or 12)
    # No binary is one of those that were recorded.
    assert record("--families", "crt", "--missing", "--experiments", "none", "--toolkits", "cuda13") == 0
    (arguments,) = [words for module, words, _ in record.stages.calls if module == "sweep"]
    assert "crt.fused" in arguments[arguments.index("--kernels") + 1].split(",")
    told = capsys.readouterr().err
    assert "without current rows (cuda13, warm caches)" in told
    assert "crt: 12 recorded rows of points that were not measured now stay" in told
    assert merged == [(record.work / "measure/crt", record.out / "crt")]


def test_bad_arguments_are_refused_before_anything_runs(record, tmp_path):
    (tmp_path / "mine.yaml").write_text("experiments: {crt: {accuracy: {rows: 3}}}")
    for arguments, message in (
        (("--families", "crt", "--experiments", "speed"), "no chosen family has the experiment speed"),
        (("--families", "crt", "--config", str(tmp_path / "mine.yaml")), "has no setting 'rows'"),
    ):
        with pytest.raises(UserError, match=message):
            record(*arguments)
        assert record.stages.calls == []


def test_the_script_runs_by_itself_and_refuses_what_is_no_configuration(tmp_path):
    command = [str(ROOT / "workflow/scripts/record"), "--config", str(tmp_path / "none.yaml")]
    answer = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=tmp_path)
    assert answer.returncode == 1 and "none.yaml is missing" in answer.stderr and "Traceback" not in answer.stderr
    assert not [*tmp_path.iterdir()]


def test_each_recording_of_the_regimes_is_a_take_of_its_own(record, tmp_path):
    for take in ("1", "2"):
        assert record("--families=crt", "--regimes", "--no-sweep", "--experiments=none") == 0
        folder = tmp_path / "out" / "h200" / "crt" / regime_files.FOLDER / take
        assert {path.name for path in folder.iterdir()} == set(regime_files.FILES)
        assert (folder / regime_files.SUMMARY).read_text().endswith(f"regimes/crt/{take}")
    assert record.stages.named() == ["sweep"] and record.stages.calls[0][1][-1] == "--regimes"
    # A family without sizes in the regimes has no take.
    (tmp_path / "without.yaml").write_text("regimes: {sizes: {ozaki: []}}")
    config = f"--config={tmp_path / 'without.yaml'}"
    assert record("--families=ozaki", "--regimes", "--no-sweep", "--experiments=none", config) == 0
    assert not (tmp_path / "out" / "h200" / "ozaki" / regime_files.FOLDER).exists()
