"""The checkout in places and under conditions that are not the developer's: does a command work, or say why not?

In each case a fresh copy of what is committed plans the default run, or is refused in one line. Needs Linux, root (for
mounts of its own and an ordinary user) and git.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import ROOT

CHECK = "PYTHONPATH=workflow python -m gemmrepro check ladder"
PLAN = "snakemake -n --quiet all --cores 1"
OLD = 'printf "#!/bin/sh\\nexit 1\\n" > bin/$name; chmod +x bin/$name'
NO_PYTHON = f"mkdir -p bin; for name in python3 python3.11 python3.12 python3.13 python3.14; do {OLD}; done"
USER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && cd "$0" && exec "$@"'


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder that other users may enter, as they may not pytest's own."""
    if not (ROOT / ".git").exists():
        pytest.skip("this checkout is no clone, and the cases are copies of what is committed")
    with tempfile.TemporaryDirectory(prefix="gemmrepro-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def clone(place: Path, *options: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "clone", "-q", *options, f"file://{ROOT}", place], check=True, capture_output=True)
    return place


def said(place: Path, command: str, refused: str, *prefix: str, **environment: str) -> None:
    """A command in a checkout works, or ends with a line that `refused`, a regular expression, matches."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    words = [*prefix, "bash", "-c", command]
    done = subprocess.run(words, cwd=place, env=environ, text=True, errors="replace", **streams)
    assert (done.returncode != 0) == bool(refused) and (not refused or "Traceback" not in done.stdout), done.stdout
    assert not refused or any(re.search(refused, line.strip()) for line in done.stdout.splitlines()), done.stdout


ASCII = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.mark.parametrize(
    ("place", "command", "refused", "environment"),
    [
        ("Prüfung 実験/gemmrepro-été", PLAN, "", {}),
        ('it\'s $HOME "here"', f"unset HOME; {PLAN}", "", {"TMPDIR": "/nonexistent/tmp"}),
        ("ascii", PLAN, r"^gemmrepro: this shell reads text as .*; run `export LC_ALL=C.UTF-8`", ASCII),
        ("little", "ulimit -v 120000; envs/run true", r"^envs/run: this shell allows 120000 kB of memory", {}),
        ("2GB", f"ulimit -v 2000000; {CHECK}", "", {"OPENBLAS_NUM_THREADS": "1"}),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 30 else "",
)
def test_a_command_in_an_odd_environment_works_or_says_why_not(place, command, refused, environment, scratch) -> None:
    said(clone(scratch / place, "--depth", "1"), command, refused, **environment)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_without_a_newer_python_is_told(scratch: Path) -> None:
    place = clone(scratch / "gemmrepro")
    for path in (place, *place.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    command = f'{NO_PYTHON}; PATH="$PWD/bin:/usr/bin:/bin" envs/run true'
    said(place, command, r"envs/run: no Python 3\.11 or newer", *USER, HOME=str(place))


def test_a_read_only_checkout_is_told(scratch: Path) -> None:
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("mounts of its own are not permitted here")
    place = clone(scratch / "gemmrepro")
    mounted = ("unshare", "--mount", "bash", "-c", READ_ONLY, str(place))
    said(place, PLAN, r"^gemmrepro: .*cannot be written .*; run a copy", *mounted)
