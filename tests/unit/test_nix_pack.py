"""nix/pack.py writes images that say of themselves what their Dockerfiles say. Nix itself is not needed."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from support import ROOT

from gemmrepro.host.recipes import read_recipe
from gemmrepro.host.sif import image_labels

PACK = ROOT / "nix/pack.py"
RECIPES = sorted((ROOT / "docker").glob("*.Dockerfile"))
WRITTEN_THERE = {f"org.opencontainers.image.{name}" for name in ("title", "licenses", "description")}


def pack(*arguments: object) -> None:
    subprocess.run([sys.executable, PACK, *map(str, arguments)], check=True)


def labels_of(recipe: Path) -> dict[str, str]:
    """The labels that the container images get from the Dockerfile alone."""
    return {name: text for name, text in image_labels(read_recipe(recipe)).items() if name in WRITTEN_THERE}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_a_sif_gets_the_labels_of_its_dockerfile(recipe: Path, tmp_path: Path) -> None:
    pack("labels", recipe, tmp_path / "labels.json")
    labels = json.loads((tmp_path / "labels.json").read_text())
    assert labels.keys() == WRITTEN_THERE
    assert labels == labels_of(recipe)


def test_an_oci_archive_has_the_labels_and_is_the_same_each_time(tmp_path: Path) -> None:
    recipe, root = ROOT / "docker/cuda13.Dockerfile", tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    for name in ("one.tar", "two.tar"):
        pack("oci", root, tmp_path / name, "gemmrepro-cuda13", recipe, "PATH=/usr/bin", "CUDA_HOME=/usr/local/cuda")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    with tarfile.open(tmp_path / "one.tar") as archive:

        def read(name: str) -> dict:
            return json.load(archive.extractfile(name))

        [docker] = read("manifest.json")
        config = read(docker["Config"])["config"]
    assert config["Labels"] == labels_of(recipe)
    assert config["Env"] == ["PATH=/usr/bin", "CUDA_HOME=/usr/local/cuda"]
