"""A scratch checkout that runs the pipeline in its containers, and what its runs left there."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = "campaign.yaml"
FEWER = "measure: recorded\nfamilies: [memory, ceilings]\n"
"""Two families, with binaries of both toolkits, rows, experiments, claims and figures; a run takes a minute or two."""

MADE = ("results", "reports", "resources/images", "resources/cache/build")
NO_OUTPUTS = ("results/logs/", "reports/recorded/", "reports/template/")


def record_of(output: str) -> Path:
    """Snakemake's own record of an output, in the folder of the run."""
    return Path(".snakemake/metadata", base64.urlsafe_b64encode(output.encode()).decode())


@dataclass(frozen=True)
class Ended:
    """A run's exit code and all that it said."""

    code: int
    said: str

    @property
    def lines(self) -> list[str]:
        """What the project said, not Snakemake."""
        return [line for line in self.said.splitlines() if line.startswith("gemmrepro: ")]

    @property
    def tail(self) -> str:
        return "\n".join(self.said.splitlines()[-30:])

    @property
    def last_line(self) -> str:
        """What an outcome records of a run: the lines before it name the machine's folders."""
        return next((line for line in reversed(self.said.splitlines()) if line.strip()), "")


class Checkout:
    """What is committed, in `folder`, with the images and finished builds of another checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._failed: set[str] = set()

    def make(self, images: Path = ROOT) -> None:
        subprocess.run(["git", "clone", "-q", f"file://{ROOT}", self.folder], check=True, capture_output=True)
        for name in ("resources/images", "resources/cache/build"):
            # The time of a copy is now: newer than the recipes.
            shutil.copytree(images / name, self.folder / name, copy_function=shutil.copyfile)
        for image in self.folder.glob("resources/images/*.sif"):
            image.chmod(0o755)
        # As if they had been built here: with Snakemake's records of them, which the copied files are not older than.
        for path in self.folder.glob("resources/images/[!.]*"):
            record = record_of(path.relative_to(self.folder).as_posix())
            if (images / record).is_file():
                (self.folder / record).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(images / record, self.folder / record)
        (self.folder / SETTINGS).write_text(FEWER)

    def command(self, *arguments: str) -> list[str]:
        return ["snakemake", "--use-singularity", "--cores", "2", "--configfile", SETTINGS, "--", *arguments]

    def run(self, *arguments: str, **environment: str) -> Ended:
        with self.start(*arguments, **environment) as process:
            said, _ = process.communicate(timeout=3600)
        return self.ended(process.returncode, said)

    def ended(self, code: int, said: str) -> Ended:
        """What a run said, without the place of this checkout. The outputs of its failed jobs count as unfinished."""
        failed = re.findall(r"^Error in rule .*(?:\n .*)*?\n    output: (.*)", said, re.MULTILINE)
        self._failed = {name.strip() for names in failed for name in names.split(",")}
        return Ended(code, said.replace(f"{self.folder}/", ""))

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """A run in a process group of its own, whose output is in its standard output."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )

    def interrupted(self) -> set[str]:
        """The outputs that Snakemake will make again."""
        top = self.folder / ".snakemake/incomplete"
        paths = [path for path in top.rglob("*") if path.is_file()]
        texts = ["".join(part.lstrip("@") for part in path.relative_to(top).parts) for path in paths]
        return {base64.urlsafe_b64decode(text).decode() for text in texts}

    def outputs(self) -> dict[str, tuple[int, str]]:
        """Time and SHA-256 of every finished output, and of the builds in the cache, by path."""
        unfinished, found = self.interrupted() | self._failed, {}
        for top in MADE:
            for path in sorted((self.folder / top).rglob("*")):
                name = path.relative_to(self.folder).as_posix()
                hidden = any(part.startswith(".") for part in path.relative_to(self.folder).parts)
                if hidden or not path.is_file() or name.startswith(NO_OUTPUTS):
                    continue
                if not any(name == output or name.startswith(f"{output}/") for output in unfinished):
                    # A build in the cache is touched when it is used; an image takes too long to hash each time.
                    time = 0 if "cache" in name else path.stat().st_mtime_ns
                    found[name] = (time, "" if path.suffix in (".sif", ".tar") else _sha256(path))
        return found

    def remove(self, *patterns: str) -> None:
        for pattern in patterns:
            for path in self.folder.glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def finished(folder: Path, images: Path) -> Checkout:
    """A scratch checkout in `folder` after a whole run; made with the images of another one, if it is not there."""
    checkout = Checkout(folder.resolve())
    if not folder.exists():
        checkout.make(images)
    ended = checkout.run()
    assert ended.code == 0, ended.tail
    return checkout


def changed(before: dict[str, tuple[int, str]], after: dict[str, tuple[int, str]]) -> list[str]:
    """What was finished before and is lost, other, or made again."""
    return sorted(name for name, state in before.items() if after.get(name) != state)


def plain(path: Path) -> str:
    """A file's content without dates, times and durations."""
    text = path.read_bytes().decode(errors="replace")
    return re.sub(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|\+00:00)?)?|\b\d+(\.\d+)? (s|min)\b", "…", text)


def results_of(folder: Path) -> dict[str, str]:
    """What a run is for, without dates: its binaries, verdicts, rows, figures and pages, by path."""
    found = {}
    for pattern in ("results/**/*", "reports/*.html", "reports/*/**/*"):
        for path in sorted(folder.glob(pattern)):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and not path.name.startswith(".") and not name.startswith(NO_OUTPUTS):
                found[name] = hashlib.sha256(plain(path).encode()).hexdigest()
    return found


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def below(process: int) -> Iterator[int]:
    """The processes that `process` started, and those that they did."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(folder.name))
    waiting = [process]
    while waiting:
        for child in children.get(waiting.pop(), []):
            waiting.append(child)
            yield child


def command_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def need_root(*programs: str) -> bool:
    """Whether this can run; says what is missing otherwise."""
    missing = [name for name in ("git", "snakemake", "apptainer", *programs) if shutil.which(name) is None]
    if missing or os.geteuid():
        print(f"this needs root, and {', '.join(missing) or 'nothing else'}", file=sys.stderr)
    return not missing and not os.geteuid()
