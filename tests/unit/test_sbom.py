"""Bills of materials: what a package says of its licence, which hash is its own, and what is written of both."""

import json
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from gemmrepro.errors import UserError
from gemmrepro.host import sbom
from gemmrepro.host.inventory import Entry
from gemmrepro.host.sbom import PackageHashes

DIGESTS = {name: f"{name:x}" * 64 for name in range(1, 6)}


@pytest.mark.parametrize(
    ("written", "identifier"),
    [
        ("GPL-2+", "GPL-2.0-or-later"),
        ("LGPL-2.1", "LGPL-2.1-only"),
        ("BSD-3-clause", "BSD-3-Clause"),
        ("GPL-3+ with Bison exception", "GPL-3+ with Bison exception"),
        ("BSD License", "BSD License"),  # which of them?
    ],
)
def test_names_of_licences_become_spdxs_only_where_they_are_certain(written: str, identifier: str) -> None:
    assert sbom.spdx(written) == identifier


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    """Locks of one image: a package with one file, one with two, one of Debian's, one of another release."""
    for folder in ("nix", "envs/requirements", "docker"):
        (tmp_path / folder).mkdir(parents=True)
    files = {"numpy-2.4-cp311-cp311-manylinux_2_28_x86_64.whl": DIGESTS[1], "bash_1%3a5.2+b1_amd64.deb": DIGESTS[2]}
    small = {"debs": [], "python": [next(iter(files))]}
    sources = {"date": "", "seed": "", "seed_nar": "", "sha256": files, "environments": {"small": small}}
    (tmp_path / "nix/sources.json").write_text(json.dumps(sources))
    (tmp_path / "envs/requirements/small.txt").write_text(
        f"numpy==2.4 \\\n    --hash=sha256:{DIGESTS[1]} \\\n    --hash=sha256:{DIGESTS[3]}\n    # via x\n"
        f"typing-extensions==4.1 ; python_version < '4' \\\n"
        f"    --hash=sha256:{DIGESTS[4]} \\\n    --hash=sha256:{DIGESTS[5]}\n"
    )
    (tmp_path / "docker/small.Dockerfile").write_text(
        f"ARG TOOL_VERSION=2024.1~x\nARG TOOL_SHA256={DIGESTS[3]}\n"
        'RUN apt-locked --apart "trixie non-free" a-tool=$TOOL_VERSION $TOOL_SHA256\n'
    )
    return tmp_path


ENTRIES = {
    "os": [
        Entry(name="bash", version="1:5.2+b1", arch="amd64", licences=["GPL-3+", "odd"]),
        Entry(name="a-tool", version="2024.1~x", arch="", licences=[]),
    ],
    "python": [
        Entry(name="NumPy", version="2.4", arch="", licences=["BSD-3-Clause AND MIT"]),
        Entry(name="numpy", version="2.4", arch="", licences=["BSD-3-Clause AND MIT"]),
        Entry(name="typing_extensions", version="4.1", arch="", licences=["PSF-2.0"]),
    ],
}
LOCK = {
    "env": "small",
    "base": "debian:12-slim (mmdebstrap)",
    "builder": "buildah",
    "apptainer": "apptainer 1.4.5",
    "recipe_sha256": DIGESTS[1],
    "requirements_sha256": "",
    **{kind: [{"name": each["name"], "version": each["version"]} for each in ENTRIES[kind]] for kind in ENTRIES},
}


class TestBill:
    def test_packages_have_addresses_hashes_and_licences_in_cyclonedxs_schema(self, locks: Path) -> None:
        hashes = PackageHashes("small", locks)
        text = sbom.bill(LOCK, ENTRIES, DIGESTS[5], hashes)
        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
        assert text == sbom.bill(LOCK, ENTRIES, DIGESTS[5], hashes), "the same each time"
        made = json.loads(text)
        parts = {part["purl"]: part for part in made["components"]}
        assert set(parts) == {
            "pkg:deb/debian/bash@1:5.2%2Bb1?arch=amd64&distro=debian-12",
            "pkg:deb/debian/a-tool@2024.1~x?arch=amd64",
            "pkg:pypi/numpy@2.4",
            "pkg:pypi/typing-extensions@4.1",
        }
        bash = parts["pkg:deb/debian/bash@1:5.2%2Bb1?arch=amd64&distro=debian-12"]
        assert bash["hashes"] == [{"alg": "SHA-256", "content": DIGESTS[2]}]
        named = [entry["license"] for entry in bash["licenses"]]
        assert [each.get("id") or each["name"] for each in named] == ["GPL-3.0-or-later", "odd"]
        numpy, tool = parts["pkg:pypi/numpy@2.4"], parts["pkg:deb/debian/a-tool@2024.1~x?arch=amd64"]
        assert numpy["licenses"][0]["expression"] == "BSD-3-Clause AND MIT"
        assert [part["hashes"][0]["content"] for part in (numpy, tool)] == [DIGESTS[1], DIGESTS[3]]
        several = parts["pkg:pypi/typing-extensions@4.1"]
        assert "hashes" not in several
        assert {each["value"] for each in several["properties"]} == {DIGESTS[4], DIGESTS[5]}
        image = made["metadata"]["component"]
        assert image["type"] == "container" and image["hashes"][0]["content"] == DIGESTS[5]
        (used,) = (each for each in made["dependencies"] if each["ref"] == image["bom-ref"])
        assert set(used["dependsOn"]) == set(parts)


class TestRefusals:
    def test_an_image_that_is_not_its_locks_is_refused(self) -> None:
        sbom.check_lock(LOCK, ENTRIES, Path("small.sif"))
        newer = {**ENTRIES, "os": [*ENTRIES["os"], Entry(name="zsh", version="5", arch="amd64", licences=[])]}
        with pytest.raises(UserError, match=r"small.sif is not the image .*zsh 5 is in the image alone"):
            sbom.check_lock(LOCK, newer, Path("small.sif"))
        with pytest.raises(UserError, match="in its lock alone"):
            sbom.check_lock(LOCK, {**ENTRIES, "python": []}, Path("small.sif"))
