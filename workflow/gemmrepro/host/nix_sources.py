"""Sources of images, for Nix and Dockerfiles: Debian's and PyPI's files by hash, in ``nix/sources.json``.

``python -m gemmrepro lock-sources`` writes it from the Dockerfiles and ``envs/requirements``; ``fetch FOLDER``
downloads and checks the files, for Nix. Both use this host's apt and pip, so no mirror's address is written down.
``docker/apt-locked`` installs the same versions of Debian's packages in a Dockerfile's image.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

from gemmrepro.core.files import write_json
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.host.recipes import RELOCK, SNAPSHOT, Environment, Sources, debian_packages, packages_apart, read_recipe

SUITE = "bookworm"
SUITES = {"torchcpu": "trixie", "apptainer": "trixie"}
"""The release of Debian of environments, 12 unless they are named here (13)."""

APART = {"cuda12": "trixie non-free", "apptainer": "sid main"}
"""Where an environment's packages of another release come from. Unstable gives Apptainer alone: no release has it."""

IMAGES = ("cuda12", "cuda13", "measure", "report", "torch", "torchcpu")

LOCKS = ("cuda12", "cuda13", "measure", "report", "torch", "host")

BASE = ("?essential", "?priority(required)", "apt")
"""apt patterns of what a minimal Debian contains, as mmdebstrap's variant minbase does."""

PACKAGES = {
    "host": (*BASE, "g++", "git", "python3", "python3-venv", "bash-static", "procps"),
    "tools": (
        *(*BASE, "squashfs-tools", "patchelf", "python3-minimal", "libpython3-stdlib"),
        *("coreutils", "tar", "xz-utils", "zstd"),
    ),
    "apptainer": tuple("squashfs-tools squashfuse fuse-overlayfs fuse2fs gocryptfs libseccomp2 libsqlite3-0".split()),
}
"""Debian's packages of environments without a Dockerfile: for workflow and tests, packing images, containers."""

SEED = "busybox-static"
"""The Debian package with the one program that must exist before anything can be unpacked."""


def nar(name: str, data: bytes) -> bytes:
    """A folder with one executable file, in Nix's archive format.
    Source: E. Dolstra, The Purely Functional Software Deployment Model, 2006, figure 5.2."""
    file = (b"(", b"type", b"regular", b"executable", b"", b"contents", data, b")")
    entry = (b"entry", b"(", b"name", name.encode(), b"node", *file, b")")
    words = (b"nix-archive-1", b"(", b"type", b"directory", *entry, b")")
    return b"".join(len(word).to_bytes(8, "little") + word + bytes(-len(word) % 8) for word in words)


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def run(command: Sequence[str | Path], remedy: str, folder: Path | None = None) -> str:
    """Standard output of `command`. Raises UserError with the last line of what it said, and `remedy`."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise UserError(f"{command[0]} is not installed; {remedy}.") from None
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).strip().splitlines() if not line.startswith("W:")]
        raise UserError(f"{command[0]} failed: {said[-1] if said else 'no reason given'}; {remedy}.")
    return done.stdout


class Apt:
    """apt over the mirrors that this host uses, for one release of Debian, as if nothing were installed.
    `suites`: lines of a source list without type and mirror, such as ``bookworm main``; `snapshot`: the address of a
    snapshot of Debian to fetch from as well."""

    REMEDY = "the flake's files come from Debian by apt: check apt-get update, or run this on Debian or Ubuntu"

    def __init__(self, folder: Path, suites: Sequence[str], snapshot: str = "") -> None:
        self.folder = folder
        targets = run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"], self.REMEDY)
        mirrors = [line for line in targets.splitlines() if re.search(r"/debian(-security)?/?$", line)]
        main = next((mirror for mirror in mirrors if "security" not in mirror), None)
        if main is None:
            raise UserError(f"apt has no mirror of Debian; {self.REMEDY}.")
        security = next((mirror for mirror in mirrors if "security" in mirror), None)
        lines = [f"deb {security if 'security' in suite else main} {suite}" for suite in suites]
        if snapshot:  # its lists are out of date by their own word
            updates = re.sub(r"/debian(?=/|$)", "/debian-security", snapshot)
            told = [f"{updates if 'security' in suite else snapshot} {suite}" for suite in suites]
            lines += [f"deb [check-valid-until=no] {line}" for line in told]
        for name in ("lists/partial", "archives/partial", "none/partial"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        (folder / "sources.list").write_text("\n".join(line for line in lines if "None" not in line) + "\n")
        places = {"State::status": "status", "State::lists": "lists", "Cache::archives": "archives"}
        places["Etc::SourceList"] = "sources.list"
        self.options = [f"-oDir::{setting}={folder / name}" for setting, name in places.items()]
        self.options += ["-oDir::Etc::SourceParts=-", "-oDir::Cache::pkgcache=", "-oDir::Cache::srcpkgcache="]
        self.options += ["-oAPT::Install-Recommends=0", "-oAPT::Sandbox::User=root", "-oAcquire::Languages=none"]
        self("update")

    def __call__(self, *words: str, folder: Path | None = None, remedy: str = "") -> str:
        return run(["apt-get", "-qq", *self.options, *words], remedy or self.REMEDY, folder)

    def closure(self, packages: Iterable[str]) -> tuple[str, ...]:
        """Downloads packages with everything they need; the names of the files in `archives`."""
        wanted = [*packages]
        anew = f"-oDir::Cache::archives={self.folder / 'none'}"  # apt leaves out what it has
        printed = self(anew, "install", "--print-uris", *wanted)
        names = [line.split()[1] for line in printed.splitlines() if "'" in line]
        self("install", "--download-only", "--yes", *wanted)
        return tuple(sorted(names))

    def download(self, files: Iterable[str], folder: Path) -> None:
        """Downloads packages in exactly the locked versions. Raises UserError if the mirror no longer has one."""
        wanted = ["=".join(unquote(file).split("_")[:2]) for file in files]
        gone = f"if Debian has replaced a version since, set {SNAPSHOT}, or lock those of today: {RELOCK}"
        if wanted:
            self("download", *wanted, folder=folder, remedy=gone)


def release(suite: str) -> list[str]:
    return [f"{suite} main", f"{suite}-updates main", f"{suite}-security main"]


def lock(folder: Path) -> Sources:
    """Resolves and downloads everything into `folder`. Raises UserError if Python is not 3.11, or apt or pip fails."""
    if sys.version_info[:2] != (3, 11):
        raise UserError("pip chooses files for the Python that runs it, and the images have 3.11; use Python 3.11.")
    apts = {suite: Apt(folder / "apt" / suite, release(suite)) for suite in (SUITE, "trixie")}
    apptainer = read_apptainer()
    environments, hashes = {}, dict(apptainer)
    for env in (*IMAGES, *PACKAGES):
        wanted, purged, apart = PACKAGES.get(env, ()), set[str](), apptainer if env == "apptainer" else {}
        if env in IMAGES:
            recipe = read_recipe(ROOT / f"docker/{env}.Dockerfile")
            wanted, purged = (*BASE, *debian_packages(recipe)), purged_packages(recipe.path)
            apart = read_apart(recipe.path)
        suite = SUITES.get(env, SUITE)
        debs = [name for name in apts[suite].closure(wanted) if name.split("_")[0] not in purged]
        python = download_locked(env, folder) if env in LOCKS else {}
        environments[env] = Environment(tuple(debs), tuple(sorted(python)), tuple(apart))
        hashes |= apart | python | {name: file_sha256(folder / "apt" / suite / "archives" / name) for name in debs}
    [seed] = [name for name in apts[SUITE].closure([SEED]) if name.startswith(f"{SEED}_")]
    deb = folder / "apt" / SUITE / "archives" / seed
    hashes[seed] = file_sha256(deb)
    archive = hashlib.sha256(seed_archive(deb, folder)).hexdigest()
    today = datetime.now(UTC).date().isoformat()
    return Sources(today, seed, archive, environments, dict(sorted(hashes.items())))


def read_apart(recipe: Path) -> dict[str, str]:
    """The packages that a Dockerfile takes from another release: SHA-256 by file name."""
    apart = packages_apart(recipe.read_text())
    return {f"{name}_{version}_amd64.deb": sha256 for (name, version), sha256 in apart.items()}


def purged_packages(recipe: Path) -> set[str]:
    """The packages that a Dockerfile takes away again."""
    found = re.findall(r"dpkg --force-depends --purge ([^&;\n]+)", recipe.read_text())
    return {word for words in found for word in words.split()}


def read_apptainer() -> dict[str, str]:
    """Apptainer's package, in the version that `envs/run` installs: SHA-256 by file name."""
    pinned = (ROOT / "envs/requirements/apptainer.txt").read_text()
    version, sha256 = re.findall(r"^apptainer (\S+) (\S+)$", pinned, re.MULTILINE)[0]
    return {f"apptainer_{version}_amd64.deb": sha256}


def download_locked(env: str, folder: Path) -> dict[str, str]:
    """pip's choice among the files that a lock of Python packages allows: SHA-256 by file name."""
    requirements = ROOT / f"envs/requirements/{env}.txt"
    _pip(requirements, folder / env, f"pip could not download what {requirements} locks; try again")
    return {path.name: file_sha256(path) for path in (folder / env).iterdir()}


def _pip(requirements: Path, folder: Path, remedy: str, options: Sequence[str] = ()) -> None:
    """Downloads into `folder` exactly what a file for pip lists with hashes."""
    common = ["--quiet", "--no-deps", "--require-hashes", "--disable-pip-version-check", f"--dest={folder}"]
    run([sys.executable, "-m", "pip", "download", *common, *options, "-r", requirements], remedy)


def seed_archive(deb: Path, work: Path) -> bytes:
    """The seed's package as a folder with the program alone, in Nix's archive format."""
    run(["dpkg-deb", "--extract", deb, work / "seed"], "install dpkg")
    return nar("busybox", (work / "seed" / "bin" / "busybox").read_bytes())


def fetch(sources: Sources, wanted: Sequence[str], folder: Path) -> None:
    """Downloads into `folder` what is not there yet of the environments `wanted`, and `busybox.nar`.
    Raises UserError if an environment is unknown, a mirror lacks a file, or a file's hash is not the locked one."""
    if unknown := set(wanted) - set(sources.environments):
        raise UserError(
            f"there is no environment {', '.join(sorted(unknown))}; known: {', '.join(sources.environments)}."
        )

    def missing(names: Iterable[str]) -> list[str]:
        return sorted(name for name in set(names) if not (folder / name).is_file())

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gemmrepro-nix-") as work, ThreadPoolExecutor(6) as pool:
        part = Path(work) / "files"
        part.mkdir()
        debs: dict[tuple[str, ...], list[str]] = {tuple(release(SUITE)): [sources.seed]}
        python: dict[str, str] = {}  # two environments may hold two versions of a package, which pip does not mix
        for env in wanted:
            debs.setdefault(tuple(release(SUITES.get(env, SUITE))), []).extend(sources.environments[env].debs)
            if env in APART:
                debs.setdefault((APART[env],), []).extend(sources.environments[env].apart)
            python |= {name: env for name in sources.environments[env].python if name not in python}
        downloads = [
            pool.submit(_apt_download, Path(work) / f"apt-{number}", suites, absent, part)
            for number, (suites, names) in enumerate(debs.items())
            if (absent := missing(names))
        ]
        for env in wanted:  # in parts: pip asks the index for one package after the other
            absent = missing(name for name in python if python[name] == env)
            for start in range(0, len(absent), 24):
                place = Path(work) / f"{env}-{start}"
                downloads.append(pool.submit(_pip_download, sources, absent[start : start + 24], part, place))
        for download in downloads:
            download.result()
        for path in sorted(part.iterdir()):
            if file_sha256(path) != sources.sha256.get(path.name):
                raise UserError(
                    f"{path.name} as fetched is not the locked file; check the mirror, or lock today's: {RELOCK}."
                )
            shutil.move(path, folder / path.name)
        archive = seed_archive(folder / sources.seed, Path(work))
        if hashlib.sha256(archive).hexdigest() != sources.seed_nar:
            raise UserError(f"{sources.seed} holds another busybox than the locked one; lock it again: {RELOCK}.")
        (folder / "busybox.nar").write_bytes(archive)


def _apt_download(work: Path, suites: Sequence[str], files: Iterable[str], folder: Path) -> None:
    Apt(work, suites, os.environ.get(SNAPSHOT, "").removeprefix("newest")).download(files, folder)


def _pip_download(sources: Sources, files: Sequence[str], folder: Path, requirements: Path) -> None:
    """Downloads exactly these files of PyPI's, whatever Python runs pip. `requirements` is a file for pip."""
    wheels = [file for file in files if file.endswith(".whl")]
    platforms = sorted({tag for file in wheels for tag in file[:-4].split("-")[-1].split(".")} - {"any"})
    target = ["--python-version=3.11", "--implementation=cp", "--abi=cp311", "--abi=abi3", "--abi=none"]
    target += ["--only-binary=:all:", *(f"--platform={tag}" for tag in platforms)]
    for names, options in ((wheels, target), ([file for file in files if file not in wheels], ["--no-binary=:all:"])):
        if names:
            pins = {file: "==".join(file.removesuffix(".tar.gz").split("-")[:2]) for file in names}
            lines = [f"{pin} --hash=sha256:{sources.sha256[file]}\n" for file, pin in pins.items()]
            requirements.write_text("".join(lines))
            _pip(requirements, folder, "pip could not download the flake's files; try again", options)


def lock_step(options: Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="gemmrepro-nix-") as folder:
        write_json(options.out, asdict(lock(Path(folder))))
    return 0


def fetch_step(options: Namespace) -> int:
    sources = Sources.read()
    fetch(sources, options.environments or [*sources.environments], options.folder)
    return 0
