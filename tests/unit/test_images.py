"""Images: choice of builder, recipes, locks, clean-up and errors. No image is built here."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.host import bases, containers, recipes, sif
from gemmrepro.host.builders import BUILDERS, find_builder
from gemmrepro.host.containers import all_capabilities, container_environment
from gemmrepro.host.workspace import DiskFull, run, workspace

RECIPES = sorted((ROOT / "docker").glob("*.Dockerfile"))
LOCKS = sorted((ROOT / "envs" / "requirements").glob("*.in"))


def program(folder: Path, name: str, script: str) -> None:
    """An executable that stands in for an image builder."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def recipe_text(base: str = "debian:12-slim", copy: str = "requirements.txt") -> str:
    return f"ARG BASE={base}\nFROM ${{BASE}}\nCOPY {copy} /opt/\nRUN true\n"


class TestBuilder:
    def test_a_client_without_its_engine_is_passed_over(self, tmp_path):
        program(tmp_path, "docker", "echo Cannot connect to the Docker daemon >&2; exit 1")
        program(tmp_path, "podman", "exit 0")
        assert find_builder(str(tmp_path)) == "podman"

    def test_docker_that_answers_comes_first(self, tmp_path):
        for name in BUILDERS:
            program(tmp_path, name, "exit 0")
        assert find_builder(str(tmp_path)) == "docker"

    def test_none_says_why_each_does_not_do(self, tmp_path):
        program(tmp_path, "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
        with pytest.raises(UserError) as error:
            find_builder(str(tmp_path))
        assert "docker does not work (Cannot connect to the Docker daemon)" in str(error.value)
        assert "podman is not installed" in str(error.value)
        assert "apt-get install buildah" in str(error.value)


class TestContainerEnvironment:
    def proc(self, folder: Path, capabilities: str) -> Path:
        (folder / "self").mkdir(parents=True)
        (folder / "sys" / "kernel").mkdir(parents=True)
        (folder / "self" / "status").write_text(f"Name:\tx\nCapEff:\t{capabilities}\n")
        (folder / "sys" / "kernel" / "cap_last_cap").write_text("40\n")
        return folder

    def test_root_without_a_capability_gives_up_privileges(self, tmp_path):
        proc = self.proc(tmp_path / "proc", "000001fffeffffff")  # all but CAP_SYS_RESOURCE
        assert not all_capabilities(proc)
        assert container_environment({}, uid=0, proc=proc, dev=tmp_path)["APPTAINER_NO_PRIVS"] == "1"

    def test_full_root_and_ordinary_users_keep_apptainers_defaults(self, tmp_path):
        full = self.proc(tmp_path / "full", "000001ffffffffff")
        assert "APPTAINER_NO_PRIVS" not in container_environment({}, uid=0, proc=full, dev=tmp_path)
        none = self.proc(tmp_path / "none", "0000000000000000")
        assert "APPTAINER_NO_PRIVS" not in container_environment({}, uid=1000, proc=none, dev=tmp_path)

    def test_what_the_user_set_stays(self, tmp_path):
        proc = self.proc(tmp_path / "proc", "0000000000000000")
        environ = {"APPTAINER_NO_PRIVS": "0", "APPTAINER_CACHEDIR": "/mine"}
        added = container_environment(environ, uid=0, proc=proc, dev=tmp_path)
        assert not added.keys() & environ.keys()

    def test_gpu_only_where_there_is_one(self, tmp_path):
        proc = self.proc(tmp_path / "proc", "000001ffffffffff")
        assert "APPTAINER_NV" not in container_environment({}, uid=0, proc=proc, dev=tmp_path)
        (tmp_path / "nvidiactl").touch()
        assert container_environment({}, uid=0, proc=proc, dev=tmp_path)["APPTAINER_NV"] == "1"

    def test_caches_are_away_from_home(self, tmp_path):
        added = container_environment({}, cache=tmp_path / "cache", uid=1000)
        containers.make_caches(added)
        assert Path(added["APPTAINER_TMPDIR"]).is_dir()
        assert all(Path(added[name]).is_relative_to(tmp_path / "cache") for name in containers.CACHES)


class TestRecipe:
    @pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
    def test_ours_are_read(self, path):
        recipe = recipes.read_recipe(path)
        assert bases.base_tar(recipe.base, Path()) is not None, "the base can be made where no registry answers"
        # One of Debian's packages alone has no lock of Python's.
        assert recipe.copies == (() if path.stem == "torchcpu" else (f"envs/requirements/{path.stem}.txt",))

    def test_the_default_images_share_a_base(self):
        # Debian 13 is the first whose PyTorch has torch.compile.
        bases = {path.stem: recipes.read_recipe(path).base for path in RECIPES}
        assert bases.pop("torchcpu") == "debian:13-slim"
        assert len(set(bases.values())) == 1

    @pytest.mark.parametrize(
        ("text", "says"),
        [("FROM debian:12\n", "names no base image"), (recipe_text(copy="absent.txt"), "copies absent.txt")],
    )
    def test_bad_ones_are_refused(self, tmp_path, text, says):
        (tmp_path / "Dockerfile").write_text(text)
        with pytest.raises(UserError, match=says):
            recipes.read_recipe(tmp_path / "Dockerfile", tmp_path)

    def test_missing_one_is_a_user_error(self, tmp_path):
        with pytest.raises(UserError, match="cannot be read"):
            recipes.read_recipe(tmp_path / "Dockerfile")

    def test_requirements_change_their_hash(self, tmp_path):
        (tmp_path / "Dockerfile").write_text(recipe_text())
        (tmp_path / "requirements.txt").write_text("a==1\n")
        recipe = recipes.read_recipe(tmp_path / "Dockerfile", tmp_path)
        before = recipes.requirements_sha256(recipe, tmp_path)
        (tmp_path / "requirements.txt").write_text("a==2\n")
        assert recipes.requirements_sha256(recipe, tmp_path) != before

    def test_only_debian_can_be_made_without_a_registry(self, tmp_path):
        assert bases.base_tar("ubuntu:24.04", tmp_path) is None
        assert bases.base_tar("mirror.example/library/debian:13.1", tmp_path) == tmp_path / ".base-trixie.tar"


class TestBase:
    def test_a_base_is_fetched_as_the_hosts_apt_fetches(self, tmp_path, monkeypatch):
        settings = ('Acquire::http::Proxy "http://proxy:3128/";', 'Acquire::Retries "3";', 'APT::Architecture "amd64";')
        program(tmp_path, "apt-config", "\n".join(f"echo '{setting}'" for setting in settings))
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        assert bases.apt_options() == [f"--aptopt={setting}" for setting in settings[:2]]

    def test_without_apt_there_is_nothing_to_take_over(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", str(tmp_path))
        assert bases.apt_options() == []


class TestLocks:
    @pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
    def test_every_requirement_is_pinned_and_hashed(self, path):
        lock = path.with_suffix(".txt").read_text()
        blocks = re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"^ *#.*\n", "", lock, flags=re.MULTILINE))
        for block in blocks:
            assert re.match(r"[A-Za-z0-9._-]+==\S+", block), block
            assert "--hash=sha256:" in block, block
        assert not re.search(r"^--(index|extra-index|find-links)|https?:", lock, re.MULTILINE)
        pinned = {block.split("==")[0] for block in blocks}
        for line in path.read_text().splitlines():
            if line and not line.startswith("#"):
                assert re.match(r"[A-Za-z0-9._-]+", line)[0] in pinned, f"{line} is not in the lock"

    def test_cuda13_compiler_is_of_one_version(self):
        lock = (ROOT / "envs/requirements/cuda13.txt").read_text()
        parts = ("nvcc", "crt", "runtime", "nvrtc", "cuobjdump", "nvdisasm", "tileiras")
        found = {re.search(rf"^nvidia-cuda-{part}==(\S+)", lock, re.MULTILINE)[1] for part in parts}
        assert len(found | {re.search(r"^nvidia-nvvm==(\S+)", lock, re.MULTILINE)[1]}) == 1

    def test_record_does_not_depend_on_order_or_time(self, tmp_path):
        (tmp_path / "Dockerfile").write_text(recipe_text())
        (tmp_path / "requirements.txt").write_text("")
        recipe = recipes.read_recipe(tmp_path / "Dockerfile", tmp_path)
        packages = {
            "os": [["gcc", "12"], ["apt", "2.6"]],
            "python": [["numpy", "2.4"], ["numpy", "2.4"], ["PyYAML", "6"]],
        }
        other = {kind: list(reversed(pairs)) for kind, pairs in packages.items()}
        first, second = (
            recipes.lock_record("x", recipe, "r", "debian:12-slim", "buildah", recipes.Packages.parsed(listing))
            for listing in (packages, other)
        )
        assert first == second
        assert [entry["name"] for entry in first["os"]] == ["apt", "gcc"]
        assert len(first["python"]) == 2
        expected = {"env", "base", "builder", "recipe_sha256", "requirements_sha256", "os", "python"}
        assert first.keys() == expected and json.dumps(first)


class TestEnvironmentScript:
    def test_path_is_replaced_and_the_rest_can_be_overridden(self):
        script = sif.environment_script(["PATH=/opt/venv/bin:/bin", 'ODD=a "b" $c `d`', "CUDA_HOME=/usr/local/cuda"])
        show = 'printf "%s|%s|%s" "$PATH" "$ODD" "$CUDA_HOME"'
        run = subprocess.run(
            ["/bin/sh", "-c", script + show], env={"PATH": "/x", "CUDA_HOME": "/mine"}, capture_output=True, text=True
        )
        assert run.stdout == '/opt/venv/bin:/bin|a "b" $c `d`|/mine'


class TestRun:
    def test_the_error_holds_what_the_tool_said(self, tmp_path):
        with (
            workspace(tmp_path, "x", os.environ) as work,
            pytest.raises(UserError, match=r"status 3.*\n.*no such"),
        ):
            run(["sh", "-c", "echo no such thing >&2; exit 3"], work)

    @pytest.mark.parametrize("quiet", [True, False])
    def test_a_full_disk_is_one_clear_error(self, tmp_path, quiet):
        with (
            workspace(tmp_path, "x", os.environ) as work,
            pytest.raises(DiskFull, match="Free some space"),
        ):
            run(["sh", "-c", "echo 'write x: No space left on device' >&2; exit 1"], work, quiet=quiet)

    def test_a_tool_that_hangs_is_ended(self, tmp_path):
        started = time.monotonic()
        with workspace(tmp_path, "x", os.environ) as work, pytest.raises(TimeoutError):
            run(["sh", "-c", "sleep 60"], work, timeout=0.2)
        assert time.monotonic() - started < 10

    def test_quiet_returns_standard_output(self, tmp_path):
        with workspace(tmp_path, "x", os.environ) as work:
            assert run(["sh", "-c", "echo out; echo err >&2"], work, quiet=True) == "out\n"


class TestWorkspace:
    def test_it_is_gone_afterwards_whatever_happened(self, tmp_path):
        with pytest.raises(ZeroDivisionError), workspace(tmp_path, "x", os.environ) as work:
            (work.path / "closed").mkdir()
            (work.path / "closed" / "file").touch()
            (work.path / "closed").chmod(0o500)
            raise ZeroDivisionError
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
    def test_a_killed_build_leaves_nothing_for_long(self, tmp_path, number):
        code = (
            "import os, sys\nfrom pathlib import Path\nfrom gemmrepro.host.workspace import run, workspace\n"
            f"with workspace(Path({str(tmp_path)!r}), 'x', os.environ) as work:\n"
            "    print('ready', flush=True)\n    run(['sleep', '60'], work)\n"
        )
        environ = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environ, text=True)
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        process.send_signal(number)
        process.wait(10)
        if number == signal.SIGKILL:
            # The tool that it started lives on and still uses the folder, which is then nobody's to remove.
            with workspace(tmp_path, "y", os.environ):
                assert list(tmp_path.glob(".build-x-*"))
            holders = [path for path in Path("/proc").glob("[0-9]*/cwd") if _sleeps_in(path.parent, tmp_path)]
            assert len(holders) == 1
            os.kill(int(holders[0].parent.name), signal.SIGKILL)
            time.sleep(0.2)
            with workspace(tmp_path, "y", os.environ):
                pass
        assert list(tmp_path.iterdir()) == []


def _sleeps_in(process: Path, folder: Path) -> bool:
    """Whether `process` is the sleep of the test above, known by the lock that it holds open."""
    try:
        return any(str(fd.readlink()).startswith(str(folder)) for fd in (process / "fd").iterdir())
    except OSError:
        return False
