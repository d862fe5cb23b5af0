"""The flake without Nix: its lock follows the images' locks, its images say what Dockerfiles say, and how it starts."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
from snakemake.cli import get_argument_parser
from support import ROOT

from gemmrepro.errors import UserError
from gemmrepro.host import nix_sources
from gemmrepro.host.nix_sources import IMAGES, LOCKS
from gemmrepro.host.recipes import RELOCK, SOURCES, Environment, Sources, debian_packages, normalized, read_recipe
from gemmrepro.host.sif import image_labels

LOCKED = Sources.read()
FLAKE = (ROOT / "flake.nix").read_text()


def pins(env: str) -> dict[tuple[str, str], tuple[bool, set[str]]]:
    """What a lock of Python packages pins, by name and version: whether on every platform, and the allowed hashes."""
    text = re.sub(r"\\\n", " ", (ROOT / f"envs/requirements/{env}.txt").read_text())
    found = {}
    for line in re.findall(r"^[A-Za-z0-9].*$", text, re.MULTILINE):
        name, version, marker = re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)\s*(;)?", line).groups()
        found[normalized(name), version] = (marker is None, set(re.findall(r"sha256:([0-9a-f]{64})", line)))
    return found


class TestLock:
    def test_every_dockerfile_and_every_lock_of_an_image_is_in_it(self) -> None:
        assert {path.stem for path in (ROOT / "docker").glob("*.Dockerfile")} == {*IMAGES} < LOCKED.environments.keys()
        locked = {path.stem for path in (ROOT / "envs/requirements").glob("*.in")}
        assert {*LOCKS} == locked & {*IMAGES, "host"}
        assert re.findall(r'"(\w+)"', re.search(r"images = \[(.*?)\];", FLAKE)[1]) == [*IMAGES]

    @pytest.mark.parametrize("env", LOCKS)
    def test_python_packages_are_the_locked_ones(self, env: str) -> None:
        pinned = pins(env)
        files = {}
        for name in LOCKED.environments[env].python:
            project, version = name.removesuffix(".tar.gz").split("-")[:2]
            files[normalized(project), version] = name
        assert files.keys() <= pinned.keys(), f"the lock has moved on: {RELOCK}"
        assert {key for key, (always, _) in pinned.items() if always} <= files.keys(), RELOCK
        for key, name in files.items():
            assert LOCKED.sha256[name] in pinned[key][1], name

    @pytest.mark.parametrize("env", IMAGES)
    def test_debian_packages_are_those_of_the_recipe(self, env: str) -> None:
        recipe = read_recipe(ROOT / f"docker/{env}.Dockerfile")
        versions = dict(unquote(name).split("_")[:2] for name in LOCKED.environments[env].debs)
        assert {*debian_packages(recipe), "python3", "libc6", "dpkg", "apt"} <= versions.keys()
        apart = nix_sources.read_apart(recipe.path)
        assert set(LOCKED.environments[env].apart) == apart.keys()
        assert apart.items() <= LOCKED.sha256.items()

    def test_pytorch_and_apptainer_are_those_of_the_images_and_of_envs_run(self) -> None:
        packages = {name.split("_")[0] for name in LOCKED.environments["torchcpu"].debs}
        purged = nix_sources.purged_packages(ROOT / "docker/torchcpu.Dockerfile")
        assert "libtorch-test" in purged and not packages & purged
        [(name, sha256)] = nix_sources.read_apptainer().items()
        assert LOCKED.environments["apptainer"].apart == (name,) and LOCKED.sha256[name] == sha256

    def test_every_file_has_a_hash_and_no_address(self) -> None:
        used = {LOCKED.seed}
        for environment in LOCKED.environments.values():
            used |= {*environment.debs, *environment.python, *environment.apart}
        assert used == LOCKED.sha256.keys()
        assert all(re.fullmatch(r"[0-9a-f]{64}", value) for value in (*LOCKED.sha256.values(), LOCKED.seed_nar))
        assert not re.search(r"\w+://", SOURCES.read_text() + (ROOT / "nix/prefetch").read_text())

    @pytest.mark.parametrize("path", sorted((ROOT / "nix").glob("steps-*.sh")), ids=lambda path: path.stem)
    def test_steps_are_the_recipes(self, path: Path) -> None:
        recipe = (ROOT / f"docker/{path.stem.removeprefix('steps-')}.Dockerfile").read_text()
        commands = " ".join(re.sub(r"\\\n|&&|;", " ", recipe).split())
        for line in path.read_text().splitlines():
            if not line.startswith(("#", "cd /tmp")):
                assert " ".join(line.replace(";", " ").split()) in commands, line


class TestFetch:
    def test_a_damaged_lock_and_an_unknown_environment_are_user_errors(self, tmp_path: Path) -> None:
        (tmp_path / "sources.json").write_text('{"seed": "busybox"}')
        with pytest.raises(UserError, match="lock-sources"):
            Sources.read(tmp_path / "sources.json")
        with pytest.raises(UserError, match="no environment cuda14; known: apptainer, cuda12"):
            nix_sources.fetch(LOCKED, ["cuda14"], tmp_path)

    def test_a_seed_with_another_program_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        tools = tmp_path / "bin"
        tools.mkdir()
        (tools / "dpkg-deb").write_text('#!/bin/sh\nmkdir -p "$3/bin"; echo other > "$3/bin/busybox"\n')
        (tools / "dpkg-deb").chmod(0o755)
        (tmp_path / LOCKED.seed).touch()
        monkeypatch.setenv("PATH", str(tools), prepend=":")
        none = Sources(LOCKED.date, LOCKED.seed, LOCKED.seed_nar, {"none": Environment(())}, LOCKED.sha256)
        with pytest.raises(UserError, match="another busybox"):
            nix_sources.fetch(none, ["none"], tmp_path)
        assert not (tmp_path / "busybox.nar").exists()

    def test_archive_is_nixs(self) -> None:
        # nix-store --dump of a folder with an executable file "busybox" that holds "hello\n", Nix 2.8.0.
        assert hashlib.sha256(nix_sources.nar("busybox", b"hello\n")).hexdigest() == NAR


NAR = "0f727a0bfe4f75c0e536d79e556622ca7d2474f7b105b8ae4fbe9f3c6a30ed9d"


PACK = ROOT / "nix/pack.py"
RECIPES = sorted((ROOT / "docker").glob("*.Dockerfile"))
WRITTEN_THERE = {f"org.opencontainers.image.{name}" for name in ("title", "licenses", "description")}


def pack(*arguments: object) -> None:
    subprocess.run([sys.executable, PACK, *map(str, arguments)], check=True)


def labels_of(recipe: Path) -> dict[str, str]:
    """The labels that the container images get from the Dockerfile alone."""
    return {name: text for name, text in image_labels(read_recipe(recipe)).items() if name in WRITTEN_THERE}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_a_sif_gets_the_labels_of_its_dockerfile(recipe: Path, tmp_path: Path) -> None:
    pack("labels", recipe, tmp_path / "labels.json")
    labels = json.loads((tmp_path / "labels.json").read_text())
    assert labels.keys() == WRITTEN_THERE
    assert labels == labels_of(recipe)


START = ROOT / "nix/gemmrepro.sh"


def started(folder: Path, *arguments: str) -> list[str]:
    """The arguments that Snakemake gets."""
    (folder / "Snakefile").touch()
    program = folder / "snakemake"
    program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    program.chmod(0o755)
    command = ["sh", str(START), str(program), *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.parametrize(
    ("arguments", "config", "targets"),
    [
        ([], {"measure=recorded"}, set()),
        (["--config", "families=[ada]"], {"measure=recorded", "families=[ada]"}, set()),
        (["-C", "families=[ada, crt]", "--", "gates"], {"measure=recorded", "families=[ada, crt]"}, {"gates"}),
        (["--config", "a=1", "measure=auto"], {"a=1", "measure=auto"}, set()),
        (["--config=measure=live"], {"measure=live"}, set()),
        (["--configfile", "config/full.yaml", "--", "gates"], {"measure=recorded"}, {"gates"}),
    ],
)
def test_measurements_are_the_recorded_ones_unless_the_user_sets_measure(arguments, config, targets, tmp_path):
    read = get_argument_parser().parse_args(started(tmp_path, *arguments))
    assert set(read.config) == config
    assert set(read.targets) == targets
    assert read.cores == 1


@pytest.mark.parametrize("own", [["--cores", "2"], ["--cores=2"], ["-c2"], ["-c", "2"], ["--help"]])
def test_the_users_number_of_cores_stays_and_help_is_snakemakes_own(own: list[str], tmp_path: Path) -> None:
    got = started(tmp_path, *own)
    assert got == own if own == ["--help"] else get_argument_parser().parse_args(got).cores == 2


def test_elsewhere_than_in_a_checkout_one_sentence_says_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run(["sh", START, "false"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "gemmrepro: this is no checkout of gemmrepro; git clone it and start nix run there.\n"
