"""The keys that sign Debian's newer releases, for hosts that know only the older ones' (Ubuntu 22.04)."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from gemmrepro.host.workspace import Workspace, run

KEYRINGS = Path("/usr/share/keyrings")

CHAIN = ("bullseye", "bookworm")
"""Releases of Debian (11, 12) that each are signed by keys that the one before has, and bring the next one's."""


def newer_keys(options: Sequence[str], work: Workspace) -> Path:
    """A folder with the keys that Debian 12 has, each fetched from a release whose signature the ones before verify.

    Args:
        options: of mmdebstrap, by which it fetches as this host's apt does.
        work: what it makes goes into its short folder: an ordinary user's mmdebstrap may not enter that user's home.

    Raises:
        UserError: the host has not even Debian 11's keys, or mmdebstrap fails for another reason.
    """
    keyrings, folder = KEYRINGS, work.short / "keys"
    for release in CHAIN:
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{release}.tar"
        package = ["--variant=extract", "--include=debian-archive-keyring", f"--keyring={keyrings}"]
        run(["mmdebstrap", "--quiet", *package, *options, release, part], work)
        subprocess.run(["tar", "-x", "-f", part, "-C", folder, "--no-same-owner", f".{KEYRINGS}"], check=True)
        part.unlink()
        keyrings = folder / KEYRINGS.relative_to("/")
    return keyrings
