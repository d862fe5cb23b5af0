"""A root file system as a SIF file, Apptainer's format, and the list of packages inside one."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from gemmrepro.errors import UserError
from gemmrepro.host.cleaning import EPOCH, clean
from gemmrepro.host.containers import find_apptainer, fuse_hint
from gemmrepro.host.inventory import Entry
from gemmrepro.host.rootfs import RootFs
from gemmrepro.host.workspace import Workspace, run

ZSTD = ("-comp", "zstd", "-Xcompression-level", "1")
"""Half the size of no compression at little more than its time; gzip, the default, takes ten times as long."""

LZ4 = ("-comp", "lz4")
"""A third larger than `ZSTD`. Each start unpacks anew what it reads: Python with pandas starts in 1.3 s, not 1.6 s."""

HEADER = struct.Struct("<32x10s70xqq")
"""Of a SIF: where its data begin, and their length, after its magic bytes, version, times and table."""

INVENTORY = Path(__file__).with_name("inventory.py")
"""The program that lists an image's packages, inside the image."""


def folder_to_sif(
    root: RootFs,
    labels: Mapping[str, str],
    apptainer: str,
    squashed: Path,
    work: Workspace,
    compression: Sequence[str] = ZSTD,
) -> None:
    """Pack a root file system into the file system of a SIF, `squashed`, with Apptainer's start-up scripts.

    Args:
        compression: options of mksquashfs.

    Raises:
        UserError: mksquashfs is missing, or a tool fails.
    """
    mksquashfs = shutil.which("mksquashfs", path=work.environ.get("PATH"))
    if mksquashfs is None:
        raise UserError("mksquashfs is not on PATH; install squashfs-tools, or start the command through envs/run.")
    own = root.folder / ".singularity.d"
    if not own.exists():
        # Apptainer's start-up scripts, as this version writes them: those of an empty image.
        empty, skeleton = work.path / "empty", work.path / "skeleton"
        empty.mkdir()
        run([apptainer, "build", "--sandbox", skeleton, _source_of(empty, Path("/etc/hosts"))], work)
        missing = [entry for entry in sorted(skeleton.iterdir()) if not os.path.lexists(root.folder / entry.name)]
        run(["cp", "--archive", *missing, root.folder], work)
    script = own / "env" / "10-docker2singularity.sh"
    script.write_text(environment_script(root.variables))
    script.chmod(0o755)
    # Apptainer's own labels and definition name the build machine's folders and the date.
    (own / "Singularity").unlink(missing_ok=True)
    (own / "labels.json").write_text(json.dumps(dict(labels), indent=2, sort_keys=True) + "\n")
    clean(root.folder, work.started)
    times = ["-root-time", str(EPOCH), "-mkfs-time", str(EPOCH)]
    owner = ["-all-root"] if os.geteuid() else []
    run([mksquashfs, root.folder, squashed, "-noappend", "-quiet", "-no-progress", *times, *owner, *compression], work)


def _source_of(empty: Path, hosts: Path) -> Path:
    """What Apptainer makes a sandbox of an empty folder from.

    It gives the sandbox an ``/etc/hosts`` and then fills it from the host's, without which it fails, unless that of the
    sandbox is gone by then. The barest hosts have none.
    """
    if hosts.exists():
        return empty
    recipe = empty.with_suffix(".def")
    recipe.write_text(f'Bootstrap: localimage\nFrom: {empty}\n\n%setup\nrm "$APPTAINER_ROOTFS/etc/hosts"\n')
    return recipe


def wrap(squashed: Path, sif: Path, apptainer: str, work: Workspace) -> None:
    """Make `sif` from its file system, which is removed."""
    arch = {"x86_64": "2", "aarch64": "4"}[os.uname().machine]
    primary = ["--datatype", "4", "--parttype", "2", "--partfs", "1", "--partarch", arch, "--groupid", "1"]
    run([apptainer, "sif", "new", sif], work)
    run([apptainer, "sif", "add", *primary, sif, squashed], work)
    squashed.unlink()
    sif.chmod(0o755)


def length_in_header(sif: Path) -> int:
    """The bytes of an image with all its data, by its header (github.com/sylabs/sif, type header).

    Raises:
        OSError: it cannot be read.
        ValueError: it begins with no such header.
    """
    with sif.open("rb") as file:
        header = file.read(HEADER.size)
    if len(header) < HEADER.size:
        raise ValueError(f"{sif} is shorter than a header")
    magic, start, length = HEADER.unpack(header)
    if magic != b"SIF_MAGIC\0":
        raise ValueError(f"{sif} does not begin as a SIF does")
    return int(start + length)


def environment_script(variables: Mapping[str, str]) -> str:
    """A shell script that sets an image's variables as Apptainer does for images it converts itself."""
    lines = ["#!/bin/sh"]
    for name, value in variables.items():
        quoted = '"' + re.sub(r'(["\\`$])', r"\\\1", value) + '"'
        lines.append(f"export {name}={quoted}" if name == "PATH" else f'export {name}="${{{name}:-{quoted}}}"')
    return "\n".join(lines) + "\n"


def list_packages(sif: Path, environ: Mapping[str, str]) -> dict[str, list[Entry]]:
    """The packages inside `sif`, Debian's (`os`) and Python's. Running this also tests that the image works.

    Raises:
        UserError: it does not; says what to do where an ordinary user may not mount images.
    """
    apptainer = find_apptainer(environ.get("PATH"))
    inside = [apptainer, "exec", "--cleanenv", "--no-home", "--pwd", "/", str(sif)]
    command = [*inside, "python3", "-c", INVENTORY.read_text()]
    done = subprocess.run(command, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip() or "nothing"
        raise UserError(f"the packages in {sif} cannot be listed; the image or Apptainer said:\n{said}{fuse_hint()}")
    return json.loads(done.stdout)


def filesystem_sha256(sif: Path, environ: Mapping[str, str]) -> str:
    """SHA-256 of the root file system in a SIF: what the image is, whoever signed it and whenever it was packed.

    Raises:
        UserError: Apptainer does not recognize the file as an image.
    """
    command = [find_apptainer(environ.get("PATH")), "sif", "list", str(sif)]
    listing = subprocess.run(command, env=dict(environ), capture_output=True, text=True).stdout
    found = re.search(r"\|(\d+)-(\d+) *\|FS \(Squashfs/\*System/", listing)
    if found is None:
        raise UserError(f"{sif} is no image that Apptainer can read; remove it, and the next run builds it again.")
    start, left = int(found[1]), int(found[2]) - int(found[1])
    digest = hashlib.sha256()
    with sif.open("rb") as file:
        file.seek(start)
        while chunk := file.read(min(left, 1 << 20)):
            digest.update(chunk)
            left -= len(chunk)
    if left:
        raise UserError(f"{sif} is cut short; remove it, and the next run builds it again.")
    return digest.hexdigest()
