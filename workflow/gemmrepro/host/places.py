"""The machine that a run is on: its processor, encoding, paths and disks, its GPUs, and what is measured there."""

import codecs
import json
import locale
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gemmrepro.core.names import LEAST_DRIVER
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.gpu.slots import BY_BUS, EXPECTED, ORDER, VISIBLE, HostGpu, listed, unsupported, usable
from gemmrepro.host.containers import CACHES, WSL, make_caches


def check_machine(machine: str | None = None) -> None:
    """Raises UserError where no image can be made; `machine` is the kind of processor, by default this one's."""
    machine = machine or platform.machine()
    if machine not in ("x86_64", "AMD64"):
        raise UserError(
            f"containers need an x86-64 processor, and this one is {machine}: the locks of Apptainer, of Debian's "
            "packages and of Python's wheels are for x86-64 alone. docs/hosts-and-images.md says what can be done "
            "without them."
        )


def check_encoding(name: str | None = None) -> None:
    """Raises UserError if text is read as anything but UTF-8; `name` is the encoding, the process's own by default."""
    name = name or locale.getpreferredencoding(False)
    if codecs.lookup(name).name != "utf-8":
        raise UserError(
            f"this shell reads text as {name}, and the project's files are UTF-8; run `export LC_ALL=C.UTF-8`, or put "
            "`envs/run` before the command."
        )


def check_paths(containers: bool, folder: Path | None = None, root: Path = ROOT, bound: Sequence[Path] = ()) -> None:
    """Raises UserError if a folder of a job has a character that ends it early for Python, a shell or Apptainer.
    `folder`: where the run is, by default the current one; `bound`: further folders that containers see."""
    folder = folder or Path.cwd()
    refused = [(root, ":")]
    if containers:
        # Snakemake quotes the working folder as Python does, and not as a shell; Apptainer splits lists at commas.
        quoted = '"$`' if "'" in str(folder) else ""
        refused += [(folder, ":\\" + quoted + "".join(letter for letter in str(folder) if not letter.isprintable()))]
        refused += [(path, ":,") for path in (*bound, root) if not path.is_relative_to(folder)]
    for path, letters in refused:
        if bad := next((letter for letter in str(path) if letter in letters), None):
            raise UserError(
                f"the path {json.dumps(str(path), ensure_ascii=False)} has a {json.dumps(bad)}, with which jobs cannot "
                "start; rename the folder, or use another."
            )


def check_caches(environ: Mapping[str, str]) -> None:
    """Make the folders that containers want for their caches; raises UserError, with the variable, if it cannot."""
    for name in filter(environ.get, CACHES):
        try:
            make_caches({name: environ[name]})
            why = "" if os.access(environ[name], os.W_OK | os.X_OK) else "Permission denied"
        except OSError as error:
            why = error.strerror or str(error)
        if why:
            raise UserError(
                f"{name}: the folder {environ[name]} cannot be written ({why}); name one that you may write to."
            )


def check_disks() -> None:
    """Raises UserError if a disk is too full to begin: Snakemake's records and its log take as much."""
    for sentence in full_disks(16e6):
        raise UserError(sentence)


def say_what_is_full() -> None:
    """Print a line for each full disk, after a run that failed."""
    for sentence in full_disks():
        print(f"gemmrepro: {sentence}", file=sys.stderr)


def full_disks(least: float = 1e6) -> Iterator[str]:
    """A sentence for each disk that a run writes to and that has less than `least` bytes left."""
    said = set()
    for name in (".snakemake", "results", "resources", "reports", os.environ.get("TMPDIR", "/tmp")):
        folder = next(path for path in (Path(name).absolute(), *Path(name).absolute().parents) if path.exists())
        status, device = os.statvfs(folder), folder.stat().st_dev
        left = status.f_bavail * status.f_frsize
        if device in said or left >= least or not status.f_blocks:  # /proc and its like tell no size
            continue
        said.add(device)
        yield (
            f"the disk that holds {folder} is full ({left / 1e6:.1f} MB left); free some space and run the same "
            "command again: what was finished is kept."
        )


QUERY = ("--query-gpu=name,compute_cap,uuid,driver_version", "--format=csv,noheader")

LINE = re.compile(r"(?P<name>.+), *(?P<major>\d+)\.(?P<minor>\d), *(?P<uuid>GPU-\S+), *(?P<driver>\d+)[.\d]*")
"""A GPU in the answer; that of a lost one, and warnings, look otherwise."""


def find_gpus(
    environ: Mapping[str, str] | None = None,
    *,
    containers: bool = False,
    machine: str = "",
    dev: Path = Path("/dev"),
    wsl: Path = WSL,
) -> tuple[list[HostGpu], str]:
    """The GPUs that jobs may be spread over, all of one model; and what else is not used and why, or "".
    They are the first supported one that ``CUDA_VISIBLE_DEVICES`` leaves and all others of its model. `machine`: the
    host's architecture, by default this one's; `dev`, `wsl`: the folders /dev, and of the driver under WSL2."""
    environ = os.environ if environ is None else environ
    if shutil.which("nvidia-smi") is None:
        return [], "nvidia-smi is not on PATH"
    code, lines = _nvidia_smi(*QUERY)
    rows = [row for line in lines if (row := LINE.fullmatch(line))]
    present = [HostGpu(row["name"], 10 * int(row["major"]) + int(row["minor"]), row["uuid"]) for row in rows]
    unread = [line for line in lines if not LINE.fullmatch(line)]
    if not present:
        failed = f"nvidia-smi failed{''.join(f': {line}' for line in unread[:1])}"
        return [], failed if code else _unread(unread) or "nvidia-smi lists no GPU"
    visible = environ.get(VISIBLE)
    named = listed(present, visible, _parent)
    if not named:
        return [], f"{VISIBLE}={visible} leaves no GPU"
    chosen = list(usable(named).values())
    driver = min(int(row["driver"]) for row in rows)
    problem = _problem(driver, machine or platform.machine(), containers, dev, wsl)
    if chosen and problem:
        return [], problem
    another = f"is another model than {chosen[0].name}, and one recording holds one model's rows" if chosen else ""
    others = [f"{gpu.name} {unsupported(gpu.capability) or another}" for gpu in named.values() if gpu not in chosen]
    hidden = {gpu.name: None for gpu in present if gpu.name not in {seen.name for seen in named.values()}}
    if hidden and re.search(r"(^|,)\s*\d", visible or "") and environ.get(ORDER) != BY_BUS:
        others.append(f"{', '.join(hidden)}: not in {VISIBLE}={visible}, whose numbers are in nvidia-smi's order")
    return chosen, "; ".join(filter(None, [*dict.fromkeys(others), _unread(unread)]))


def _unread(lines: Sequence[str]) -> str:
    """The lines of nvidia-smi that are no GPUs."""
    said = [f'nvidia-smi says "{line}"' for line in lines[:3]]
    return "; ".join([*said, *([f"{len(lines) - 3} more such lines"] if len(lines) > 3 else [])])


def _nvidia_smi(*arguments: str) -> tuple[int, list[str]]:
    """The exit code and the lines, each once and none blank, of nvidia-smi; where it does not end, the reason."""
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    try:
        done = subprocess.run(["nvidia-smi", *arguments], **streams, errors="replace", timeout=60)
    except (subprocess.TimeoutExpired, OSError) as error:
        return 1, [str(error)]
    # What is not printable could change the terminal.
    lines = ("".join(c if c.isprintable() else "?" for c in line.strip()) for line in done.stdout.splitlines())
    return done.returncode, list(filter(None, dict.fromkeys(lines)))


def _parent(slice_uuid: str) -> str | None:
    """The UUID of the GPU that a MIG slice is a part of, by the slice's old kind of name or by nvidia-smi's list."""
    if old := re.match(r"MIG-(GPU-[^/]+)/", slice_uuid):
        return old[1]
    gpu = None
    for line in _nvidia_smi("-L")[1]:
        found = re.search(r"\(UUID: ([^)]+)\)", line)
        if found and found[1].startswith("GPU-"):
            gpu = found[1]
        elif found and found[1].startswith(slice_uuid):
            return gpu
    return None


def _problem(driver: int, machine: str, containers: bool, dev: Path, wsl: Path) -> str:
    """Why no GPU can be used here, whichever it is; else ""."""
    least = LEAST_DRIVER["cuda13"]  # of CuPy and the baselines, which measure
    if driver < least:
        return f"its driver, {driver}, is older than {least}, which CUDA 13 needs"
    if containers and machine not in ("x86_64", "amd64"):
        return f"the images are for x86-64, and this host is {machine}"
    if (dev / "nvidiactl").exists():
        return ""
    if not (dev / "dxg").exists():
        return f"there is neither {dev}/nvidiactl nor, as under WSL2, {dev}/dxg"
    return "" if (library := wsl / "lib/libdxcore.so").exists() else f"{dev}/dxg needs {library}; update WSL"


VARIABLE = "GEMMREPRO_TARGET"
"""The environment variable that hands a target on to jobs."""


@dataclass(frozen=True)
class Target:
    """Where a run measures.

    Attributes:
        gpu: the GPU that jobs measure on: the configuration's, else this machine's, else None; `why_not`: why none.
        slots: GPU jobs side by side, at least 1: for each GPU one that uses it and one that waits for it (`gpu.slots`).
    """

    measure: str
    gpu: HostGpu | None
    why_not: str
    slots: int


def resolve(
    config: Mapping[str, Any], environ: MutableMapping[str, str], main: bool, containers: bool = False
) -> Target:
    """The target of this run, of which a line says what else is here; changes `environ` so that jobs find the same.
    `main`: whether this is the process that the user started; a job's takes what it was handed, if anything. Raises
    UserError for ``measure: live`` without a usable GPU, here or in the configuration."""
    if not main and VARIABLE in environ:
        handed = json.loads(environ[VARIABLE])
        return Target(**handed | {"gpu": HostGpu(**handed["gpu"]) if handed["gpu"] else None})
    gpus, why_not = find_gpus(environ, containers=containers)
    configured = config.get("gpu")
    gpu = HostGpu(configured["name"], configured["capability"]) if configured else next(iter(gpus), None)
    measure = config["measure"]
    if measure == "live" and gpu is None:
        raise UserError(
            f"measure: live needs a usable NVIDIA GPU, and {why_not}. Mend that, or set measure to auto or recorded; "
            "to plan for a cluster, set gpu to the one of its compute nodes."
        )
    if measure == "auto":
        measure = "live" if gpu else "recorded"
    target = Target(measure, gpu, "" if gpu else why_not, max(1, 2 * len(gpus)))
    if config["measure"] == "auto" and measure == "recorded":
        print(f"gemmrepro: measuring nothing: {why_not}; the recordings stand in", file=sys.stderr)
    elif measure == "live" and why_not and not configured:
        print(f"gemmrepro: measuring on {len(gpus)} x {gpus[0].name}; not used: {why_not}", file=sys.stderr)
    environ[VARIABLE] = json.dumps(asdict(target))
    environ.pop(EXPECTED, None)
    if configured:
        environ[EXPECTED] = configured["name"]
    return target
