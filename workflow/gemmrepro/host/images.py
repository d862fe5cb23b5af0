"""Build one container image: Dockerfile → image (docker, podman or buildah) → SIF, and the list of what is in it.

``python -m gemmrepro.host.images --env cuda13 --recipe docker/cuda13.Dockerfile --sif resources/images/cuda13.sif
--lock resources/images/cuda13.lock.json``
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmrepro.core.files import write_json
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError, run_stage
from gemmrepro.host.containers import container_environment, find_apptainer, find_builder, make_caches

PULL_SECONDS = 90
"""How long a registry may take to hand over the base image (30 MB) before it counts as unreachable."""

SUITES = {"11": "bullseye", "12": "bookworm", "13": "trixie"}
"""Debian's releases by the number in a base image's tag."""

SQUASHFS = ("-comp", "zstd", "-Xcompression-level", "1")
"""Half the size of no compression at little more than its time; gzip, the default, takes ten times as long."""

NO_SPACE = re.compile(r"no space left on device|disk quota exceeded|ENOSPC", re.IGNORECASE)

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


@dataclass(frozen=True)
class Recipe:
    """A Dockerfile as the build sees it: `base` image, `copies` from the repository, `sha256` of its text."""

    path: Path
    base: str
    copies: tuple[str, ...]
    sha256: str


def read_recipe(path: Path, root: Path = ROOT) -> Recipe:
    """Read what `images` needs from a Dockerfile.

    Raises:
        UserError: there is no such file, it names no base, or it copies a file that is not in the repository.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise UserError(f"the recipe {path} cannot be read ({error.strerror}); give an existing Dockerfile.") from None
    base = re.search(r"^ARG\s+BASE=(\S+)\s*$", text, re.MULTILINE)
    if not base or not re.search(r"^FROM\s+\$\{?BASE\}?\s*$", text, re.MULTILINE):
        raise UserError(f"{path} names no base image; write 'ARG BASE=debian:12-slim' and 'FROM ${{BASE}}' on top.")
    copies = []
    for line in re.findall(r"^COPY\s+(.+?)\s*$", text, re.MULTILINE):
        copies += [word for word in shlex.split(line)[:-1] if not word.startswith("--")]
    for copy in copies:
        if not (root / copy).is_file():
            raise UserError(f"{path} copies {copy}, which is not a file of the repository; correct the COPY line.")
    return Recipe(path, base[1], tuple(copies), hashlib.sha256(text.encode()).hexdigest())


def requirements_sha256(recipe: Recipe, root: Path = ROOT) -> str:
    """SHA-256 over the files that the recipe copies, in the recipe's order."""
    digest = hashlib.sha256()
    for copy in recipe.copies:
        digest.update((root / copy).read_bytes())
    return digest.hexdigest()


def lock_record(env: str, recipe: Recipe, requirements: str, base: str, builder: str, packages: Mapping) -> dict:
    """The lock: everything that decides what is in an image, in a stable order and without dates.

    Args:
        packages: {"os": [[name, version]…], "python": [[name, version]…]} in any order.
    """

    def listing(kind: str) -> list[dict[str, str]]:
        return [
            {"name": name, "version": version} for name, version in sorted({tuple(pair) for pair in packages[kind]})
        ]

    return {
        "env": env,
        "base": base,
        "builder": builder,
        "recipe_sha256": recipe.sha256,
        "requirements_sha256": requirements,
        "os": listing("os"),
        "python": listing("python"),
    }


def ca_bundle(environ: Mapping[str, str]) -> Path | None:
    """The host's certificate authorities, which a proxy that re-signs TLS makes the build need as well."""
    names = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    usual = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
    for candidate in [environ.get(name) for name in names] + list(usual):
        if candidate and Path(candidate).is_file():
            return Path(candidate).resolve()
    return None


def run(command: Sequence[str | Path], work: Work, *, timeout: float | None = None, quiet: bool = False) -> str:
    """Run a tool, passing its output on as it comes, and return its standard output.

    Raises:
        UserError: the tool failed; the message holds the end of what it said, or names a full disk.
        TimeoutError: it did not end within `timeout` seconds.
    """
    argv = [str(word) for word in command]
    tail: collections.deque[str] = collections.deque(maxlen=15)
    capture = tempfile.TemporaryFile("w+", dir=work.path)
    process = subprocess.Popen(
        argv,
        env=work.environ,
        stdin=subprocess.DEVNULL,
        stdout=capture if quiet else subprocess.PIPE,
        stderr=subprocess.PIPE if quiet else subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=(work.lock_fd,),
        start_new_session=True,
    )
    timed_out = False

    def expire(*_: object) -> None:
        nonlocal timed_out
        timed_out = True
        os.killpg(process.pid, signal.SIGKILL)

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, timeout or 0)
    try:
        full = False
        for line in process.stderr if quiet else process.stdout:
            tail.append(line.rstrip())
            full = full or bool(NO_SPACE.search(line))
            print(line, end="", file=sys.stderr, flush=True)
        code = process.wait()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    if timed_out:
        raise TimeoutError(f"{argv[0]} did not end within {timeout:.0f} s")
    if code:
        if full:
            raise DiskFull(work.path.parent)
        said = "\n  ".join(tail) or "nothing"
        raise UserError(f"'{shlex.join(argv[:4])} …' failed with status {code}. It said last:\n  {said}")
    capture.seek(0)
    return capture.read()


class DiskFull(UserError):
    """The one error for a full disk, whichever tool met it first."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"the disk that holds {folder} ran full; an image takes up to 5 GB there while it is built (torch: 20 GB). "
            "Free some space and run the same command again."
        )


@dataclass
class Work:
    """A build's private folder: storage, context and temporary files, gone when the build ends."""

    path: Path
    environ: dict[str, str]
    lock_fd: int


@contextlib.contextmanager
def workspace(parent: Path, name: str, environ: Mapping[str, str]) -> Iterator[Work]:
    """A `Work` folder under `parent`, removed at the end, also on a signal; those of killed builds are removed first.

    A folder is in use while a process holds the lock in it: the build, or a tool that it started and that outlived it.
    """
    parent.mkdir(parents=True, exist_ok=True)
    for stale in parent.glob(".build-*"):
        with contextlib.suppress(OSError), (stale / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(stale)
    path = Path(tempfile.mkdtemp(prefix=f".build-{name}-", dir=parent))

    def stop(number: int, _: object) -> None:
        sys.exit(128 + number)

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        with (path / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (path / "tmp").mkdir()
            # Everything that the tools write by the way goes here: their own defaults are /tmp, /var/tmp and HOME.
            own = {**environ, "TMPDIR": str(path / "tmp"), "APPTAINER_TMPDIR": str(path / "tmp")}
            yield Work(path, own, lock.fileno())
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        remove_tree(path)


def remove_tree(path: Path) -> None:
    """Remove `path` with everything below it, unmounting first what a build left mounted there."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in reversed(mounts):
        if mount.startswith(f"{path.resolve()}/"):
            subprocess.run(["umount", "--lazy", mount], capture_output=True)

    def retry(function, name, _error) -> None:
        # A folder in an image may lack write permission, which stops an ordinary user from emptying it.
        with contextlib.suppress(OSError):
            Path(name).parent.chmod(0o700)
            Path(name).chmod(0o700)
            function(name)

    if os.geteuid() and (path / "storage").exists():
        # An ordinary user's buildah leaves files of the other users in the image, which only its namespace may remove.
        subprocess.run(["buildah", "unshare", "rm", "-rf", path / "storage"], capture_output=True)
    shutil.rmtree(path, onerror=retry)


def apt_options() -> list[str]:
    """The host's own apt settings for fetching (proxies, date checks), to fetch a base in the same way."""
    if not shutil.which("apt-config"):
        return []
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True).stdout
    wanted = re.compile(r"^(Acquire::(https?::|Check-|Retries).*)$", re.MULTILINE)
    return [f"--aptopt={option}" for option in wanted.findall(dump)]


def base_tar(base: str, folder: Path) -> Path | None:
    """Where the locally made stand-in for the image `base` lies or would lie; None if `base` is no Debian release."""
    release = re.fullmatch(r"(?:.*/)?debian:(\d+)(?:[.-].*)?", base)
    return folder / f".base-{SUITES[release[1]]}.tar" if release and release[1] in SUITES else None


def make_base(base: str, folder: Path, work: Work) -> Path:
    """A minimal Debian as a tar file, made once and shared between images, for where no registry answers.

    Raises:
        UserError: `base` is not a Debian release, or mmdebstrap is missing or fails.
    """
    tar = base_tar(base, folder)
    if tar is None:
        raise UserError(
            f"no registry gave the base image {base}, and only Debian {', '.join(SUITES)} can be made here instead. "
            "Make an image registry reachable."
        )
    suite = tar.stem.removeprefix(".base-")
    with (folder / f".base-{suite}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # images that build at the same time make it once
        if tar.exists():
            return tar
        if not shutil.which("mmdebstrap"):
            raise UserError(
                f"no registry gave the base image {base}, and mmdebstrap, which can make one, is not installed. "
                "Install mmdebstrap, or make an image registry reachable."
            )
        print(f"No registry gave {base}: making it with mmdebstrap.", file=sys.stderr, flush=True)
        # What the -slim images leave out, here and in what is installed later.
        slim = [f"--dpkgopt=path-exclude=/usr/share/{path}/*" for path in ("doc", "man", "info", "locale")]
        slim.append("--dpkgopt=path-include=/usr/share/doc/*/copyright")
        slim.append('--aptopt=Acquire::Languages "none"')
        part = work.path / "base.tar"
        # An ordinary user's mmdebstrap works as another user, who may not pass through HOME: let it use /tmp.
        environ = {name: value for name, value in work.environ.items() if name != "TMPDIR"}
        run(
            ["mmdebstrap", "--quiet", "--variant=minbase", *slim, *apt_options(), suite, part],
            dataclasses.replace(work, environ=environ),
        )
        part.replace(tar)
        return tar


def builder_command(builder: str, work: Work) -> list[str]:
    """The builder with its global options. Only buildah's storage can be in the work folder."""
    if builder != "buildah":
        return [builder]
    # "chroot" asks for no namespaces, which restricted machines withhold, and for no runtime such as runc.
    work.environ.setdefault("BUILDAH_ISOLATION", "chroot")
    kernel = Path("/proc/filesystems").read_text().split()
    work.environ.setdefault("STORAGE_DRIVER", "overlay" if "overlay" in kernel else "vfs")
    return [builder, "--root", str(work.path / "storage"), "--runroot", str(work.path / "run")]


def provide_base(recipe: Recipe, builder: str, folder: Path, work: Work) -> tuple[str, str]:
    """Put the recipe's base image into the builder's storage. Returns its name there and where it came from."""
    command = builder_command(builder, work)
    made = base_tar(recipe.base, folder)
    if made is None or not made.exists():
        if (
            builder == "docker"
            and not subprocess.run(["docker", "image", "inspect", recipe.base], capture_output=True).returncode
        ):
            return recipe.base, "registry"
        # "docker://" spells the default registry without naming it; docker itself knows only the bare name.
        source = recipe.base if builder == "docker" else f"docker://{recipe.base}"
        try:
            pulled = run([*command, "pull", "--quiet", source], work, timeout=PULL_SECONDS, quiet=True).strip()
            return (recipe.base if builder == "docker" else pulled.splitlines()[-1]), "registry"
        except DiskFull:
            raise
        except (UserError, TimeoutError):
            made = make_base(recipe.base, folder, work)
    name = f"localhost/gemmrepro-{recipe.base.rpartition('/')[2]}"
    if builder == "buildah":
        container = run([*command, "from", "scratch"], work, quiet=True).strip()
        run([*command, "add", "--quiet", container, made, "/"], work, quiet=True)
        run([*command, "commit", "--quiet", "--rm", container, name], work, quiet=True)
    else:
        run([*command, "import", made, name], work, quiet=True)
    return name, "mmdebstrap"


def build_image(env: str, recipe: Recipe, base: str, builder: str, work: Work) -> str:
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
    command = [*builder_command(builder, work), "build", *options, "-t", tag, "-f", recipe.path.resolve(), context]
    run(command, work)
    return tag


def environment_script(variables: Sequence[str]) -> str:
    """A shell script that sets an image's variables (NAME=value) as Apptainer does for images it converts itself."""
    lines = ["#!/bin/sh"]
    for name, _, value in (variable.partition("=") for variable in variables):
        quoted = '"' + re.sub(r'(["\\`$])', r"\\\1", value) + '"'
        lines.append(f"export {name}={quoted}" if name == "PATH" else f'export {name}="${{{name}:-{quoted}}}"')
    return "\n".join(lines) + "\n"


def image_to_sif(image: str, builder: str, sif: Path, work: Work) -> None:
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


def folder_to_sif(folder: Path, variables: Sequence[str], apptainer: str, sif: Path, work: Work) -> None:
    """Turn an image's mounted root into `sif` in place: a third of the time and disk of going through an archive.

    Args:
        variables: the image's environment, NAME=value, which its folder does not hold.
    """
    mksquashfs = shutil.which("mksquashfs", path=work.environ.get("PATH"))
    if mksquashfs is None:
        raise UserError("mksquashfs is not on PATH; install squashfs-tools, or start the command through envs/run.")
    # The scripts that Apptainer starts containers with, as this version of it writes them: those of an empty image.
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


def list_packages(sif: Path, work: Work) -> dict[str, list[list[str]]]:
    """The packages inside `sif`; that it runs at all is a test of the image."""
    apptainer = find_apptainer(work.environ.get("PATH"))
    command = [apptainer, "exec", "--cleanenv", "--no-home", "--pwd", "/", sif, "python3", "-c", LIST_PACKAGES]
    return json.loads(run(command, work, quiet=True))


def main(argv: Sequence[str] | None = None) -> int:
    """Build the image, then put the SIF and its lock in place, the SIF first."""
    parser = argparse.ArgumentParser(prog="gemmrepro.images", description=__doc__)
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
    folder = args.sif.resolve().parent
    started = time.monotonic()
    with workspace(folder, args.env, environ) as work:
        try:
            base, origin = provide_base(recipe, builder, folder, work)
            image = build_image(args.env, recipe, base, builder, work)
            try:
                part = work.path / f"{args.env}.sif"
                image_to_sif(image, builder, part, work)
            finally:
                if builder != "buildah":  # its storage is the user's own, and the image is of no further use there
                    subprocess.run([builder, "image", "rm", image], capture_output=True)
            packages = list_packages(part, work)
        except OSError as error:
            if error.errno == 28:
                raise DiskFull(folder) from None
            raise
        requirements = requirements_sha256(recipe)
        part.replace(args.sif)
        write_json(
            args.lock, lock_record(args.env, recipe, requirements, f"{recipe.base} ({origin})", builder, packages)
        )
    size = args.sif.stat().st_size / 1e6
    print(f"{args.sif}: {size:.0f} MB in {time.monotonic() - started:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    run_stage(main)
