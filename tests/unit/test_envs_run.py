"""What envs/run installs. pip finds wheels made here, a program mmdebstrap answers for Debian; nothing is fetched."""

import hashlib
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support import ROOT

GONE = "E: Version '1.4.5-2' for 'apptainer' was not found"
REFUSED = "E: Failed to fetch index: connection refused"
TOOLS = (
    "awk bash cat chmod cp cut date dirname env flock grep head id ln ls mkdir mktemp printf rm sed setsid sh sha256sum"
    " tail tar touch true"
).split()

Run = Callable[..., tuple[subprocess.CompletedProcess[str], list[str]]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs envs/run in a checkout with a Python environment and without Apptainer.

    Gives what it said and mmdebstrap's command lines. The mirror's answer to each is `answer`.
    """
    checkout, programs, calls = tmp_path / "gemmrepro", tmp_path / "bin", tmp_path / "calls"
    shutil.copytree(ROOT / "envs", checkout / "envs")
    (checkout / "envs/requirements/host.txt").write_text("none==0\n")
    key = hashlib.sha256(b"none==0\n").hexdigest()
    python = checkout / f".envs/host-{key[:16]}/bin/python"
    python.parent.mkdir(parents=True)
    programs.mkdir()
    for tool in TOOLS:
        (programs / tool).symlink_to(shutil.which(tool) or pytest.skip(f"{tool} is not on PATH"))

    def script(path: Path, text: str) -> None:
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    script(python, 'echo "python $*" >&2; exit 1')
    script(python.with_name("snakemake"), "exit 1")
    (python.parents[1] / ".complete").write_text(f"{checkout}\n")

    def started(
        *command: str, answer: str = GONE, machine: str = "x86_64", **environment: str
    ) -> tuple[subprocess.CompletedProcess[str], list[str]]:
        script(programs / "uname", f"echo {machine}")
        script(programs / "mmdebstrap", f'echo "$*" >>{calls}; echo "{answer}"; exit 1')
        calls.unlink(missing_ok=True)
        done = subprocess.run(
            [checkout / "envs/run", *command],
            env={"PATH": str(programs), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        return done, calls.read_text().splitlines() if calls.exists() else []

    return started


def test_where_the_locked_apptainer_is_gone_the_ways_out_are_named_and_none_is_taken(run: Run) -> None:
    done, calls = run("true", "--use-singularity")
    assert done.returncode == 1
    assert [line for line in calls if "apptainer=1." not in line] == [] and calls
    said = [line for line in done.stderr.splitlines() if "installing" not in line]
    assert len(said) == 1, done.stderr
    date = (ROOT / "envs/requirements/apptainer.txt").read_text().split("Debian unstable on ")[1].split(",")[0]
    for way in (GONE, f"a snapshot of Debian of {date}", "install Apptainer yourself", "GEMMREPRO_APPTAINER=newest"):
        assert way in said[0]


def test_what_needs_no_container_goes_on_without_and_the_choice_is_tried_at_once(run: Run) -> None:
    done, calls = run("true")
    assert done.returncode == 0 and "going on without containers" in done.stderr and calls
    done, calls = run("true")
    assert done.returncode == 0 and not calls
    done, calls = run("true", GEMMREPRO_APPTAINER="newest")
    assert done.returncode == 0 and calls


@pytest.mark.parametrize("before", [[], ["nice"], ["env", "A=b", "nice", "-n", "5"]])
def test_snakemakes_command_line_is_checked_first(run: Run, before: list[str]) -> None:
    done, _ = run(*before, "snakemake", "-n", "--configfile", "x.yaml")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "python -m gemmrepro.host.command_line -n --configfile x.yaml"
    done, _ = run("true", "-k", "snakemake", "tests/unit")
    assert done.returncode == 0 and "command_line" not in done.stderr, "another command's arguments may name it"


@pytest.mark.parametrize(("will_do", "choice", "installs"), [(1, "", True), (0, "", False), (0, "newest", True)])
def test_one_on_path_is_used_if_it_will_do_and_no_other_is_asked_for(run, tmp_path, will_do, choice, installs):
    """It is never started: the stand-in for Python gives the answer."""
    (tmp_path / "bin/singularity").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin/singularity").chmod(0o755)
    (python,) = tmp_path.glob("gemmrepro/.envs/host-*/bin/python")
    python.write_text(f"#!/bin/sh\nexit {will_do}\n")
    done, calls = run("true", "--use-singularity", GEMMREPRO_APPTAINER=choice)
    assert (done.returncode, bool(calls)) == (int(installs), installs)  # the mirror has none here


ADDRESS = "https://mirror.example/debian-of-a-day/"
NEWEST, LOCKED = "--include=apptainer,squashfs-tools,", "--include=apptainer=1."


@pytest.mark.parametrize(
    ("options", "said", "asked"),
    [
        ({"GEMMREPRO_APPTAINER": "newest"}, "which no lock checks", (NEWEST,)),
        (
            {"GEMMREPRO_APPTAINER": ADDRESS},
            "set GEMMREPRO_APPTAINER to the address of a snapshot",
            (LOCKED, f" {ADDRESS}", "Check-Valid-Until"),
        ),
        ({"GEMMREPRO_APPTAINER": "latest"}, "'latest'; set it to newest or to the address of a Debian mirror", ()),
        ({"machine": "aarch64"}, "envs/run: containers need an x86-64 processor, and this one is aarch64", ()),
        ({"answer": REFUSED}, REFUSED, ("apptainer",)),
    ],
)
def test_ends_say_why(run: Run, options: dict[str, str], said: str, asked: tuple[str, ...]) -> None:
    """The newest and an address are choices; the mirror has none here."""
    done, calls = run("true", "--use-singularity", **options)
    assert done.returncode == 1 and said in done.stderr
    assert bool(calls) == bool(asked) and all(word in line for line in calls for word in asked)


NOWHERE = "/nowhere/gemmrepro"
PIP_CONF = f"""
[global]
dry-run = true
no-binary = :all:
[install]
user = true
target = {NOWHERE}
prefix = {NOWHERE}
root = {NOWHERE}
constraint = {NOWHERE}
"""
ELSEWHERE = {
    **dict.fromkeys(("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PIP_CONSTRAINT", "PYTHONHOME"), NOWHERE),
    **dict.fromkeys(("PIP_DRY_RUN", "PIP_USER", "PIP_IGNORE_INSTALLED"), "1"),
    **{"CDPATH": ".", "BASH_FUNC_cd%%": '() { builtin cd "$@" && pwd; }'},
}


def _wheel(folder: Path, version: str) -> str:
    """A package snakemake, whose command prints its version; returns the lock's lines of it."""
    path, info = folder / f"snakemake-{version}-py3-none-any.whl", f"snakemake-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("snakemake_stub.py", f"def main(): print({version!r})")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: snakemake\nVersion: {version}\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/entry_points.txt", "[console_scripts]\nsnakemake = snakemake_stub:main\n")
        wheel.writestr(f"{info}/RECORD", "")
    return f"snakemake=={version} \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def test_an_environment_is_whole_and_outlives_the_locks_next(tmp_path: Path) -> None:
    """Whatever pip is set to; a comment makes no other; the last two stay, also where the next cannot be made."""
    checkout, wheels = tmp_path / "gemmrepro", tmp_path / "wheels"
    shutil.copytree(ROOT / "envs", checkout / "envs")
    wheels.mkdir()
    (tmp_path / "pip.conf").write_text(PIP_CONF)
    lock = checkout / "envs/requirements/host.txt"
    environment = {
        **{"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")},
        **{"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)},
        **ELSEWHERE,
    }
    (checkout / ".envs").mkdir()
    (checkout / ".envs/containers.failed").write_text(f"{checkout}\n")

    def run(text: str) -> subprocess.CompletedProcess[str]:
        lock.write_text(text)
        return subprocess.run(
            ["envs/run", "sh", "-c", "exec snakemake"], cwd=checkout, env=environment, capture_output=True, text=True
        )

    def environments() -> set[str]:
        return {path.name for path in checkout.glob(".envs/host-*")}

    one, two, three = (_wheel(wheels, version) for version in "123")
    done = run(one)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    first = environments()
    done = run(f"# a comment\n\n{one.replace('    ', '  ')}  # another\n")
    assert (done.returncode, done.stdout, done.stderr, environments()) == (0, "1\n", "", first)
    done = run(two.replace("==2", "==4"))
    assert done.returncode == 1 and "run the same command again" in done.stderr and first <= environments()
    assert run(one).stdout == "1\n" and run(two).stdout == "2\n" and first < environments()
    assert run(three).stdout == "3\n" and len(environments()) == 2 and not first & environments()
    shutil.rmtree(tmp_path / "wheels")
    assert run(two).stdout == "2\n"
    (second := tmp_path / "second").mkdir()
    shutil.copytree(checkout / "envs", second / "envs")
    (second / ".envs").symlink_to(checkout / ".envs")
    shared = ["envs/run", "sh", "-c", "exec snakemake"]
    done = subprocess.run(shared, cwd=second, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("2\n", ""), "clones share an environment by a link to it"


def test_a_colon_in_the_path_is_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "a:b/envs").mkdir(parents=True)
    copy = shutil.copy(ROOT / "envs/run", tmp_path / "a:b/envs")
    done = subprocess.run([copy, "true"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr == f"envs/run: {tmp_path}/a:b has a colon in its path, which separates paths on PATH; "
        "rename the folder\n"
    )
