"""Images: choice of builder, recipes, locks, clean-up and errors. No image is built here."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.host import builders, containers, recipes
from gemmrepro.host.builders import BUILDERS, DiskFull, NoNetwork, find_builder, run, workspace
from gemmrepro.host.containers import container_environment
from gemmrepro.host.recipes import LOCK

RECIPES = sorted((ROOT / "docker").glob("*.Dockerfile"))


def program(folder: Path, name: str, script: str) -> None:
    """An executable that stands in for an image builder."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def recipe_text(base: str = "debian:12-slim", copy: str = "requirements.txt") -> str:
    return f"ARG BASE={base}\nFROM ${{BASE}}\nCOPY {copy} /opt/\nRUN true\n"


OK, NO_ENGINE = "exit 0", "echo Cannot connect to the Docker daemon >&2; exit 1"
DENIED, FULL = "000001fffeffffff", "000001ffffffffff"
"""Capabilities: all but CAP_SYS_RESOURCE, and all."""


def proc(folder: Path, capabilities: str) -> Path:
    """What /proc says of a process with these capabilities."""
    (folder / "self").mkdir(parents=True)
    (folder / "sys" / "kernel").mkdir(parents=True)
    (folder / "self" / "status").write_text(f"Name:\tx\nCapEff:\t{capabilities}\n")
    (folder / "sys" / "kernel" / "cap_last_cap").write_text("40\n")
    return folder


class TestBuilder:
    @pytest.mark.parametrize(
        ("programs", "found", "said"),
        [
            (dict.fromkeys(BUILDERS, OK), "docker", ""),
            ({"docker": NO_ENGINE, "podman": OK}, "podman", "docker does not work (Cannot connect to the Docker"),
            ({"docker": '[ "$1" = info ]', "buildah": OK}, "buildah", "with buildah: docker has no buildx"),
            ({"docker": NO_ENGINE}, None, "(Cannot connect to the Docker daemon); podman is not installed; buildah is"),
        ],
    )
    def test_the_first_that_works_is_used_and_what_is_passed_over_is_said(
        self, tmp_path, capsys, programs, found, said
    ):
        for name, script in programs.items():
            program(tmp_path, name, script)
        if found:
            assert find_builder(str(tmp_path)) == found and said in capsys.readouterr().err
        else:
            with pytest.raises(UserError) as error:
                find_builder(str(tmp_path))
            assert said in str(error.value) and "apt-get install buildah" in str(error.value)

    def test_a_build_stays_within_hard_limits_that_it_may_not_raise(self, tmp_path, monkeypatch):
        for number, (builder, capabilities, hard, limits) in enumerate(
            [
                ("buildah", DENIED, 20000, (20000, 20000)),
                ("buildah", "0", builders.resource.RLIM_INFINITY, (1048576, 32768)),
                *(("buildah", FULL, 20000, ()), ("docker", DENIED, 20000, ())),
            ]
        ):
            monkeypatch.setattr(builders.resource, "getrlimit", lambda _, hard=hard: (1024, hard))
            expected = [f"--ulimit={name}={n}:{n}" for name, n in zip(("nofile", "nproc"), limits, strict=False)]
            assert builders.limit_options(builder, proc(tmp_path / str(number), capabilities)) == expected


class TestContainerEnvironment:
    @pytest.mark.parametrize(("user", "capabilities", "given_up"), [(0, DENIED, "1"), (0, FULL, None), (9, "0", None)])
    def test_root_without_a_capability_gives_up_privileges(self, tmp_path, user, capabilities, given_up):
        told = container_environment({}, uid=user, proc=proc(tmp_path / "proc", capabilities), dev=tmp_path)
        assert told.get("APPTAINER_NO_PRIVS") == given_up

    def test_a_variable_of_the_users_counts_under_either_name(self, tmp_path):
        """SingularityCE reads its own names alone; Apptainer warns of two that differ."""
        environ = {"SINGULARITY_CACHEDIR": "/mine", "APPTAINER_BIND": "/data"}
        added = container_environment(environ, folder=tmp_path, uid=1000, dev=tmp_path)
        assert added["APPTAINER_CACHEDIR"] == "/mine" and "SINGULARITY_CACHEDIR" not in added
        assert added["APPTAINER_BIND"] == added["SINGULARITY_BIND"] == f"/data,{ROOT}"
        whole = environ | added
        for name in [name for name in whole if name.startswith("APPTAINER_") and name != "APPTAINER_BIND"]:
            assert whole[name] == whole[name.replace("APPTAINER_", "SINGULARITY_")]
        assert container_environment(whole, folder=tmp_path, uid=1000, dev=tmp_path) == {}, "a job's is its run's"

    def test_what_would_change_the_programs_in_an_image_stays_outside(self):
        outside = (
            *("CC", "NVCC_APPEND_FLAGS", "CUDA_HOME", "TRITON_PTXAS_PATH", "LDFLAGS", "C_INCLUDE_PATH", "LD_PRELOAD"),
            *("GLIBC_TUNABLES", "GCONV_PATH", "MALLOC_PERTURB_", "PYTHONHOME", "PYTHONNOUSERSITE", "MATPLOTLIBRC"),
            *("BASH_ENV", "BASH_FUNC_python3%%", "SHELLOPTS", "APPTAINERENV_PYTHONPATH", "SINGULARITYENV_PYTHONHOME"),
            *("SINGULARITYENV_LD_LIBRARY_PATH", "APPTAINERENV_PREPEND_PATH", "SINGULARITYENV_PATH"),
        )
        # PYTHONPATH and LD_LIBRARY_PATH are the host's: Snakemake may need them, and images are given others.
        inside = ("PATH", "HOME", "CUDA_CACHE_PATH", "CUDA_VISIBLE_DEVICES", "GEMMREPRO_TUNED", "PYTHONUTF8", "TMPDIR")
        inside += ("PYTHONPATH", "LD_LIBRARY_PATH", "APPTAINER_BIND", "APPTAINERENV_OMP_NUM_THREADS")
        assert containers.foreign(dict.fromkeys((*inside, *outside), "x")) == [*outside]

    def test_gpu_only_where_there_is_one(self, tmp_path):
        """Under WSL2 Apptainer's --nv leaves out the library by which the driver reaches the device."""
        wsl = {"NV": "1", "BIND": "/usr/lib/wsl", "CONTAINLIBS": "/usr/lib/wsl/lib/libdxcore.so"}
        for device, added in (("none", {}), ("nvidiactl", {"NV": "1"}), ("dxg", wsl)):
            (tmp_path / device).mkdir()
            (tmp_path / device / device).touch()
            variables = container_environment({}, folder=ROOT, uid=1000, dev=tmp_path / device)
            for prefix in ("APPTAINER_", "SINGULARITY_"):
                told = {name: variables.get(f"{prefix}{name}") for name in wsl}
                assert {name: value for name, value in told.items() if value} == added

    def test_a_closed_fuse_device_is_explained_to_ordinary_users(self, tmp_path):
        assert "chmod 666" in containers.fuse_hint(1000, tmp_path), "missing"
        assert containers.fuse_hint(0, tmp_path) == ""
        (tmp_path / "fuse").touch(0o666)
        assert containers.fuse_hint(1000, tmp_path) == ""


class TestRuntime:
    """Which program runs the containers. None runs here: their names and versions are a table."""

    PRIVATE = str(containers.PRIVATE / "bin")

    def test_old_ones_will_not_do(self):
        for version, says in (
            *(("apptainer 1.4.5-2", ""), ("apptainer 1.1.9", "is apptainer 1.1.9, older than 1.2")),
            *(("singularity-ce 3.11.4-jammy", ""), ("singularity 3.4.1", "is singularity 3.4.1, older than 3.8")),
            ("", "does not say its version"),
        ):
            assert containers.unsuited(version) == says

    @pytest.mark.parametrize(
        ("programs", "choice", "taken"),
        [
            ({"/usr/bin/singularity": "singularity 3.4.1", f"{PRIVATE}/apptainer": "apptainer 1.4.5"}, "", True),
            ({"/usr/bin/singularity": "singularity 3.4.1"}, "", None),
            ({"/usr/bin/apptainer": "apptainer 1.3.0", f"{PRIVATE}/apptainer": "apptainer 1.4.5"}, "", False),
            ({"/usr/bin/apptainer": "apptainer 1.3.0", f"{PRIVATE}/apptainer": "apptainer 1.4.5"}, "newest", True),
        ],
    )
    def test_the_private_one_stands_in_for_an_old_one_or_comes_first_if_asked_for(
        self, monkeypatch, programs, choice, taken
    ):
        """Snakemake takes the first on PATH; without one that will do a sentence says what to do."""
        monkeypatch.setenv("GEMMREPRO_APPTAINER", choice)

        def which(name: str, path: str | None = None) -> str | None:
            return next((f for folder in (path or "").split(":") if (f := f"{folder}/{name}") in programs), None)

        monkeypatch.setattr(containers.shutil, "which", which)
        monkeypatch.setattr(containers, "apptainer_version", programs.__getitem__)
        environ = {"PATH": "/usr/bin", "GEMMREPRO_APPTAINER": choice}
        if taken is None:
            says = r"/usr/bin/singularity is singularity 3\.4\.1, older than 3\.8\. Put `envs/run` before"
            with pytest.raises(UserError, match=says):
                containers.use_apptainer(environ)
            return
        for _ in range(2):
            containers.use_apptainer(environ)
            assert environ["PATH"] == (f"{self.PRIVATE}:" if taken else "") + "/usr/bin"


class TestRecipe:
    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("FROM debian:12\n", "names no base image"),
            (recipe_text(copy="absent.txt"), "copies absent.txt"),
            (recipe_text(copy="Dockerfile") + "USER nobody\n", "uses USER; recipes are limited to ARG"),
        ],
    )
    def test_bad_ones_are_refused(self, tmp_path, text, says):
        (tmp_path / "Dockerfile").write_text(text)
        with pytest.raises(UserError, match=says):
            recipes.read_recipe(tmp_path / "Dockerfile", tmp_path)

    def test_requirements_change_their_hash_and_the_lock_of_every_images_packages_does_not(self, tmp_path):
        (tmp_path / "nix").mkdir()
        for file, changes in (("requirements.txt", True), (LOCK, False)):
            (tmp_path / "Dockerfile").write_text(recipe_text(copy=file))
            (tmp_path / file).write_text("{}")
            recipe = recipes.read_recipe(tmp_path / "Dockerfile", tmp_path)
            before = recipes.requirements_sha256(recipe, tmp_path)
            (tmp_path / file).write_text("{ }")
            assert (recipes.requirements_sha256(recipe, tmp_path) != before) is changes


class TestLocks:
    def test_both_images_for_measuring_have_the_same_libraries(self):
        """A baseline is the same cuBLAS in either, so that rows of both can be compared."""
        pattern = re.compile(r"^([a-z0-9-]+)==([^ \\]+)", re.MULTILINE)
        measure, torch = (
            dict(pattern.findall((ROOT / f"envs/requirements/{env}.txt").read_text())) for env in ("measure", "torch")
        )
        assert {name: torch.get(name, version) for name, version in measure.items()} == measure
        assert "nvidia-cublas" in torch and "torch" not in measure


class TestBaseFromMmdebstrap:
    """What make_base does where the host has only older keys of Debian's; a stand-in checks them."""

    MMDEBSTRAP = """
for word; do
  case $word in --keyring=*) keys=${word#*=} ;; *) suite=$last last=$word ;; esac
done
echo "$suite with ${keys:-none}" >>"$CALLS"
case $suite in
  bullseye) ;;
  *) grep -qs "key of $suite" "${keys:-/none}"/* || { echo "E: apt-get update failed" >&2; exit 25; } ;;
esac
mkdir -p "$last.d/usr/share/keyrings"
[ $suite = bullseye ] && next=bookworm || next=trixie
echo "key of $next" >"$last.d/usr/share/keyrings/$next.gpg"
tar -c -f "$last" -C "$last.d" .
rm -r "$last.d"
"""

    def test_newer_keys_come_from_the_releases_before(
        self, tmp_path, monkeypatch, image="debian:13-slim", suite="trixie"
    ):
        program(tmp_path / "bin", "mmdebstrap", self.MMDEBSTRAP)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
        with workspace(tmp_path / "work", "x", {**os.environ, "CALLS": str(tmp_path / "calls")}) as work:
            tar = builders.make_base(image, tmp_path, work)
            keys = work.short / "keys/usr/share/keyrings"
        calls = (tmp_path / "calls").read_text().splitlines()
        assert calls == [
            f"{suite} with none",
            "bullseye with /usr/share/keyrings",
            f"bookworm with {keys}",
            f"{suite} with {keys}",
        ]
        assert tar.is_file() and not keys.exists()


class TestRun:
    GONE = "Debian's mirror no longer has 1 of the locked packages, such as lib 1: set GEMMREPRO_SNAPSHOT"

    @pytest.mark.parametrize(
        ("said", "kind", "answer"),
        [
            ("Temporary failure resolving 'mirror.example'", NoNetwork, "resources/images"),
            ("write x: No space left on device", DiskFull, "Free some space"),
            (f"STEP 3: gemmrepro: {GONE}", UserError, f"^{GONE}$"),
            ("STEP: stat /etc/hosts: no such file or directory", UserError, "touch /etc/hosts will do"),
            ("no such thing", UserError, r"status 3(.|\n)*no such thing"),
        ],
    )
    def test_what_a_tool_complains_of_is_one_clear_error(self, tmp_path, said, kind, answer):
        command = ["sh", "-c", 'echo "$0" >&2; echo "E: Unable to locate package g++" >&2; exit 3', said]
        with workspace(tmp_path, "x", os.environ) as work:
            for quiet in (True, False):
                with pytest.raises(kind, match=answer):
                    run(command, work, quiet=quiet)

    def test_a_registry_that_hangs_is_given_up_with_what_the_pull_started(self, tmp_path, monkeypatch):
        sleep = ["sleep", f"600.{os.getpid()}"]
        program(tmp_path / "bin", "podman", f"{' '.join(sleep)}; true")
        monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
        monkeypatch.setattr(builders, "PULL_SECONDS", 0.5)
        monkeypatch.setattr(builders.shutil, "which", lambda *_, **__: None)
        with workspace(tmp_path, "x", os.environ) as work, pytest.raises(UserError, match="mmdebstrap, which can make"):
            builders.provide_base("report", "debian:12-slim", "podman", tmp_path, work)
        _until(lambda: not _processes(sleep), "it goes on")


class TestWorkspace:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
    def test_a_killed_build_leaves_nothing_for_long(self, tmp_path, number):
        sleep = ["sleep", f"60.{number:d}{os.getpid()}"]
        code = (
            "import os, sys\nfrom pathlib import Path\nfrom gemmrepro.host.builders import run, workspace\n"
            f"with workspace(Path({str(tmp_path)!r}), 'x', os.environ) as work:\n"
            f"    print('ready', flush=True)\n    run({sleep}, work)\n"
        )
        environ = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environ, text=True)
        assert process.stdout.readline() == "ready\n"
        _until(lambda: _processes(sleep), "the tool has not begun")
        process.send_signal(number)
        process.wait(120)
        if number == signal.SIGKILL:
            # The tool that it started lives on and still uses the folder, which is then nobody's to remove.
            with workspace(tmp_path, "y", os.environ):
                assert list(tmp_path.glob(".build-x-*"))
            (sleeper,) = _processes(sleep)
            os.kill(sleeper, signal.SIGKILL)
            _until(lambda: not _processes(sleep), "the tool goes on")
            with workspace(tmp_path, "y", os.environ):
                pass
        assert list(tmp_path.iterdir()) == []


def _until(holds: Callable[[], object], otherwise: str) -> None:
    """Wait until `holds`, for as long as a busy machine may need."""
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end, otherwise
        time.sleep(0.02)


def _processes(command: list[str]) -> list[int]:
    """The processes with this command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1] == command:
                found.append(int(folder.name))
    return found
