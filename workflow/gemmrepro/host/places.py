"""Where a run may be: the machine, its encoding, the paths of its folders, and the folders of its caches."""

from __future__ import annotations

import codecs
import json
import locale
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.host.containers import CACHES, make_caches


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
    """Check the folders that jobs are given.

    Args:
        containers: whether jobs run in containers.
        folder: the working folder, by default the current one.
        root: the checkout.
        bound: further folders that containers see.

    Raises:
        UserError: a path has a character that ends it early for Python, a shell or Apptainer.
    """
    folder = folder or Path.cwd()
    refused = [(root, ":")]
    if containers:
        # Snakemake quotes the working folder as Python does, and not as a shell; Apptainer splits lists at commas.
        home = str(folder)
        quoted = '"$`' if "'" in home else ""
        refused += [(folder, ":\\" + quoted + "".join(letter for letter in home if not letter.isprintable()))]
        refused += [(path, ":,") for path in (*bound, root) if not path.is_relative_to(folder)]
    for path, letters in refused:
        if bad := next((letter for letter in str(path) if letter in letters), None):
            raise UserError(
                f"the path {json.dumps(str(path), ensure_ascii=False)} has a {json.dumps(bad)}, with which jobs cannot "
                "start; rename the folder, or use another."
            )


def check_caches(environ: Mapping[str, str]) -> None:
    """Make the folders that containers want for their caches.

    Raises:
        UserError: a folder cannot be made or written; names its variable.
    """
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
