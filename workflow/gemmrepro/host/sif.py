"""An image's root file system, built in place or unpacked, cleaned, and packed as a SIF, Apptainer's format."""

import contextlib
import errno
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmrepro import __version__
from gemmrepro.core.files import write_json
from gemmrepro.core.machine import git_commit
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.host.builders import (
    EPOCH,
    Base,
    DiskFull,
    Workspace,
    builder_command,
    find_builder,
    limit_options,
    mounts_containers,
    provide_base,
    remove_tree,
    run,
    workspace,
)
from gemmrepro.host.containers import apptainer_version, container_environment, find_apptainer, fuse_hint, make_caches
from gemmrepro.host.inventory import Entry
from gemmrepro.host.recipes import SNAPSHOT, Recipe, Sources, locked_as, read_recipe, requirements_sha256

EMPTIED = (
    *("run", "tmp", "var/tmp", "var/log", "var/cache/apt", "var/cache/debconf", "var/cache/ldconfig"),
    *("var/lib/apt/lists", "root"),
)
"""Folders whose content is of no use in an image: logs, caches, package lists, what tools leave in HOME."""

OF_THE_HOST = ("etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/machine-id")
"""Files that describe a host. They are there, empty: Apptainer mounts its own over some of them."""

REMOVED = (
    *("etc/apt/apt.conf.d/99mmdebstrap", "var/lib/systemd/random-seed", ".dockerenv"),
    *("etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-"),
    *("var/lib/dpkg/status-old", "var/lib/dpkg/available-old"),
)
"""Files that hold the host's apt settings, or are copies that tools keep of what they change."""


def clean(folder: Path, started: float) -> None:
    """Empty logs and caches in an image, blank what names the host, and give what the build wrote one time, `EPOCH`.
    Files older than the build (`started`, s since 1970) keep their times, which Python's compiled modules refer to."""
    for name in EMPTIED:
        for entry in (folder / name).glob("*"):
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    for name in OF_THE_HOST:
        path = folder / name
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        path.touch(0o644)
    for name in REMOVED:
        (folder / name).unlink(missing_ok=True)
    for parent, folders, files in os.walk(folder, topdown=False):
        for name in (*folders, *files, "."):
            path = Path(parent, name)
            if path.lstat().st_mtime >= started:
                os.utime(path, (EPOCH, EPOCH), follow_symlinks=False)


CA_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
CA_FILES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH of a recipe's steps until it sets one."""

PROXIES = ("http_proxy", "https_proxy", "no_proxy")

CA_SECRET = re.compile(r"^--mount=type=secret,id=ca_bundle,target=(\S+)\s+")
"""Option by which a recipe's RUN asks for the host's CA bundle."""


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
    """A root file system, and the image's environment, which its folder does not hold."""

    folder: Path
    variables: Mapping[str, str]


@contextlib.contextmanager
def build_in_place(recipe: Recipe, base: Base, work: Workspace) -> Iterator[RootFs]:
    """Follow the recipe in a container of buildah's whose root is mounted, as root, until the block is left."""
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
    bundle, told = ca_bundle(work.environ), build_arguments(work.environ)
    arguments, variables = told | {"PATH": PATH}, dict[str, str]()
    for keyword, rest in recipe.instructions:
        if keyword == "COPY":
            *sources, target = (word for word in shlex.split(rest) if not word.startswith("--"))
            for source in sources:
                place = folder / target.lstrip("/")
                place = place / Path(source).name if target.endswith("/") else place
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / source, place)
        elif keyword == "RUN":
            secret = CA_SECRET.match(rest)
            volumes = [f"--volume={bundle}:{secret[1]}:ro"] if secret and bundle else []
            given = [f"--env={name}={value}" for name, value in (arguments | variables).items() if name != "BASE"]
            shell = ["/bin/sh", "-c", rest[secret.end() :] if secret else rest]
            run([*buildah_run, *volumes, *given, container, "--", *shell], work)
        elif keyword in ("ARG", "ENV"):
            values = dict(word.partition("=")[::2] for word in shlex.split(rest))
            variables |= values if keyword == "ENV" else {}
            arguments |= {name: told.get(name, value) for name, value in values.items()} if keyword == "ARG" else {}
    return variables


@contextlib.contextmanager
def build_and_unpack(
    env: str, recipe: Recipe, base: Base, builder: str, apptainer: str, work: Workspace
) -> Iterator[RootFs]:
    """Have the builder build the recipe, and unpack what comes out. Image and temporary base leave its storage then."""
    command = builder_command(builder, work)
    tag = f"localhost/gemmrepro-{env}"
    archive, folder = work.path / "image.tar", work.path / "root"
    options = [*_build_options(recipe, base, builder, work), "-t", tag]
    save = ["save", "--output", str(archive), tag]
    if builder == "buildah":
        save = ["push", "--quiet", tag, f"docker-archive:{archive}"]
    try:
        context = work.path / "context"  # with only what the recipe copies: the repository holds gigabytes of results
        for copy in recipe.copies:
            (context / copy).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / copy, context / copy)
        run([*command, "build", *options, context], work)
        run([*command, *save], work, quiet=True)
    finally:
        if builder == "docker":
            ours = [tag, *([base.name] if base.temporary else [])]
            subprocess.run([*command, "image", "rm", *ours], capture_output=True)
    run([apptainer, "build", "--sandbox", folder, f"docker-archive:{archive}"], work)
    archive.unlink()
    if builder != "docker":
        run([*command, "rmi", "--all", "--force"], work, quiet=True)
    yield RootFs(folder, recipe.values("ENV"))


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


ZSTD = ("-comp", "zstd", "-Xcompression-level", "1")
"""Half the size of no compression at little more than its time; gzip, the default, takes ten times as long."""

LZ4 = ("-comp", "lz4")
"""A third larger than `ZSTD`; Python with pandas starts in 1.3 s, not 1.6 s. For the image in which most jobs start."""

INVENTORY = Path(__file__).with_name("inventory.py")


def folder_to_sif(
    root: RootFs,
    labels: Mapping[str, str],
    apptainer: str,
    squashed: Path,
    work: Workspace,
    compression: Sequence[str] = ZSTD,
) -> None:
    """Pack a root file system into the file system of a SIF, `squashed`, with Apptainer's start-up scripts.
    `compression`: options of mksquashfs. Raises UserError where that is missing, or a tool fails."""
    mksquashfs = shutil.which("mksquashfs", path=work.environ.get("PATH"))
    if mksquashfs is None:
        raise UserError("mksquashfs is not on PATH; install squashfs-tools, or start the command through envs/run.")
    own = root.folder / ".singularity.d"
    if not own.exists():
        # Apptainer's start-up scripts, as this version writes them: those of an empty image.
        empty, skeleton, source = (work.path / name for name in ("empty", "skeleton", "empty.def"))
        empty.mkdir()
        # Apptainer gives the sandbox an /etc/hosts and fills it from the host's, which the barest hosts lack, unless
        # that of the sandbox is gone by then.
        source.write_text(f'Bootstrap: localimage\nFrom: {empty}\n\n%setup\nrm "$APPTAINER_ROOTFS/etc/hosts"\n')
        run([apptainer, "build", "--sandbox", skeleton, empty if Path("/etc/hosts").exists() else source], work)
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


def list_packages(sif: Path, environ: Mapping[str, str]) -> dict[str, list[Entry]]:
    """The packages inside `sif`, Debian's (`os`) and Python's. Raises UserError if the image does not work."""
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
    Raises UserError if Apptainer does not recognize the file as an image, or it is cut short."""
    command = [find_apptainer(environ.get("PATH")), "sif", "list", str(sif)]
    listing = subprocess.run(command, env=dict(environ), capture_output=True, text=True).stdout
    found = re.search(r"\|(\d+)-(\d+) *\|FS \(Squashfs/\*System/", listing)
    if found is None:
        raise UserError(f"{sif} is no image that Apptainer can read; remove it, and the next run builds it again.")
    start, end = map(int, found.groups())
    if sif.stat().st_size < end:
        raise UserError(f"{sif} is cut short; remove it, and the next run builds it again.")
    digest = hashlib.sha256()
    with sif.open("rb") as file:
        file.seek(start)
        while chunk := file.read(min(end - file.tell(), 1 << 20)):
            digest.update(chunk)
    return digest.hexdigest()


def image_labels(recipe: Recipe) -> dict[str, str]:
    """The image's labels, by OCI's names. The time of the build is none of them: it would make each build differ."""
    named = {"version": __version__, "revision": git_commit() or "", "base.name": recipe.base}
    own = {f"org.opencontainers.image.{name}": value for name, value in named.items() if value}
    return recipe.values("LABEL") | own


def build_sif(env: str, recipe: Recipe, builder: str, sif: Path, lock: Path, work: Workspace) -> dict[str, Any]:
    """Build the image, then put the SIF and its lock in place, the SIF first, once both are whole.
    Returns the lock: all that decides what is in an image, without dates, and whether each package of Debian's is in
    the locked version. Raises UserError if a tool is missing or fails, the disk is full, or there is no network."""
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
            folder_to_sif(root, image_labels(recipe), apptainer, squashed, work, LZ4 if env == "report" else ZSTD)
        remove_tree(work.path / "root")
        wrap(squashed, part, apptainer, work)
        inside = list_packages(part, work.environ)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(folder) from None
        raise
    packages = {
        kind: [
            {"name": name, "version": version}
            for name, version in sorted({(package["name"], package["version"]) for package in inside[kind]})
        ]
        for kind in ("os", "python")
    }
    locked = Sources.read().debian(locked_as(recipe))
    record = {
        "env": env,
        "base": f"{recipe.base} ({base.origin})",
        "builder": builder,
        "apptainer": apptainer_version(apptainer),
        "recipe_sha256": recipe.sha256,
        "requirements_sha256": requirements_sha256(recipe),
        "os": [each | {"locked": locked.get(each["name"]) == each["version"]} for each in packages["os"]],
        "python": packages["python"],
    }
    part.replace(sif)
    write_json(lock, record)
    return record


def image_step(options: Namespace) -> int:
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
