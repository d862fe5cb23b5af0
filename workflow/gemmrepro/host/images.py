"""Build one container image: Dockerfile → image (docker, podman or buildah) → SIF, and the list of what is in it.

``python -m gemmrepro.host.images --env cuda13 --recipe docker/cuda13.Dockerfile --sif resources/images/cuda13.sif
--lock resources/images/cuda13.lock.json``
"""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from gemmrepro.core.files import write_json
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import run_stage
from gemmrepro.host.bases import provide_base
from gemmrepro.host.builders import builder_command, find_builder
from gemmrepro.host.containers import container_environment, find_apptainer, make_caches
from gemmrepro.host.recipes import Recipe, lock_record, read_recipe, requirements_sha256
from gemmrepro.host.sif import image_to_sif, list_packages
from gemmrepro.host.workspace import DiskFull, Workspace, run, workspace

CA_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
CA_FILES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")


def ca_bundle(environ: Mapping[str, str]) -> Path | None:
    """The host's CA bundle, which the build needs behind a proxy that re-signs TLS; None without one."""
    for candidate in (*(environ.get(name) for name in CA_VARIABLES), *CA_FILES):
        if candidate and Path(candidate).is_file():
            return Path(candidate).resolve()
    return None


def build_image(env: str, recipe: Recipe, base: str, builder: str, work: Workspace) -> str:
    """Build the recipe on `base`. Returns the image's name in the builder's storage."""
    context = work.path / "context"  # only what the recipe copies: the repository holds gigabytes of results
    for copy in recipe.copies:
        (context / copy).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / copy, context / copy)
    context.mkdir(exist_ok=True)
    tag = f"localhost/gemmrepro-{env}"
    options = ["--build-arg", f"BASE={base}"]
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        value = work.environ.get(name) or work.environ.get(name.upper())
        options += ["--build-arg", f"{name}={value}"] if value else []
    bundle = ca_bundle(work.environ)
    if bundle:
        options += ["--secret", f"id=ca_bundle,src={bundle}"]
    if builder == "docker":
        work.environ["DOCKER_BUILDKIT"] = "1"
    else:
        options += ["--pull=never" if builder == "buildah" else "--pull=false", "--layers=false"]
    command = [*builder_command(builder, work), "build", *options, "-t", tag, "-f"]
    run([*command, recipe.path.resolve(), context], work)
    return tag


def build_sif(env: str, recipe: Recipe, builder: str, sif: Path, lock: Path, work: Workspace) -> None:
    """Build the image, then put the SIF and its lock in place, the SIF first, once both are whole.

    Raises:
        UserError: a tool is missing or fails, or the disk is full.
    """
    folder = sif.resolve().parent
    try:
        base = provide_base(recipe.base, builder, folder, work)
        image = build_image(env, recipe, base.name, builder, work)
        try:
            part = work.path / f"{env}.sif"
            image_to_sif(image, builder, part, work)
        finally:
            if builder != "buildah":  # its storage is the user's own, and the image is of no further use there
                subprocess.run([builder, "image", "rm", image], capture_output=True)
        packages = list_packages(part, work)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(folder) from None
        raise
    record = lock_record(env, recipe, requirements_sha256(recipe), f"{recipe.base} ({base.origin})", builder, packages)
    part.replace(sif)
    write_json(lock, record)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gemmrepro.host.images", description=__doc__)
    parser.add_argument("--env", required=True, help="the image's name, such as cuda13")
    parser.add_argument("--recipe", required=True, type=Path, help="its Dockerfile")
    parser.add_argument("--sif", required=True, type=Path, help="the image file to write")
    parser.add_argument("--lock", required=True, type=Path, help="the list of its packages to write")
    args = parser.parse_args(argv)

    recipe = read_recipe(args.recipe)
    builder = find_builder()
    environ = {**os.environ, **container_environment(os.environ)}
    find_apptainer(environ.get("PATH"))
    make_caches(environ)
    started = time.monotonic()
    with workspace(args.sif.resolve().parent, args.env, environ) as work:
        build_sif(args.env, recipe, builder, args.sif, args.lock, work)
    size = args.sif.stat().st_size / 1e6
    print(f"{args.sif}: {size:.0f} MB in {time.monotonic() - started:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    run_stage(main)
