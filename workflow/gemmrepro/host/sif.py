"""A root file system as a SIF file, Apptainer's format, and the list of packages inside one."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from gemmrepro.errors import UserError
from gemmrepro.host.cleaning import EPOCH, clean
from gemmrepro.host.containers import find_apptainer, fuse_hint
from gemmrepro.host.recipes import Packages
from gemmrepro.host.rootfs import RootFs
from gemmrepro.host.workspace import Workspace, run

SQUASHFS = ("-comp", "zstd", "-Xcompression-level", "1")
"""Half the size of no compression at little more than its time; gzip, the default, takes ten times as long."""

# Runs inside the image. /opt/unpacked lists packages whose files were taken without installing them.
LIST_PACKAGES = r"""
import importlib.metadata, json, pathlib, subprocess
query = ["dpkg-query", "--show", "--showformat", "${Package} ${Version}\n"]
lines = subprocess.run(query, check=True, capture_output=True, text=True).stdout
unpacked = pathlib.Path("/opt/unpacked")
lines += unpacked.read_text() if unpacked.exists() else ""
print(json.dumps({
    "os": [line.split() for line in lines.splitlines() if line.strip()],
    "python": [[d.metadata["Name"], d.version] for d in importlib.metadata.distributions()],
}))
"""


def folder_to_sif(root: RootFs, labels: Mapping[str, str], apptainer: str, squashed: Path, work: Workspace) -> None:
    """Pack a root file system into the file system of a SIF, `squashed`, with Apptainer's start-up scripts.

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
        run([apptainer, "build", "--sandbox", skeleton, empty], work)
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
    run([mksquashfs, root.folder, squashed, "-noappend", "-quiet", "-no-progress", *times, *owner, *SQUASHFS], work)


def wrap(squashed: Path, sif: Path, apptainer: str, work: Workspace) -> None:
    """Make `sif` from its file system, which is removed."""
    arch = {"x86_64": "2", "aarch64": "4"}[os.uname().machine]
    primary = ["--datatype", "4", "--parttype", "2", "--partfs", "1", "--partarch", arch, "--groupid", "1"]
    run([apptainer, "sif", "new", sif], work)
    run([apptainer, "sif", "add", *primary, sif, squashed], work)
    squashed.unlink()
    sif.chmod(0o755)


def environment_script(variables: Mapping[str, str]) -> str:
    """A shell script that sets an image's variables as Apptainer does for images it converts itself."""
    lines = ["#!/bin/sh"]
    for name, value in variables.items():
        quoted = '"' + re.sub(r'(["\\`$])', r"\\\1", value) + '"'
        lines.append(f"export {name}={quoted}" if name == "PATH" else f'export {name}="${{{name}:-{quoted}}}"')
    return "\n".join(lines) + "\n"


def list_packages(sif: Path, work: Workspace) -> Packages:
    """The packages inside `sif`. Running this also tests that the image works.

    Raises:
        UserError: it does not; says what to do where an ordinary user may not mount images.
    """
    apptainer = find_apptainer(work.environ.get("PATH"))
    inside = [apptainer, "exec", "--cleanenv", "--no-home", "--pwd", "/", str(sif)]
    try:
        listing = run([*inside, "python3", "-c", LIST_PACKAGES], work, quiet=True)
    except UserError as error:
        raise UserError(f"{error}{fuse_hint()}") from None
    return Packages.parsed(json.loads(listing))
