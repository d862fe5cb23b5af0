"""An image in a builder's storage as a SIF file, Apptainer's format, and the list of packages inside one."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from gemmrepro.errors import UserError
from gemmrepro.host.builders import builder_command
from gemmrepro.host.containers import find_apptainer
from gemmrepro.host.recipes import Packages
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


def image_to_sif(image: str, builder: str, sif: Path, work: Workspace) -> None:
    """Turn an image in the builder's storage into the SIF file `sif`."""
    apptainer = find_apptainer(work.environ.get("PATH"))
    command = builder_command(builder, work)
    if builder == "buildah" and os.geteuid() == 0:
        container = run([*command, "from", "--pull=never", image], work, quiet=True).strip()
        folder = Path(run([*command, "mount", container], work, quiet=True).strip())
        described = json.loads(run([*command, "inspect", container], work, quiet=True))
        folder_to_sif(folder, described["OCIv1"]["config"].get("Env", []), apptainer, sif, work)
        run([*command, "umount", container], work, quiet=True)
        return
    archive = work.path / "image.tar"
    if builder == "buildah":
        run([*command, "push", "--quiet", image, f"docker-archive:{archive}"], work, quiet=True)
    else:
        run([*command, "save", "--output", archive, image], work, quiet=True)
    run([apptainer, "build", "--mksquashfs-args", " ".join(SQUASHFS), sif, f"docker-archive:{archive}"], work)


def folder_to_sif(folder: Path, variables: Sequence[str], apptainer: str, sif: Path, work: Workspace) -> None:
    """Turn an image's mounted root into `sif` in place, in a third of the time and disk that an archive takes.

    Args:
        variables: the image's environment, NAME=value, which its folder does not hold.

    Raises:
        UserError: mksquashfs is missing, or a tool fails.
    """
    mksquashfs = shutil.which("mksquashfs", path=work.environ.get("PATH"))
    if mksquashfs is None:
        raise UserError("mksquashfs is not on PATH; install squashfs-tools, or start the command through envs/run.")
    # Apptainer's start-up scripts, as this version writes them: those of an empty image.
    empty, skeleton = work.path / "empty", work.path / "skeleton"
    empty.mkdir()
    run([apptainer, "build", "--sandbox", skeleton, empty], work)
    run(["cp", "--archive", "--no-clobber", f"{skeleton}/.", folder], work)
    script = folder / ".singularity.d" / "env" / "10-docker2singularity.sh"
    script.write_text(environment_script(variables))
    script.chmod(0o755)
    squashed = work.path / "root.squashfs"
    run([mksquashfs, folder, squashed, "-noappend", "-quiet", "-no-progress", *SQUASHFS], work)
    arch = {"x86_64": "2", "aarch64": "4"}[os.uname().machine]
    primary = ["--datatype", "4", "--parttype", "2", "--partfs", "1", "--partarch", arch, "--groupid", "1"]
    run([apptainer, "sif", "new", sif], work)
    run([apptainer, "sif", "add", *primary, sif, squashed], work)
    squashed.unlink()
    sif.chmod(0o755)


def environment_script(variables: Sequence[str]) -> str:
    """A shell script that sets an image's variables (NAME=value) as Apptainer does for images it converts itself."""
    lines = ["#!/bin/sh"]
    for name, _, value in (variable.partition("=") for variable in variables):
        quoted = '"' + re.sub(r'(["\\`$])', r"\\\1", value) + '"'
        lines.append(f"export {name}={quoted}" if name == "PATH" else f'export {name}="${{{name}:-{quoted}}}"')
    return "\n".join(lines) + "\n"


def list_packages(sif: Path, work: Workspace) -> Packages:
    """The packages inside `sif`. Running this also tests that the image works."""
    apptainer = find_apptainer(work.environ.get("PATH"))
    inside = [apptainer, "exec", "--cleanenv", "--no-home", "--pwd", "/", str(sif)]
    return Packages.parsed(json.loads(run([*inside, "python3", "-c", LIST_PACKAGES], work, quiet=True)))
