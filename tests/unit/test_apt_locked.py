"""docker/apt-locked: images get the versions of Debian's packages that the flake has. By apt and dpkg, in a folder."""

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from support import ROOT

SCRIPT = ROOT / "docker/apt-locked"
LOCKED = {"app": "1", "lib": "1:1+b1", "tool": "1~x"}
"""What the tests lock; `app` depends on `lib`, and `tool` is there from the start, as 2."""
TODAY = {"app": "2", "lib": "1:2", "tool": "2"}

CONFIGURATION = """
Dir "{root}/";
Dir::State::status "{root}/var/lib/dpkg/status";
Dir::Log "{root}/log";
APT::Architecture "amd64";
APT::Architectures {{ "amd64"; }};
APT::Sandbox::User "";
APT::Get::AllowUnauthenticated "true";
Acquire::AllowInsecureRepositories "true";
DPkg::Options {{ "--root={root}"; "--force-not-root"; "--force-bad-path"; }};
"""


class Debian:
    """A Debian of three packages in a folder, with `tool` 2 installed, and a mirror and a snapshot of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "root"
        state = ("lib/dpkg/info", "lib/dpkg/updates", "lib/apt/lists/partial", "cache/apt/archives/partial")
        settings = ("sources.list.d", "apt.conf.d", "preferences.d")
        for name in (*(f"var/{name}" for name in state), *(f"etc/apt/{name}" for name in settings), "log"):
            (self.root / name).mkdir(parents=True)
        (self.root / "var/lib/dpkg/status").write_text(
            "Package: tool\nStatus: install ok installed\nVersion: 2\nArchitecture: all\n"
            "Maintainer: x\nDescription: x\n\n"
        )
        (self.root / "var/lib/dpkg/info/tool.list").write_text("/.\n")
        (self.root / "etc/apt/sources.list").write_text(
            "".join(f"deb file:{folder}/mirror/{name}/ stable main\n" for name in ("debian", "debian-security"))
        )
        (folder / "apt.conf").write_text(CONFIGURATION.format(root=self.root))
        shutil.copy(SCRIPT, folder)
        self.lock(LOCKED)
        self.offer("mirror/debian-security", ("other", "1", ""))

    def lock(self, versions: Mapping[str, str]) -> None:
        debs = [f"{name}_{version.replace(':', '%3a')}_all.deb" for name, version in versions.items()]
        other = {"apart": [], "debs": ["other_1_all.deb"], "python": []}
        environments = {"another": other, "small": {"apart": [], "debs": debs, "python": ["x-1.whl"]}, "third": other}
        content = json.dumps({"date": "2026-11-27", "environments": environments}, indent=2)
        (self.folder / "sources.json").write_text(content)

    def offer(self, place: str, *packages: tuple[str, str, str]) -> None:
        """Make a repository of packages, (name, version, depends), at `place`."""
        repository = self.folder / place
        index = repository / "dists/stable/main/binary-amd64/Packages"
        index.parent.mkdir(parents=True)
        stanzas = []
        for number, (name, version, depends) in enumerate(packages):
            control = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: x\nDescription: x\n"
            control += f"Depends: {depends}\n" if depends else ""
            source, deb = self.folder / "source", repository / f"{name}-{number}.deb"
            (source / "DEBIAN").mkdir(parents=True)
            (source / "DEBIAN/control").write_text(control)
            build = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", source, deb]
            subprocess.run(build, check=True, capture_output=True)
            shutil.rmtree(source)
            digest = hashlib.sha256(deb.read_bytes()).hexdigest()
            stanzas.append(f"{control}Filename: {deb.name}\nSize: {deb.stat().st_size}\nSHA256: {digest}\n")
        index.write_text("\n".join(stanzas))
        listed = f"{hashlib.sha256(index.read_bytes()).hexdigest()} {index.stat().st_size} main/binary-amd64/Packages"
        release = "Suite: stable\nCodename: stable\nDate: Fri, 27 Nov 2026 00:00:00 UTC\nComponents: main\n"
        release += f"Architectures: amd64\nSHA256:\n {listed}\n"
        (repository / "dists/stable/Release").write_text(release)

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run apt-locked; its stdout holds both streams."""
        environ = {**os.environ, "APT_CONFIG": str(self.folder / "apt.conf"), **environment}
        environ |= {"DPKG_ADMINDIR": str(self.root / "var/lib/dpkg"), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
        out = self.folder / "out"
        out.mkdir(exist_ok=True)
        return subprocess.run(
            ["sh", self.folder / SCRIPT.name, *words],
            cwd=out,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def install(self, **environment: str) -> tuple[dict[str, str], str]:
        """What is installed once apt-locked has run, and the last line that it says."""
        done = self.run("small", "app", **environment)
        assert done.returncode == 0, done.stdout
        status = (self.root / "var/lib/dpkg/status").read_text()
        assert [*(self.root / "etc/apt/sources.list.d").iterdir()] == []
        installed = re.findall(
            r"^Package: (\w+)\nStatus: install ok installed\n(?:.*\n)*?Version: (.*)$", status, re.MULTILINE
        )
        return dict(installed), done.stdout.splitlines()[-1]


def packages(versions: Mapping[str, str], **depends: str) -> list[tuple[str, str, str]]:
    return [(name, version, depends.get(name, "")) for name, version in versions.items()]


@pytest.fixture
def debian(tmp_path: Path) -> Debian:
    if not all(map(shutil.which, ("apt-get", "apt-cache", "dpkg-deb", "dpkg-query"))):
        pytest.skip("no apt here")
    return Debian(tmp_path)


def test_locked_versions_are_installed_older_than_the_mirrors_and_the_bases(debian: Debian) -> None:
    debian.offer("mirror/debian", *packages(LOCKED, app="lib"), *packages(TODAY, app="lib"))
    installed, said = debian.install()
    assert installed == LOCKED
    assert said == "gemmrepro: Debian's packages are all in the version locked on 2026-11-27."
    done = debian.run("none", "app")
    assert done.returncode == 1 and "locks no packages for an image none" in done.stdout


def test_what_is_gone_comes_in_todays_version_if_asked_for_and_is_named(debian: Debian) -> None:
    debian.offer(
        "mirror/debian", *packages(LOCKED | {"lib": "1:2"}, app="lib"), *packages(TODAY | {"lib": "1:1"}, app="lib")
    )
    refused = debian.run("small", "app", "tool")
    assert refused.returncode == 1
    assert refused.stdout.splitlines()[-1] == (
        "gemmrepro: Debian's mirror no longer has 1 of the locked packages, such as lib 1:1+b1: set "
        "GEMMREPRO_SNAPSHOT to the address of a snapshot of Debian of 2026-11-27, "
        "or to newest to take today's versions, unlocked."
    )
    installed, said = debian.install(GEMMREPRO_SNAPSHOT="newest")
    assert installed == LOCKED | {"lib": "1:2"}
    assert said.startswith("gemmrepro: not in the version locked on 2026-11-27: ")
    assert said.endswith(": lib 1:2 (locked: 1:1+b1)")


def test_what_is_gone_comes_from_a_snapshot_and_one_out_of_reach_ends_the_build(debian: Debian) -> None:
    debian.offer("mirror/debian", *packages(TODAY, app="lib"))
    done = debian.run("small", "app", GEMMREPRO_SNAPSHOT="http://127.0.0.1:1/debian/")
    assert done.returncode == 1
    assert "the snapshot of Debian cannot be used whole" in done.stdout.splitlines()[-2]
    kept = {name: LOCKED[name] for name in ("app", "tool")}
    debian.offer("snapshot/debian/1", *packages(kept, app="lib"))
    debian.offer("snapshot/debian-security/1", *packages({"lib": LOCKED["lib"]}))
    installed, said = debian.install(GEMMREPRO_SNAPSHOT=f"file:{debian.folder}/snapshot/debian/1")
    assert installed == LOCKED
    assert "are all in the version locked" in said


@pytest.mark.parametrize(
    ("mirror", "snapshot", "right", "where", "says"),
    [
        (("1~x", "2"), (), True, "newest", ""),
        (("1~x",), (), False, "newest", "tool_1~x_all.deb: FAILED"),
        (("2",), ("1~x",), True, "file:{folder}/snapshot/debian", ""),
        (("2",), (), False, "", "Debian's mirror no longer has tool 1~x: set"),
        (("2",), (), False, "newest", "Debian's mirror no longer has tool 1~x: set"),
    ],
)
def test_a_package_apart_is_the_locked_file_wherever_it_still_is(debian, mirror, snapshot, right, where, says):
    """One of another release, of which a Dockerfile takes a few files."""
    debian.offer("mirror/debian", *(("tool", version, "") for version in mirror))
    if snapshot:
        debian.offer("snapshot/debian", *(("tool", version, "") for version in snapshot))
    assert debian.run("small", "tool", GEMMREPRO_SNAPSHOT="newest").returncode == 0  # as every Dockerfile does before
    place = "snapshot" if snapshot else "mirror"
    sha256 = hashlib.sha256((debian.folder / place / "debian/tool-0.deb").read_bytes()).hexdigest()
    where = where.format(folder=debian.folder)
    asked = ("--apart", "stable main", "tool=1~x", sha256 if right else "0" * 64)
    done = debian.run(*asked, GEMMREPRO_SNAPSHOT=where)
    left = [path.name for path in (debian.folder / "out").iterdir()]
    assert (done.returncode == 0, left if right else []) == (right, ["tool_1~x_all.deb"] * right)
    assert says in done.stdout
