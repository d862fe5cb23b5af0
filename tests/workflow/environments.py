"""The checkout in places and under conditions that are not the developer's: does a command work, or say why not?

Needs Linux, root (for mounts of its own and an ordinary user) and git. In each case a fresh copy of what is committed
plans the default run, makes one file with a real job, and checks a family; or `envs/run` must refuse in one line. Each
takes half a minute or so.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLAN = "snakemake -n --quiet all --cores 1"
JOB = "snakemake --quiet all --cores 1 results/config.json && test -s results/config.json"
CHECK = "PYTHONPATH=workflow python -m gemmrepro check ladder"
FULL = f"{PLAN} && {JOB} && {CHECK}"


@dataclass(frozen=True)
class Case:
    """One environment.

    Attributes:
        place: the name of the checkout's folder.
        made: how it comes from the repository: "clone", "shallow clone" or "archive".
        before: shell commands in front of the command, in the same shell.
        command: what is run; FULL by default.
        unset, set: changes of the environment.
        user: whether an ordinary user runs it, who owns the checkout.
        read_only: whether the checkout is mounted read-only.
        offline: whether it has no network.
        refused: a regular expression that the one line of a refusal matches; "" if the command must work.
    """

    name: str
    place: str = "gemmrepro"
    made: str = "clone"
    before: str = ""
    command: str = FULL
    unset: tuple[str, ...] = ()
    set: Mapping[str, str] = field(default_factory=dict)
    user: bool = False
    read_only: bool = False
    offline: bool = False
    refused: str = ""


OLD = 'printf "#!/bin/sh\\nexit 1\\n" > bin/$name; chmod +x bin/$name'
NO_PYTHON = f"mkdir -p bin; for name in python3 python3.11 python3.12 python3.13 python3.14; do {OLD}; done"

CASES = (
    Case("an ordinary clone"),
    Case("a path with blanks", place="my projects/gemm repro"),
    Case("a path with letters beyond ASCII", place="Prüfung 実験/gemmrepro-été"),
    Case("a path with quotes and a dollar", place='it\'s $HOME "here"'),
    Case("a source archive without .git", made="archive"),
    Case("a shallow clone", made="shallow clone"),
    Case("no HOME", unset=("HOME",)),
    Case("HOME that does not exist", set={"HOME": "/nonexistent"}),
    Case("TMPDIR that does not exist", set={"TMPDIR": "/nonexistent/tmp"}),
    Case("umask 077", before="umask 077;"),
    Case("no locale", set={"LC_ALL": "POSIX"}),
    Case(
        "ASCII alone",
        set={"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        refused=r"^gemmrepro: this shell reads text as .*; run `export LC_ALL=C.UTF-8`",
    ),
    Case("a read-only checkout", read_only=True, refused=r"^gemmrepro: .*cannot be written .*; run a copy"),
    Case(
        "a read-only checkout, by envs/run",
        read_only=True,
        command="envs/run true",
        refused=r"^envs/run: .*cannot be written; run a copy",
    ),
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
        "no network, no images yet",
        command="snakemake --use-singularity --cores 1 resources/images/report.sif",
        offline=True,
        refused=r"^gemmrepro: no network: the packages for a container image could not be downloaded",
    ),
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
    if case.made == "archive":
        place.mkdir()
        packed = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], check=True, capture_output=True).stdout
        subprocess.run(["tar", "x", "-C", place], input=packed, check=True)
    else:
        depth = ["--depth", "1"] if case.made == "shallow clone" else []
        subprocess.run(["git", "clone", "-q", *depth, f"file://{ROOT}", place], check=True, capture_output=True)
    return place


def command(case: Case, place: Path) -> list[str]:
    """The command line of a case: in namespaces of its own, so that no mount outlasts it."""
    words = ["bash", "-c", f"{case.before} {case.command}"]
    if case.user:
        words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *words]
    if case.offline:
        words = ["unshare", "--net", *words]
    if case.read_only:
        mounts = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && cd "$0" && exec "$@"'
        words = ["unshare", "--mount", "bash", "-c", mounts, str(place), *words]
    return words


@dataclass(frozen=True)
class Outcome:
    case: Case
    code: int
    said: str

    @property
    def lines(self) -> list[str]:
        """What was said, without notices of progress."""
        return [line.strip() for line in self.said.splitlines() if line.strip()]

    @property
    def held(self) -> bool:
        """It worked where it should; or was refused without a traceback, in a line that says what is wrong."""
        if not self.case.refused:
            return self.code == 0
        plain = "Traceback" not in self.said
        return self.code != 0 and plain and any(re.search(self.case.refused, line) for line in self.lines)


def tried(case: Case) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="gemmrepro-") as scratch:
        Path(scratch).chmod(0o755)
        place = checkout(case, Path(scratch))
        if case.user:
            for path in (place, *place.rglob("*")):
                os.chown(path, 65534, 65534, follow_symlinks=False)
        environment = {name: value for name, value in os.environ.items() if name not in (*case.unset, "PYTHONPATH")}
        if case.user:
            environment["HOME"] = str(place)
        done = subprocess.run(
            command(case, place),
            cwd=place,
            env=environment | dict(case.set),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=900,
        )
        return Outcome(case, done.returncode, done.stdout.replace(scratch, ""))
