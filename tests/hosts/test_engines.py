"""Every image builder for real, in an overlay over this machine, which stays as it is: one recipe gives one image."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import ROOT, in_image

from gemmrepro.host.containers import container_environment, make_caches

pytestmark = pytest.mark.containers

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Made:
    """What a builder made of `small.Dockerfile`: the lock, the files in the image, what stayed in its storage."""

    lock: dict[str, object]
    files: tuple[str, ...]
    left: str
    sif: Path
    said: str


def make(in_overlay, builder: str, folder: Path) -> Made:
    """Build `small.Dockerfile` with a builder that is installed in an overlay; skips where that fails."""
    own = folder / builder
    out = own / "out"
    out.mkdir(parents=True)
    for base in [*folder.glob("*/out/.base-*.tar"), *ROOT.glob("resources/images/.base-bookworm.tar")][:1]:
        shutil.copyfile(base, out / base.name)
    environ = os.environ | {"PYTHONPATH": str(ROOT / "workflow"), "PYTHONDONTWRITEBYTECODE": "1"}
    environ |= container_environment(environ, cache=out / "cache")
    make_caches(environ)
    sif, lock = out / "small.sif", out / "small.lock.json"
    run = [sys.executable, "-m", "gemmrepro", "image", "--env", "small", "--recipe", HERE / "small.Dockerfile"]
    done = in_overlay(own / "overlay", HERE / "engine", builder, own, *run, "--sif", sif, "--lock", lock, **environ)
    shutil.rmtree(own / "overlay", ignore_errors=True)
    query = ["unsquashfs", "-o", "32768", "-lln", sif]
    listing = subprocess.run(query, check=True, capture_output=True, text=True).stdout
    own_files = re.compile(r" squashfs-root/(\.singularity\.d/|etc/(shadow|gshadow)$)")  # Apptainer's; dates
    files = tuple(line for line in listing.splitlines() if not own_files.search(line))
    return Made(json.loads(lock.read_text()), files, (own / "left").read_text().strip(), sif, done.stdout + done.stderr)


def check(made: Made, folder: Path) -> None:
    """Nothing of this machine is in the image, the CA bundle included, and nothing of the build in the engine."""
    assert made.left == ""
    assert in_image(made.sif, "opt/greeting").startswith("hello")
    assert in_image(made.sif, "etc/hostname") == in_image(made.sif, "etc/resolv.conf") == ""
    names = "\n".join(made.files)
    assert "ca_bundle" not in names and "apt.conf.d/99mmdebstrap" not in names and "/var/log/dpkg.log" not in names
    labels = in_image(made.sif, ".singularity.d/labels.json")
    assert json.loads(labels)["org.opencontainers.image.title"] == "gemmrepro-small"
    assert str(folder) not in labels and socket.gethostname() not in labels.split()


def test_docker_podman_and_buildah_make_the_same_image(folder: Path, in_overlay) -> None:
    made = {builder: make(in_overlay, builder, folder) for builder in ("buildah", "docker", "podman")}
    for builder, each in made.items():
        assert each.lock["builder"] == builder
        check(each, folder)
    first = made["buildah"]
    for other in (made["docker"], made["podman"]):
        assert (other.lock["os"], other.lock["python"]) == (first.lock["os"], first.lock["python"])
        assert set(other.files) ^ set(first.files) == set()
