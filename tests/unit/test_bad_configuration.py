"""Wrong configurations and command lines: one line that names the key and the remedy, exit code 1, no traceback."""

import copy
import functools
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake.utils import update_config
from support import ROOT, call

from gemmrepro import __main__ as command
from gemmrepro.errors import UserError
from gemmrepro.host import command_line
from gemmrepro.host.config import check

CASES = yaml.safe_load((Path(__file__).parent / "data/wrong_configurations.yaml").read_text())


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
    if value == "(taken out)":
        del inner[last]
    else:
        inner[last] = value
    return config


def says(message: str, expected: str) -> bool:
    """Whether the parts of `expected` between [...] stand in a message in this order."""
    return bool(re.search(".*".join(map(re.escape, expected.split("[...]"))), message))


@pytest.mark.parametrize(("key", "value", "expected"), CASES["wrong"])
def test_a_wrong_configuration_is_refused_in_one_line(key: str, value: Any, expected: str) -> None:
    with pytest.raises(UserError) as refusal:
        check(changed(key, value))
    assert says(str(refusal.value), expected), refusal.value
    assert "config/config.yaml" in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tuned_gpu", "none"),
        ("build.cuda13", [90, 121]),
        ("sweep.seconds_per_round", 1),
        ("experiments.ozaki", {"products": {"trial_seconds": 2}}),
        ("experiments.pytorch", {"training": {"modes": ["eager"], "together": True}}),
    ],
)
def test_a_right_configuration_passes(key: str, value: Any) -> None:
    check(changed(key, value))
    check(changed("recorded_gpu", "a100") | {"measure": "live"})  # which needs no recordings


@pytest.mark.parametrize(
    ("told", "sizes", "counters"),
    [
        ({"sweep": {"sizes": {"ladder": ["8192"]}}}, [8192], []),
        ({"sweep": {"sizes": {"ladder": ["4096", "8192"]}}, "measure": "recorded"}, [4096, 8192], [4096]),
        ({"sweep": {"sizes": {"ladder": ["512"]}, "counters": {"ladder": ["512"]}}}, [512], [512]),
        ({"sweep": {"sizes": {"ladder": [512], "cutile": [1024], "crt": [8192]}}}, [512], []),
    ],
)
def test_the_command_line_gives_values_as_a_file_does(told, sizes, counters):
    config = copy.deepcopy(shipped())
    update_config(config, told)
    command_line.settle(config, told, told)
    check(config)
    assert (config["sweep"]["sizes"]["ladder"], config["sweep"]["counters"]["ladder"]) == (sizes, counters)


@pytest.mark.parametrize(
    ("words", "near"),
    [
        ("--until rport", "'rport'; did you mean report?"),
        ("--forcerun gat", "'gat'; did you mean gates?"),
        ("--prioritize reprot -- gates", "'reprot'; did you mean report?"),
        ("--allowed-rules gates nonesuch", "'nonesuch'; the README lists the targets"),
    ],
)
def test_an_option_that_names_no_target_is_refused_with_the_nearest(words: str, near: str) -> None:
    with pytest.raises(UserError, match=re.escape(near)):
        command_line.check_targets(["-n", *words.split()], ["gates", "report"], lambda path: False)
    command_line.check_targets(["-n", "--until", "report", "--forcerun", "gates"], ["gates", "report"], bool)


def test_a_key_that_a_file_has_twice_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("sweep:\n  rounds: 3\n  interval: 0.1\n  rounds: 4\n")
    with pytest.raises(UserError, match=r"mine\.yaml, line 4: not YAML: the key 'rounds' is there twice; correct"):
        check(shipped(), files=[file])
    check(shipped(), files=(ROOT / "config").glob("*.yaml"))


def test_a_wrong_key_is_named_where_it_stands(tmp_path: Path) -> None:
    (mine := tmp_path / "mine.yaml").write_text("tune:\n  jobs: 2\nsweep:\n  rounds: 0\n")
    whole, over = ROOT / "config/config.yaml", {"sweep": {"rounds": 0}}
    for files, given, place in (
        ([whole, mine], {}, r"mine\.yaml, line 4, key 'sweep\.rounds': 0 is less than the minimum of 2; rounds in"),
        ([whole, mine], over, r"--config sweep\.rounds: 0 is less"),
        ([whole], {}, r"config/config\.yaml, line [0-9]+, key 'sweep\.rounds': 0 is less"),
    ):
        with pytest.raises(UserError, match=place):
            check(changed("sweep.rounds", 0), files, given)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("places")
    written = {"empty": b"", "broken": b"a: [1", "binary": bytes(range(256))}
    found = {name: folder / f"{name}.yaml" for name in [*written, "list"]} | {"out": folder / "out"}
    for name, text in (written | {"list": b"[1]"}).items():
        found[name].write_bytes(text)
    for side in ("runs", "list_run"):
        found[side] = folder / side
        shutil.copytree(ROOT / "reports/recorded/h200/ladder", folder / side / "ladder")
    (folder / "list_run/ladder/run.json").write_text("[1]")
    return found


@pytest.mark.parametrize(("words", "said"), CASES["refused"])
def test_a_wrong_command_line_is_refused_in_one_line(words, said, places, monkeypatch):
    monkeypatch.chdir(ROOT)
    told = words.format(**places).split()
    with pytest.raises(UserError) as refusal:
        command_line.check(told) if words.startswith("-") else command.run(told)
    assert said in str(refusal.value) and "\n" not in str(refusal.value)


PLAN = "snakemake -n --cores 1"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"{PLAN} --configfile {{mine}}", "mine.yaml, line 1, key 'experiments.ozaki': [...]its settings: rounds,"),
        ("snakemake -n --cores 0", "--cores 0 leaves no core to any job; give 1 or more"),
        (f"{PLAN} reprot", "there is no target 'reprot'; did you mean report?"),
        (f"{PLAN} results/gates/ladder.smme.json", "there is no kernel 'ladder.smme'; did you mean ladder.smem"),
        (f"CUPY_CACHE_DIR=/etc/passwd {PLAN}", "CUPY_CACHE_DIR: the folder /etc/passwd cannot be written ("),
        (f"{sys.executable} -m gemmrepro nonesuch", "there is no stage 'nonesuch'; known are check"),
    ],
)
def test_a_wrong_command_ends_with_one_line_and_no_traceback(line: str, said: str, tree: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("experiments: {ozaki: {products: {round: 3}}}\n")
    words = line.format(mine=mine).split()
    done = call(["env", *words], tree, PYTHONPATH=str(tree / "workflow"))
    assert done.returncode == 1 and "Traceback" not in done.stdout, done.stdout
    # Where no GPU is found, a run says so first.
    *_, last = told = [each for each in done.stdout.splitlines() if each.startswith("gemmrepro: ")]
    assert [each for each in told if "nothing: " not in each] == [last] and done.stdout.splitlines()[-1] == last
    assert says(last, said)
