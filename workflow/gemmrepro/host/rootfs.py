"""An image's root file system as a folder: built there in place where the builder allows, or unpacked from its storage.

In place saves two copies of the image, which take as long as installing the packages and twice their disk.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gemmrepro.core.paths import ROOT
from gemmrepro.host.bases import Base
from gemmrepro.host.builders import builder_command, limit_options
from gemmrepro.host.recipes import Recipe
from gemmrepro.host.sources import SNAPSHOT
from gemmrepro.host.workspace import Workspace, remove_tree, run

CA_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
CA_FILES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH of a recipe's steps until it sets one."""

PROXIES = ("http_proxy", "https_proxy", "no_proxy")

CA_SECRET = re.compile(r"^--mount=type=secret,id=ca_bundle,target=(\S+)\s+")
"""How a recipe's RUN asks for the host's CA bundle."""


def ca_bundle(environ: Mapping[str, str]) -> Path | None:
    """The host's CA bundle, which the build needs behind a proxy that re-signs TLS; None without one."""
    for candidate in (*(environ.get(name) for name in CA_VARIABLES), *CA_FILES):
        if candidate and Path(candidate).is_file():
            return Path(candidate).resolve()
    return None


def build_arguments(environ: Mapping[str, str]) -> dict[str, str]:
    """The host's proxies and a snapshot of Debian, for the build alone."""
    values = {name: environ.get(name) or environ.get(name.upper()) for name in (*PROXIES, SNAPSHOT)}
    return {name: value for name, value in values.items() if value}


@dataclass(frozen=True)
class RootFs:
    """A root file system: its folder, and the image's environment, which the folder does not hold."""

    folder: Path
    variables: Mapping[str, str]


@contextlib.contextmanager
def build_in_place(recipe: Recipe, base: Base, work: Workspace) -> Iterator[RootFs]:
    """Follow the recipe in a container of buildah's whose root is mounted, as root.

    The folder exists until the block is left.

    Raises:
        UserError: a step fails.
    """
    command = builder_command("buildah", work)
    start = base.name or "scratch"
    container = run([*command, "from", "--pull=false", *limit_options("buildah"), start], work, quiet=True).strip()
    folder = Path(run([*command, "mount", container], work, quiet=True).strip())
    try:
        if base.tar:
            run(["tar", "--extract", "--numeric-owner", "--xattrs", "--file", base.tar, "--directory", folder], work)
        yield RootFs(folder, _follow(recipe, [*command, "run"], container, folder, work))
    finally:
        remove_tree(work.path / "storage")  # buildah would wait for the disk


def _follow(recipe: Recipe, buildah_run: list[str], container: str, folder: Path, work: Workspace) -> dict[str, str]:
    """Follow a recipe's instructions; returns the image's environment."""
    bundle = ca_bundle(work.environ)
    told = build_arguments(work.environ)
    arguments, variables = told | {"PATH": PATH}, dict[str, str]()
    for step in recipe.instructions:
        values = dict(word.partition("=")[::2] for word in shlex.split(step.rest)) if step.keyword != "RUN" else {}
        if step.keyword == "ARG":
            arguments |= values | {name: told[name] for name in values if name in told}
        elif step.keyword == "ENV":
            variables |= values
        elif step.keyword == "COPY":
            *sources, target = (word for word in shlex.split(step.rest) if not word.startswith("--"))
            for source in sources:
                place = folder / target.lstrip("/")
                place = place / Path(source).name if target.endswith("/") else place
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / source, place)
        elif step.keyword == "RUN":
            secret = CA_SECRET.match(step.rest)
            volumes = [f"--volume={bundle}:{secret[1]}:ro"] if secret and bundle else []
            given = [f"--env={name}={value}" for name, value in (arguments | variables).items() if name != "BASE"]
            shell = ["/bin/sh", "-c", step.rest[secret.end() :] if secret else step.rest]
            run([*buildah_run, *volumes, *given, container, "--", *shell], work)
    return variables


@contextlib.contextmanager
def build_and_unpack(
    env: str, recipe: Recipe, base: Base, builder: str, apptainer: str, work: Workspace
) -> Iterator[RootFs]:
    """Have the builder build the recipe into its storage, and unpack what comes out.

    The image is gone from the builder's storage afterwards, and so is a base image that was not there before.

    Raises:
        UserError: a step fails.
    """
    command = builder_command(builder, work)
    tag = f"localhost/gemmrepro-{env}"
    archive, folder = work.path / "image.tar", work.path / "root"
    options = [*_build_options(recipe, base, builder, work), "-t", tag]
    save = ["save", "--output", str(archive), tag]
    if builder == "buildah":
        save = ["push", "--quiet", tag, f"docker-archive:{archive}"]
    try:
        run([*command, "build", *options, _context(recipe, work)], work)
        run([*command, *save], work, quiet=True)
    finally:
        if builder == "docker":
            ours = [tag, *([base.name] if base.temporary else [])]
            subprocess.run([*command, "image", "rm", *ours], capture_output=True)
    run([apptainer, "build", "--sandbox", folder, f"docker-archive:{archive}"], work)
    archive.unlink()
    if builder != "docker":
        run([*command, "rmi", "--all", "--force"], work, quiet=True)
    variables = [step.rest for step in recipe.instructions if step.keyword == "ENV"]
    yield RootFs(folder, dict(word.partition("=")[::2] for rest in variables for word in shlex.split(rest)))


def _context(recipe: Recipe, work: Workspace) -> Path:
    """A folder with only what the recipe copies: the repository holds gigabytes of results."""
    context = work.path / "context"
    context.mkdir()
    for copy in recipe.copies:
        (context / copy).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / copy, context / copy)
    return context


def _build_options(recipe: Recipe, base: Base, builder: str, work: Workspace) -> list[str]:
    options = ["--file", str(recipe.path.resolve()), "--build-arg", f"BASE={base.name}", *limit_options(builder)]
    for name, value in build_arguments(work.environ).items():
        options += ["--build-arg", f"{name}={value}"]
    bundle = ca_bundle(work.environ)
    if bundle:
        options += ["--secret", f"id=ca_bundle,src={bundle}"]
    if builder == "docker":
        work.environ["DOCKER_BUILDKIT"] = "1"
        return [*options, "--network=host"]  # as the others build: a proxy on this machine is in reach
    return [*options, "--pull=false", "--layers=false"]
