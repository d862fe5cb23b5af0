"""Build one container image: Dockerfile → root file system (docker, podman, buildah) → SIF, and a list of its packages.

``python -m gemmrepro image --env cuda13 --recipe docker/cuda13.Dockerfile --sif resources/images/cuda13.sif
--lock resources/images/cuda13.lock.json``
"""

from __future__ import annotations

import errno
import os
import shlex
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from gemmrepro import __version__
from gemmrepro.core.files import write_json
from gemmrepro.core.machine import git_commit
from gemmrepro.host.builders import find_builder, mounts_containers, provide_base
from gemmrepro.host.containers import apptainer_version, container_environment, find_apptainer, make_caches
from gemmrepro.host.recipes import Packages, Recipe, Sources, lock_record, locked_as, read_recipe, requirements_sha256
from gemmrepro.host.sif import LZ4, ZSTD, build_and_unpack, build_in_place, folder_to_sif, list_packages, wrap
from gemmrepro.host.workspace import DiskFull, Workspace, remove_tree, workspace

STARTED_OFTEN = ("report",)
"""Images in which some thirty short jobs of a run start."""


def image_labels(recipe: Recipe) -> dict[str, str]:
    """The image's labels, by OCI's names. The time of the build is none of them: it would make each build differ."""
    labels = {step.rest for step in recipe.instructions if step.keyword == "LABEL"}
    described = dict(word.partition("=")[::2] for rest in labels for word in shlex.split(rest))
    named = {"version": __version__, "revision": git_commit() or "", "base.name": recipe.base}
    return described | {f"org.opencontainers.image.{name}": value for name, value in named.items() if value}


def build_sif(env: str, recipe: Recipe, builder: str, sif: Path, lock: Path, work: Workspace) -> dict[str, Any]:
    """Build the image, then put the SIF and its lock in place, the SIF first, once both are whole; returns the lock.

    Raises:
        UserError: a tool is missing or fails, the disk is full, or there is no network.
    """
    folder = sif.resolve().parent
    apptainer = find_apptainer(work.environ.get("PATH"))
    try:
        base = provide_base(env, recipe.base, builder, folder, work)
        squashed, part = work.path / "root.squashfs", work.path / f"{env}.sif"
        if mounts_containers(builder):
            built = build_in_place(recipe, base, work)
        else:
            built = build_and_unpack(env, recipe, base, builder, apptainer, work)
        with built as root:
            folder_to_sif(root, image_labels(recipe), apptainer, squashed, work, LZ4 if env in STARTED_OFTEN else ZSTD)
        remove_tree(work.path / "root")
        wrap(squashed, part, apptainer, work)
        packages = Packages.listed(list_packages(part, work.environ))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(folder) from None
        raise
    made_from = f"{recipe.base} ({base.origin})"
    version = apptainer_version(apptainer)
    locked = Sources.read().debian(locked_as(recipe))
    record = lock_record(env, recipe, requirements_sha256(recipe), made_from, builder, version, packages, locked)
    part.replace(sif)
    write_json(lock, record)
    return record


def main(options: Namespace) -> int:
    """Build an image."""
    recipe = read_recipe(options.recipe)
    builder = find_builder()
    environ = {**os.environ, **container_environment(os.environ)}
    find_apptainer(environ.get("PATH"))
    make_caches(environ)
    started = time.monotonic()
    with workspace(options.sif.resolve().parent, options.env, environ) as work:
        listed = build_sif(options.env, recipe, builder, options.sif, options.lock, work)["os"]
    size = options.sif.stat().st_size / 1e6
    locked = sum(each["locked"] for each in listed)
    print(
        f"{options.sif}: {size:.0f} MB in {time.monotonic() - started:.0f} s, "
        f"{locked} of Debian's {len(listed)} packages in the locked version",
        file=sys.stderr,
    )
    return 0
