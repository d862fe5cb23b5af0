"""Wrong configurations and command lines: one line that names the key and the remedy, exit code 1, no traceback."""

from __future__ import annotations

import copy
import functools
import math
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake.utils import update_config
from support import ROOT, call

from gemmrepro.errors import UserError
from gemmrepro.host import command_line
from gemmrepro.host.config import check

ABSENT = object()


@functools.cache
def shipped() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "config/config.yaml").read_text())


def changed(key: str, value: Any) -> dict[str, Any]:
    """The shipped configuration with one key replaced, or taken out."""
    config = copy.deepcopy(shipped())
    *path, last = key.split(".")
    inner = config
    for part in path:
        inner = inner.setdefault(part, {})
    if value is ABSENT:
        del inner[last]
    else:
        inner[last] = value
    return config


WRONG: list[tuple[str, Any, str]] = [
    # key, value, what the message says
    ("measure", "sometimes", "measure: 'sometimes' is not one of [...]; choose one of auto, live, recorded"),
    ("measure", True, "measure: True is not one of [...]; choose one of auto, live, recorded"),
    ("measure", ABSENT, "'measure' is a required property; add it, as in config/config.yaml"),
    ("colour", "blue", "('colour' was unexpected); choose among measure, "),
    ("sweep.round", 3, "sweep: [...]('round' was unexpected); choose among rounds, "),
    ("sweep.rounds", 0, "sweep.rounds: 0 is less than the minimum of 2; rounds in which each point is sampled"),
    ("sweep.rounds", 10**9, "sweep.rounds: 1000000000 is greater than the maximum of 1000"),
    ("sweep.rounds", 5.0, "sweep.rounds: 5.0 is not of type 'integer'"),
    ("sweep.rounds", "5", "sweep.rounds: '5' is not of type 'integer'"),
    ("sweep.rounds", ABSENT, "sweep: 'rounds' is a required property; add it"),
    ("sweep.interval", math.nan, "sweep.interval: nan is not of type 'number'"),
    ("sweep.seconds_per_round", math.inf, "sweep.seconds_per_round: inf is not of type 'number'"),
    ("sweep.samples_per_round", [9, 3], "sweep.samples_per_round: the minimum, 9, exceeds the maximum, 3; swap them"),
    ("sweep.samples_per_round", [9], "sweep.samples_per_round: [9] is too short; minimum and maximum number"),
    ("sweep.toolkits", ["cuda11"], "sweep.toolkits.0: 'cuda11' is not one of [...]; choose one of cuda12, cuda13"),
    ("sweep.kernels_at.cutile.kernels", ["cutile.no"], "there is no timed kernel cutile.no; choose among [...]cutile."),
    ("sweep.kernels_at.nonesuch", None, "sweep.kernels_at: there is no kernel family nonesuch; choose among ada"),
    ("sweep.sizes.ladder", ["big"], "sweep.sizes.ladder.0: 'big' is not of type 'integer'"),
    ("sweep.sizes.ladder", [1 << 40], "sweep.sizes.ladder: 1099511627776 needs more than a TiB of memory; choose a"),
    ("sweep.sizes.ladder", ABSENT, "sweep.sizes: family ladder has no sizes; add a list, such as [1024]"),
    ("sweep.sizes.snake", [1024], "sweep.sizes: there is no kernel family snake; choose among ada,"),
    ("sweep.counters.snake", [1024], "sweep.counters: there is no kernel family snake; choose among ada,"),
    ("sweep.counters.ladder", [333], "sweep.counters.ladder: 333 is not timed; choose among sweep.sizes.ladder (256,"),
    ("regimes.kernels.hopper", ["hopper.no"], "there is no timed kernel hopper.no; choose among [...]hopper.lockstep"),
    ("regimes.minutes", {"nonesuch": 1}, "regimes.minutes: there is no kernel family nonesuch; choose among ada"),
    ("regimes.sizes", {"nonesuch": [1]}, "regimes.sizes: there is no kernel family nonesuch; choose among ada"),
    ("families", ["ladder", "snake"], "families: there is no kernel family snake; choose among ada,"),
    ("families", [], "families: [] [...]; families to build, gate and report"),
    ("families", ["ladder", "ladder"], "families: ['ladder', 'ladder'] has non-unique elements"),
    ("gpu", {"name": "NVIDIA H200"}, "gpu: 'capability' is a required property; add it"),
    ("gpu", "H200", "gpu: 'H200' is not of type 'null', 'object'; the GPU that jobs measure on"),
    ("recorded_gpu", "nonesuch", "recorded_gpu: there is no [...]; choose among h100-80gb-hbm3, h200, or record it"),
    ("recorded_gpu", "../h200", "recorded_gpu: '../h200' does not match"),
    ("tuned_gpu", "nonesuch", "tuned_gpu: there is no [...], none, or search them with the target tune"),
    ("tuned_gpu", "$(reboot)", "tuned_gpu: '$(reboot)' does not match [...]; write a name of lower-case letters"),
    ("build.cuda13", [77], "build.cuda13: cuda13 does not compile for 77; choose among 75, 80,"),
    ("build.cuda13", "all", "build.cuda13: 'auto' was expected; write auto, or a list of compute capabilities x 10"),
    ("build.cuda13", [], "sweep.toolkits: cuda13 is not built; take it out"),
    ("build", {"cuda12": [], "cuda13": []}, "build: no toolkit has an architecture to build for; give cuda12 or"),
    ("compiled_once", ["snake"], "compiled_once: there is no kernel family snake; choose among ada,"),
    ("experiments.snake", {}, "experiments: there is no kernel family snake; choose among ada,"),
    ("experiments.ozaki", {"nonesuch": {}}, "nonesuch[...]its experiments: "),
    ("experiments.ozaki", {"products": {"round": 3}}, "experiments.ozaki: [...]its settings: rounds,"),
    ("experiments.ozaki", {"products": {"trial_seconds": math.nan}}, "products.trial_seconds[...]of its default, 0.2"),
    ("experiments.pytorch", {"training": {"modes": "eager"}}, "training.modes[...]of its default"),
    ("tune.arch", 77, "tune.arch: cuda13 does not compile for 77; choose among 75, 80,"),
]


def says(message: str, expected: str) -> bool:
    """Whether the parts of `expected` between [...] stand in a message in this order."""
    return bool(re.search(".*".join(map(re.escape, expected.split("[...]"))), message))


@pytest.mark.parametrize(("key", "value", "expected"), WRONG)
def test_a_wrong_configuration_is_refused_in_one_line(key: str, value: Any, expected: str) -> None:
    with pytest.raises(UserError) as refusal:
        check(changed(key, value))
    assert says(str(refusal.value), expected), refusal.value
    assert "config/config.yaml" in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_toolkit_that_tunes_must_be_built() -> None:
    config = changed("build.cuda13", [])
    config["sweep"]["toolkits"] = ["cuda12"]
    with pytest.raises(UserError, match=r"tune\.toolkit: cuda13 is not built; choose one of cuda12"):
        check(config)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tuned_gpu", "none"),
        ("build.cuda13", [90, 121]),
        ("sweep.interval", 1),
        ("sweep.seconds_per_round", 1),
        ("experiments.ozaki", {"products": {"trial_seconds": 2}}),
        ("experiments.pytorch", {"training": {"modes": ["eager"], "together": True}}),
    ],
)
def test_a_right_configuration_passes(key: str, value: Any) -> None:
    check(changed(key, value))


@pytest.mark.parametrize(
    ("told", "sizes", "counters"),
    [
        ({"sweep": {"sizes": {"ladder": ["8192"]}}}, [8192], []),
        ({"sweep": {"sizes": {"ladder": ["4096", "8192"]}}, "measure": "recorded"}, [4096, 8192], [4096]),
        ({"sweep": {"sizes": {"ladder": ["512"]}, "counters": {"ladder": ["512"]}}}, [512], [512]),
    ],
)
def test_the_command_line_gives_values_as_a_file_does(
    told: dict[str, Any], sizes: list[int], counters: list[int]
) -> None:
    config = copy.deepcopy(shipped())
    update_config(config, told)
    command_line.settle(config, told, told)
    check(config)
    assert (config["sweep"]["sizes"]["ladder"], config["sweep"]["counters"]["ladder"]) == (sizes, counters)


def test_a_live_run_does_not_need_recordings() -> None:
    config = changed("recorded_gpu", "a100")
    config["measure"] = "live"
    check(config)


def test_a_key_that_a_file_has_twice_is_named_with_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("sweep:\n  rounds: 3\n  interval: 0.1\n  rounds: 4\n")
    with pytest.raises(UserError, match=r"sweep\.rounds is in mine\.yaml twice, in lines 2 and 4; delete one"):
        check(shipped(), files=[file])


@pytest.mark.parametrize("file", sorted((ROOT / "config").glob("*.yaml")), ids=lambda file: file.name)
def test_no_shipped_file_has_a_key_twice(file: Path) -> None:
    assert list(command_line.repeated_keys(file)) == []


def test_a_mapping_that_holds_itself_is_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "loop.yaml"
    file.write_text("a: &a\n  b: *a\n  b: 1\n")
    assert [problem.split()[0] for problem in command_line.repeated_keys(file)] == ["a.b"]


COMMAND_LINES: list[tuple[list[str], str]] = [
    (["snakemake", "-n", "--cores", "1", "--config", "measure=sometimes"], "one of auto, live, recorded"),
    (["snakemake", "-n", "--cores", "1", "--config", "recorded_gpu=nonesuch"], "choose among h100-80gb-hbm3, h200"),
    (["snakemake", "-n", "--cores", "1", "--configfile", "{wrong}"], "sweep.rounds is in wrong.yaml twice"),
    (["snakemake", "-n", "--cores", "0"], "--cores 0 leaves no core to any job; give 1 or more"),
    (["snakemake", "-n", "--cores", "1", "reprot"], "there is no target 'reprot'; did you mean report?"),
    (
        ["snakemake", "-n", "--cores", "1", "results/gates/ladder.smme.json"],
        "there is no kernel 'ladder.smme'; did you mean ladder.smem",
    ),
    (
        ["snakemake", "-n", "--cores", "1", "results/measure/laddr/summary.csv"],
        "did you mean results/measure/ladder/summary.csv?",
    ),
    *(
        (
            ["snakemake", "-n", "--cores", "1", "--config", f"sweep={{sizes: {{ladder: [{size}]}}}}"],
            f"sweep.sizes.ladder.0: {must}",
        )
        for size, must in {"0": "0 is less than the minimum of 1", "4096.5": "4096.5 is not of type"}.items()
    ),
    *(
        (["python", "-m", "gemmrepro.host.command_line", "-n", *words], said)
        for words, said in (
            (["--configfile", "config/fulll.yaml"], "config/fulll.yaml cannot be read (No such file or directory)"),
            (["--configfile", "{empty}"], "empty.yaml has no keys with values"),
            (["--configfile", "{broken}"], "broken.yaml is not YAML or JSON: while parsing a flow sequence line 1"),
            (["--configfile", "{tagged}"], "tagged.yaml is not YAML or JSON: could not determine a constructor"),
            (["--configfile={binary}"], "binary.yaml is not YAML or JSON: 'utf-8' codec"),
            (
                ["--configfile", "config/full.yaml", "report"],
                "takes 'report' for a file; put targets before the options",
            ),
            (
                ["--config", "measure=recorded", "report"],
                "takes 'report' for a setting, which is key=value; put targets",
            ),
            (
                ["--quiet", "rules", "report"],
                "takes 'report' for one of all, host, progress, reason, rules; put targets",
            ),
        )
    ),
    (["python", "-m", "gemmrepro", "nonesuch"], "known are check"),
    (["python", "-m", "gemmrepro", "check", "nonesuch"], "no kernel family 'nonesuch'; known families: ada, ceilings,"),
    (
        ["python", "-m", "gemmrepro.build.stage", "--kernel", "no.such", "--toolkit", "cuda12", "--archs", "90"],
        "there is no kernel 'no.such'; did you mean",
    ),
    (["workflow/scripts/record", "--families", "nonesuch"], "'nonesuch'; known families: ada, ceilings,"),
    (["workflow/scripts/record", "--rounds", "0"], "--rounds must be at least 2"),
    (["workflow/scripts/record", "--seconds", "nan"], "--seconds must be"),
    # Paths that do not exist.
    (["python", "-m", "gemmrepro", "compare", "{runs}", "{runs}", "--figure", "x.bmp"], "choose a name in .svg, .pdf"),
    (["python", "-m", "gemmrepro", "compare", "{runs}", "{list_run}"], "run.json is corrupt: the whole: "),
    (["python", "-m", "gemmrepro", "accept", "/none.zip"], "/none.zip cannot be read (No such file or directory)"),
    (["python", "-m", "gemmrepro.judge.tally", "/none.json"], "/none.json is missing; make them with"),
    (["python", "-m", "gemmrepro.judge.tally", "{runs}"], "cannot be read (Is a directory); make them with"),
    (["python", "-m", "gemmrepro.judge.tally", "{list}"], "was written by another version; judge again"),
    (
        ["python", "-m", "gemmrepro.recordings.bring", "--recorded", "/none", "--families", "ladder", "--out", "/none"],
        "there is no recording /none/ladder",
    ),
    (
        [
            "python",
            "-m",
            "gemmrepro.gates.stage",
            "--kernels",
            "ladder.naive=cuda13",
            "--build",
            "/none",
            "--out",
            "/none",
        ],
        "/none/cuda13/ladder.naive.json is missing; run the target 'build' again",
    ),
    # A round that ignored its budget would wait for a line on standard input, and then measure to its end.
    (
        [
            "python",
            "-m",
            "gemmrepro.measure.sweep",
            *("--family", "ladder", "--config", "/none", "--journal", "/none", "--out", "/none"),
            *("--round", "0", "--budget", "60"),
        ],
        "--budget does not apply to --round; write the seconds that the round may take to its standard input",
    ),
]


@pytest.mark.parametrize("key", ["sweep.rounds", "experiments.ozaki"])
def test_a_wrong_configuration_ends_the_main_command_with_one_line(key: str, tree: Path, tmp_path: Path) -> None:
    value, expected = next((value, expected) for name, value, expected in WRONG if name == key)
    mine = tmp_path / "mine.yaml"
    for part in reversed(key.split(".")):
        value = {part: value}
    mine.write_text(yaml.safe_dump(value))
    done = call(["snakemake", "-n", "--cores", "1", "--configfile", str(mine)], tree)
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stdout
    (said,) = (line for line in done.stdout.splitlines() if line.startswith("gemmrepro: "))
    assert says(said, expected)
    assert done.stdout.splitlines()[-1] == said


@pytest.mark.parametrize(
    ("variable", "value"),
    [("XDG_CACHE_HOME", "/proc/none"), ("CUPY_CACHE_DIR", "/etc/passwd"), ("APPTAINER_CACHEDIR", "/dev/null/x")],
)
def test_a_cache_that_cannot_be_written_is_refused_by_its_variable(variable: str, value: str, tree: Path) -> None:
    done = call(["snakemake", "-n", "--cores", "1"], tree, **{variable: value})
    assert done.returncode == 1 and "Traceback" not in done.stdout, done.stdout
    assert done.stdout.splitlines()[-1].startswith(f"gemmrepro: {variable}: the folder {value} cannot be written (")


@pytest.mark.parametrize(("command", "remedy"), COMMAND_LINES, ids=[" ".join(c) for c, _ in COMMAND_LINES])
def test_a_wrong_command_line_ends_with_one_line(command: list[str], remedy: str, tree: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("sweep: {rounds: 3, rounds: 4}\n")
    (tmp_path / "list.json").write_text("[1]")
    written = {"empty": b"", "broken": b"a: [1", "tagged": b"a: !!python/binary x", "binary": bytes(range(256))}
    for name, text in written.items():
        (tmp_path / f"{name}.yaml").write_bytes(text)
    for side in ("runs", "list_run"):
        shutil.copytree(ROOT / "reports/recorded/h200/ladder", tmp_path / side / "ladder")
    (tmp_path / "list_run/ladder/run.json").write_text("[1]")
    places = {"wrong": wrong, "list": tmp_path / "list.json"} | {side: tmp_path / side for side in ("runs", "list_run")}
    places |= {name: tmp_path / f"{name}.yaml" for name in written}
    program = {"python": [sys.executable], "workflow/scripts/record": [sys.executable, command[0]]}
    arguments = [part if "sizes" in part else part.format(**places) for part in command[1:]]
    if "gemmrepro.build.stage" in arguments:
        arguments += ["--out", str(tmp_path / "out")]
    if command[0].endswith("record"):
        arguments += ["--work", str(tmp_path / "work")]
    done = call([*program.get(command[0], command[:1]), *arguments], tree, PYTHONPATH=str(tree / "workflow"))
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stdout
    # Where no GPU is found, a run says so first.
    said = [line for line in done.stdout.splitlines() if line.startswith("gemmrepro: ") and "nothing: " not in line]
    assert len(said) == 1, done.stdout
    assert remedy in said[0]
    assert done.stdout.splitlines()[-1] == said[0]
