"""The checkout in places and under conditions that are not the developer's: does a command work, or say why not?

In each case a fresh copy of what is committed plans the default run, or is refused in one line. Needs Linux, root (for
mounts of its own and an ordinary user) and git.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support import ROOT

PLAN = "snakemake -n --quiet all --cores 1"
CHECK = "PYTHONPATH=workflow python -m gemmrepro check ladder"


@dataclass(frozen=True)
class Case:
    """One environment.

    Attributes:
        place: the name of the checkout's folder.
        depth: the options of `git clone`.
        before: shell commands in front of the command, in the same shell.
        command: what is run; a dry run of the whole workflow by default.
        unset, set: changes of the environment.
        user: whether an ordinary user runs it, who owns the checkout.
        read_only: whether the checkout is mounted read-only.
        refused: a regular expression that the one line of a refusal matches; "" if the command must work.
    """

    name: str
    place: str = "gemmrepro"
    depth: tuple[str, ...] = ()
    before: str = ""
    command: str = PLAN
    unset: tuple[str, ...] = ()
    set: Mapping[str, str] = field(default_factory=dict)
    user: bool = False
    read_only: bool = False
    refused: str = ""


OLD = 'printf "#!/bin/sh\\nexit 1\\n" > bin/$name; chmod +x bin/$name'
NO_PYTHON = f"mkdir -p bin; for name in python3 python3.11 python3.12 python3.13 python3.14; do {OLD}; done"

CASES = (
    Case("a path with letters beyond ASCII", place="Prüfung 実験/gemmrepro-été"),
    Case("a path with quotes and a dollar", place='it\'s $HOME "here"'),
    Case("a shallow clone", depth=("--depth", "1")),
    Case("no HOME", unset=("HOME",)),
    Case("TMPDIR that does not exist", set={"TMPDIR": "/nonexistent/tmp"}),
    Case(
        "ASCII alone",
        set={"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        refused=r"^gemmrepro: this shell reads text as .*; run `export LC_ALL=C.UTF-8`",
    ),
    Case("a read-only checkout", read_only=True, refused=r"^gemmrepro: .*cannot be written .*; run a copy"),
    Case(
        "no Python of 3.11 or newer, an ordinary user",
        before=f'{NO_PYTHON}; PATH="$PWD/bin:/usr/bin:/bin";',
        command="envs/run true",
        user=True,
        refused=r"envs/run: no Python 3\.11 or newer",
    ),
    Case(
        "120 MB of memory",
        before="ulimit -v 120000;",
        command="envs/run true",
        refused=r"^envs/run: this shell allows 120000 kB of memory",
    ),
    Case("2 GB of memory", before="ulimit -v 2000000;", command=f"OPENBLAS_NUM_THREADS=1 {CHECK}"),
    Case(
        "from another folder",
        command='cd / && snakemake -n --quiet all --cores 1 -s "$OLDPWD/Snakefile"',
        refused="config/config.yaml but it is not present",
    ),
)


def checkout(case: Case, folder: Path) -> Path:
    """A copy of what is committed, as the case wants it."""
    place = folder / case.place
    place.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "clone", "-q", *case.depth, f"file://{ROOT}", place], check=True, capture_output=True)
    return place


def command(case: Case, place: Path) -> list[str]:
    """The command line of a case: in namespaces of its own, so that no mount outlasts it."""
    words = ["bash", "-c", f"{case.before} {case.command}"]
    if case.user:
        words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *words]
    if case.read_only:
        mounts = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && cd "$0" && exec "$@"'
        words = ["unshare", "--mount", "bash", "-c", mounts, str(place), *words]
    return words


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder that other users may enter, as they may not pytest's own."""
    with tempfile.TemporaryDirectory(prefix="gemmrepro-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_environment_is_as_expected(case: Case, scratch: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this checkout is no clone, and the cases are copies of what is committed")
    if case.user and os.geteuid():
        pytest.skip("only root can become another user")
    if case.read_only and subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("mounts of its own are not permitted here")
    place = checkout(case, scratch)
    environment = {name: value for name, value in os.environ.items() if name not in (*case.unset, "PYTHONPATH")}
    if case.user:
        for path in (place, *place.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)
        environment["HOME"] = str(place)
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    told = environment | dict(case.set)
    done = subprocess.run(command(case, place), cwd=place, env=told, text=True, errors="replace", **streams)
    said = done.stdout.replace(str(scratch), "")
    if case.refused:
        assert done.returncode != 0 and "Traceback" not in said, said[-2000:]
        assert any(re.search(case.refused, line.strip()) for line in said.splitlines()), said[-2000:]
    else:
        assert done.returncode == 0, said[-2000:]
