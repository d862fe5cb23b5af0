"""What finished jobs wrote, by hash: the next run notices an output that was cut short, damaged or edited since.

Snakemake remembers which jobs finished (.snakemake/metadata) and looks at the times of their outputs alone. While a run
lasts, its guard (`killed_runs`) has each finished output written to the disk and appends its size, time and SHA-256 to
.snakemake/gemmrepro.outputs. The next run compares sizes and times, and the content where they differ; after a restart
of the machine, whose disk may have lost what was not written yet, the content of all. What differs is marked as
Snakemake marks the outputs of an interrupted job, so that it is made again when the run gets there; until then it stays
as it is. `snakemake --touch FILE` accepts a file as it is.

Images that were copied from elsewhere, of which Snakemake has no record, need only be whole.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from gemmrepro.core.files import write_atomic
from gemmrepro.errors import UserError
from gemmrepro.host.sif import filesystem_sha256, length_in_header

NAME = "gemmrepro.outputs"

IMAGES = "resources/images"

READERS = 4
"""Files that are read at a time after a restart, when none is in memory."""

BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Another one after each start of the machine."""


@dataclass(frozen=True)
class Written:
    """A file as its job left it; `size` in bytes, `time` of its last change in ns."""

    size: int
    time: int
    sha256: str


@dataclass(frozen=True)
class Output:
    """A finished output: a file, or all files of a folder by their paths.

    Attributes:
        recorded: when Snakemake's own record of it was written, in ns: another one if it was made again since.
    """

    recorded: int
    files: Mapping[str, Written]

    def line(self, name: str) -> str:
        files = {path: [file.size, file.time, file.sha256] for path, file in self.files.items()}
        return json.dumps({"output": name, "recorded": self.recorded, "files": files}) + "\n"


class FinishedOutputs:
    """The outputs of finished jobs in the working folder that holds `snakemake`, a folder .snakemake."""

    def __init__(self, snakemake: Path = Path(".snakemake"), boot: str | None = None) -> None:
        self._folder, self._journal = snakemake, snakemake / NAME
        self._boot = _this_boot() if boot is None else boot
        self._known, self._last_boot = self._read()

    def add(self) -> None:
        """Append what finished since. A file that a job is replacing meanwhile is left for the next time."""
        interrupted = set(self._marks("incomplete"))
        lines = []
        for name, record in self._marks("metadata").items():
            with contextlib.suppress(OSError, UserError):
                recorded = record.stat().st_mtime_ns
                known = self._known.get(name)
                if name in interrupted or (known and known.recorded == recorded):
                    continue
                self._known[name] = output = Output(recorded, self._on_disk(name))
                lines.append(output.line(name))
        if lines:
            with contextlib.suppress(OSError), self._journal.open("a") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())

    def check(self) -> list[str]:
        """Compare every finished output with what its job wrote; what differs is marked, to be made again.

        Returns:
            A sentence on each that differs, and on a restart of the machine.
        """
        restarted = self._last_boot not in (None, self._boot)
        found, current = [], dict[str, Output]()
        interrupted = set(self._marks("incomplete"))
        records = {name: path for name, path in self._marks("metadata").items() if name not in interrupted}
        with ThreadPoolExecutor(READERS if restarted else 1) as pool:
            compared = list(pool.map(lambda name: self._compared(name, records[name], restarted), records))
        for name, (output, fault) in zip(records, compared, strict=True):
            if fault:
                self._mark(name, records[name])
                found.append(f"{fault}; it is made again.")
            elif output:
                current[name] = output
        found += self._copied_in({*records, *interrupted})
        if restarted:
            for name in sorted(set(self._known) - set(current) - interrupted - set(self._marks("incomplete"))):
                self._mark(name, _encoded(self._folder / "metadata", name))
                found.append(f"{name} was lost when the machine stopped; it is made again.")
            found.insert(
                0, f"the machine was restarted since the last run here: its {len(current)} outputs are checked."
            )
        if current != self._known or self._last_boot != self._boot:
            self._known = current
            self._rewrite()
        return found

    def _compared(self, name: str, record: Path, restarted: bool) -> tuple[Output | None, str]:
        """An output as it is now, None if it is gone; and a clause on what is wrong with it, or ""."""
        known = self._known.get(name)
        try:
            recorded = record.stat().st_mtime_ns
            if not _is_whole(record):
                record.unlink()
                return None, f"Snakemake's record of {name} is damaged"
            if known and known.recorded == recorded:
                return Output(recorded, self._same(known, restarted)), ""
            if known and restarted:
                with contextlib.suppress(_Differs):  # a copy of the folder, where Snakemake's records have other times
                    return Output(recorded, self._same(known, restarted)), ""
            files = self._on_disk(name)
            if restarted:
                return None, f"{name} was made just before the machine stopped, and may not be whole"
            return Output(recorded, files), ""
        except FileNotFoundError:
            return None, f"{name} was lost when the machine stopped" if known and restarted else ""
        except _Differs as fault:
            return None, str(fault)
        except (OSError, UserError):
            return known, ""  # it cannot be read now; the job that needs it says so

    def _copied_in(self, known: set[str]) -> list[str]:
        """A sentence on each image or lock that is not whole, beside the `known` outputs; it is marked."""
        found = []
        for path in sorted(Path(self._folder.parent, IMAGES).glob("[!.]*")):
            name = os.path.relpath(path, self._folder.parent)
            if name not in known and not _can_be_whole(path):
                self._mark(name, _encoded(self._folder / "metadata", name))
                found.append(f"{name} is cut short or damaged; it is made again.")
        return found

    def _same(self, known: Output, restarted: bool) -> dict[str, Written]:
        return {path: _same(Path(self._folder.parent, path), file, restarted) for path, file in known.files.items()}

    def _on_disk(self, name: str) -> dict[str, Written]:
        """The files of an output, which are on the disk when this returns. Raises OSError if there is none."""
        start = Path(self._folder.parent, name)
        paths = sorted(path for path in start.rglob("*") if path.is_file()) if start.is_dir() else [start]
        return {
            os.path.relpath(path, self._folder.parent): _written(path)
            for path in paths
            if path.name != ".snakemake_timestamp"
        }

    def _marks(self, kind: str) -> dict[str, Path]:
        """Snakemake's files about outputs, by the output's path: `metadata` of finished, or `incomplete` ones."""
        top = self._folder / kind
        marks = {}
        for folder, _, names in os.walk(top):
            for name in names:
                path = Path(folder, name)
                with contextlib.suppress(binascii.Error, UnicodeDecodeError):
                    parts = path.relative_to(top).parts
                    marks[base64.urlsafe_b64decode("".join(part.lstrip("@") for part in parts)).decode()] = path
        return marks

    def _mark(self, name: str, record: Path) -> None:
        """Mark an output as Snakemake marks those of interrupted jobs."""
        mark = self._folder / "incomplete" / record.relative_to(self._folder / "metadata")
        with contextlib.suppress(OSError):
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.write_text('{"external_jobid": null}')

    def _read(self) -> tuple[dict[str, Output], str | None]:
        """The journal's outputs, and the start of the machine that its last run saw; damaged lines count as absent."""
        outputs, boot = dict[str, Output](), None
        with contextlib.suppress(OSError):
            for line in self._journal.read_text(errors="replace").splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                    entry = json.loads(line)
                    if "boot" in entry:
                        boot = str(entry["boot"])
                        continue
                    files = {str(path): Written(*file) for path, file in entry["files"].items()}
                    outputs[entry["output"]] = Output(int(entry["recorded"]), files)
        return outputs, boot

    def _rewrite(self) -> None:
        lines = [output.line(name) for name, output in self._known.items()]
        with contextlib.suppress(OSError):  # a full disk: the old lines stay
            write_atomic(self._journal, json.dumps({"boot": self._boot}) + "\n" + "".join(lines))


class _Differs(Exception):
    """A file is not what its job wrote; the message is a clause."""


def _same(path: Path, known: Written, restarted: bool) -> Written:
    """The file as it is now, if its content is what was written. Raises _Differs."""
    status = path.stat()
    if not restarted and (status.st_size, status.st_mtime_ns) == (known.size, known.time):
        return known
    image = path.suffix == ".sif"
    if status.st_size < known.size and not image:
        raise _Differs(f"{path} was cut short, to {status.st_size} of {known.size} bytes, since its job wrote it")
    if image and not shutil.which("apptainer") and not shutil.which("singularity"):
        return known
    try:
        now = _written(path)
    except UserError:  # Apptainer cannot read it
        raise _Differs(f"{path} was cut short or damaged since its job wrote it") from None
    if now.sha256 != known.sha256:
        raise _Differs(f"{path} was edited or damaged since its job wrote it")
    return now


def _written(path: Path) -> Written:
    """The file's size, time and hash, once it is on the disk; of an image the hash of what is in it, not of signatures.

    Raises:
        OSError: it cannot be read, or was replaced meanwhile.
        UserError: it is an image that Apptainer cannot read.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        os.fsync(file.fileno())
        image = path.suffix == ".sif"
        digest = filesystem_sha256(path, os.environ) if image else hashlib.file_digest(file, "sha256").hexdigest()
    after = path.stat()
    if (after.st_size, after.st_mtime_ns) != (status.st_size, status.st_mtime_ns):
        raise OSError(f"{path} changes")
    return Written(status.st_size, status.st_mtime_ns, digest)


def _can_be_whole(path: Path) -> bool:
    """Whether an image is as long as its header says, and a lock a JSON object; True for other files."""
    try:
        if path.suffix == ".sif":
            return path.stat().st_size >= length_in_header(path)
        return path.suffix != ".json" or isinstance(json.loads(path.read_bytes()), dict)
    except ValueError:
        return False
    except OSError:
        return True  # it cannot be read now; the job that needs it says so


def _is_whole(record: Path) -> bool:
    """Whether Snakemake's record begins and ends as JSON does; it is not written atomically."""
    data = record.read_bytes().strip()
    return data[:1] == b"{" and data[-1:] == b"}"


def _encoded(folder: Path, name: str) -> Path:
    """The path of Snakemake's record of an output: its name in base64, in pieces that a file system takes."""
    text = base64.urlsafe_b64encode(name.encode()).decode()
    pieces = [text[start : start + 254] for start in range(0, len(text), 254)]
    return Path(folder, *(f"@{piece}" for piece in pieces[:-1]), pieces[-1])


def _this_boot() -> str:
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""
