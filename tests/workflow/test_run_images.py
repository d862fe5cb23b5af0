"""Every image: bills of materials, nothing of the host inside, no need of a network, signed or not."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from support import ROOT, call, in_image, snakemake

from gemmrepro.host.builders import apt_options
from gemmrepro.host.containers import container_environment, make_caches
from gemmrepro.host.recipes import Sources

pytestmark = pytest.mark.containers

IMAGES = ROOT / "resources/images"
DEFAULT = ("cuda12", "cuda13", "report")
OTHERS = sorted({path.stem for path in (ROOT / "docker").glob("*.Dockerfile")} - {*DEFAULT})
"""Images that the default run does not build: looked at where they are, without that run."""
REBUILD = "an older version of the builder made it? Remove resources/images/{env}.sif, and the next run builds it"

CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----\s+(.*?)\s+-----END CERTIFICATE-----", re.DOTALL)

# Arguments: strings to look for. What Apptainer puts over files of the image is left out.
SEARCH = """
import mmap, os, sys
words = [word.encode() for word in sys.argv[1:]]
over = {"/etc/hosts", "/etc/resolv.conf", "/etc/passwd", "/etc/group", "/etc/localtime"}
for folder, below, files in os.walk("/"):
    if folder == "/":
        below[:] = [name for name in below if name not in ("proc", "sys", "dev", "tmp", "run")]
    for path in (os.path.join(folder, name) for name in files):
        if path in over or os.path.islink(path) or not os.path.getsize(path):
            continue
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for word in words:
                if data.find(word) >= 0:
                    print(path, word.decode())
"""


COUNTERS = """
from gemmrepro.gpu import ranges
from gemmrepro.gpu.ranges import Chip

chip = Chip(ranges.load(), "GH100")
print(*chip.units(["dram__bytes.sum", "gpu__time_duration.sum", "sm__of_no_chip.sum"]).values())
chip.close()
"""


def tree_of(sif: Path) -> dict[str, str]:
    """The files in an image: what unsquashfs says of each (mode, owner, size, time), by path."""
    command = ["unsquashfs", "-o", "32768", "-lln", str(sif)]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return dict(reversed(line.split(" squashfs-root", 1)) for line in listing.splitlines() if " squashfs-root" in line)


def execute(sif: Path, *words: str, binds: Sequence[str] = ()) -> str:
    """What a command in an image says; it sees nothing of this machine's files, but for `binds`, or variables."""
    environ = os.environ | container_environment(os.environ)
    make_caches(environ)
    command = ["apptainer", "exec", "--cleanenv", "--contain", "--no-home", "--pwd", "/"]
    command += [*(f"--bind={bind}" for bind in binds), str(sif), *words]
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout


def pip(*words: str) -> str:
    """What this machine's pip says."""
    command = [sys.executable, "-m", "pip", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def words_of_this_host() -> set[str]:
    """What would give this machine away in a file: folders, CAs of its own, proxies, its name unless that is short.

    Proxies and mirrors are those of its environment, of apt and of pip.
    """
    environ, added = os.environ, Path("/usr/local/share/ca-certificates").rglob("*.crt")
    certificates = {body for path in added for body in CERTIFICATE.findall(path.read_text())}
    # From the middle: first lines are much the same.
    words = {str(ROOT), *(lines[len(lines) // 2] for lines in map(str.split, certificates))}
    words |= {name for name in (socket.gethostname(), socket.getfqdn()) if len(name) > 8 and name != "localhost"}
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        words |= {part for part in (environ.get(name), urlsplit(environ.get(name, "")).netloc) if part}
    settings = " ".join([*apt_options(), pip("config", "list")])
    # Every image with pip holds its default index, which its help names.
    default = re.findall(r"https?://([^\s/)]+)", pip("install", "--help"))
    words |= {each for each in re.findall(r"\w+://[^\s'\"]+", settings) if urlsplit(each).netloc not in default}
    home = environ.get("HOME", "")
    return words | ({f"{home}/"} if home.startswith("/home/") else set())


@pytest.fixture(params=(*DEFAULT, *OTHERS))
def env(request: pytest.FixtureRequest) -> str:
    """The name of an image that is there."""
    name: str = request.param
    if name in DEFAULT:
        request.getfixturevalue("default_run")
    elif not (IMAGES / f"{name}.sif").is_file():
        pytest.skip(f"resources/images/{name}.sif is not built, which the default run does not need")
    return name


def test_nothing_of_the_host_is_in_an_image(env: str) -> None:
    sif, hint = IMAGES / f"{env}.sif", REBUILD.format(env=env)
    tree = tree_of(sif)
    for folder in ("/root", "/home", "/tmp", "/run", "/var/tmp", "/var/log", "/usr/local/share/ca-certificates"):
        assert [path for path in tree if path.startswith(f"{folder}/")] == [], hint
    settings = {path.rpartition("/")[2] for path in tree if path.startswith("/etc/apt/apt.conf.d/")}
    assert settings <= {"01autoremove", "70debconf", "docker-clean", "docker-gzip-indexes", "docker-no-languages"}, hint
    for path in ("etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/machine-id"):
        assert in_image(sif, path) == "", path
    accounts = [line.split(":") for line in in_image(sif, "etc/passwd").splitlines()]
    assert [name for name, _, number, *_ in accounts if 1000 <= int(number) < 65534] == [], "users of no package"
    labels = json.loads(in_image(sif, ".singularity.d/labels.json"))
    assert {name.rpartition(".")[0] for name in labels} <= {
        "org.opencontainers.image",
        "org.opencontainers.image.base",
    }, hint
    assert not [value for value in labels.values() if "/" in value], labels


def test_an_image_trusts_what_debian_ships_and_no_file_names_the_host(env: str) -> None:
    sif = IMAGES / f"{env}.sif"
    if env in DEFAULT or "/etc/ssl/certs/ca-certificates.crt" in tree_of(sif):
        bundle = execute(sif, "cat", "/etc/ssl/certs/ca-certificates.crt")
        shipped = execute(sif, "sh", "-c", "cat /usr/share/ca-certificates/*/*.crt")
        trusted = set(CERTIFICATE.findall(bundle))
        assert trusted and trusted == set(CERTIFICATE.findall(shipped))
    # One word that is there, so that the rest of the answer means something.
    found = execute(sif, "python3", "-c", SEARCH, *sorted(words_of_this_host()), f"gemmrepro-{env}").splitlines()
    assert [line.split()[0] for line in found] == ["/.singularity.d/labels.json"], found


def test_debians_packages_are_the_flakes_but_for_those_that_the_lock_names(env: str) -> None:
    query = ("dpkg-query", "--show", "--showformat", "${Package} ${Version}\\n")
    said = execute(IMAGES / f"{env}.sif", *query) + execute(
        IMAGES / f"{env}.sif", "sh", "-c", "cat /opt/unpacked || true"
    )
    installed, flakes = dict(line.split() for line in said.splitlines()), Sources.read().debian(env)
    listed = json.loads((IMAGES / f"{env}.lock.json").read_text())["os"]
    assert {each["name"]: each["version"] for each in listed} == installed
    others = {each["name"] for each in listed if not each["locked"]}
    assert {name for name, version in installed.items() if flakes.get(name) != version} == others
    assert flakes.keys() <= installed.keys()


def test_cupti_in_the_images_for_measuring_knows_the_counters(env: str) -> None:
    if env not in ("measure", "torch"):
        pytest.skip(f"nothing is measured in the image {env}")
    words = ("env", "PYTHONPATH=/workflow", "python3", "-c", COUNTERS)
    assert execute(IMAGES / f"{env}.sif", *words, binds=[f"{ROOT / 'workflow'}:/workflow:ro"]) == "byte ns\n"


def test_the_bill_of_materials_fits_its_schema_and_names_nearly_every_hash(env: str, tmp_path: Path) -> None:
    out = tmp_path / f"{env}.cdx.json"
    paths = ["--sif", str(IMAGES / f"{env}.sif"), "--lock", str(IMAGES / f"{env}.lock.json"), "--out", str(out)]
    command = [sys.executable, "-m", "gemmrepro", "sbom", "--env", env, *paths]
    written = call(command, PYTHONPATH=str(ROOT / "workflow"))
    assert written.returncode == 0, written.stdout
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(out.read_text()) is None
    bill, lock = json.loads(out.read_text()), json.loads((IMAGES / f"{env}.lock.json").read_text())
    parts = {(part["name"], part["version"]): part for part in bill["components"]}
    assert set(parts) == {(each["name"], each["version"]) for kind in ("os", "python") for each in lock[kind]}
    if env in DEFAULT:
        # pip and setuptools come with Debian's python3-venv.
        python = {(each["name"], each["version"]) for each in lock["python"]}
        assert {name for name, _ in python if "hashes" not in parts[name, _]} <= {"pip", "setuptools"}
    unlicensed = [part["purl"] for part in bill["components"] if "licenses" not in part]
    assert len(unlicensed) <= 0.1 * len(parts), unlicensed


def test_a_signed_image_runs_without_a_network(finished: Path) -> None:
    """A signature changes the file, not the image: nothing is made again, and a job runs, cut off from all networks."""
    if os.geteuid():
        pytest.skip("a network namespace of its own needs root")
    sif = finished / "resources/images/report.sif"
    shutil.copyfile(sif, sif.with_suffix(".new"))  # the image is linked to the run's own
    sif.with_suffix(".new").rename(sif)
    keys = finished / "keys"
    environ = {"HOME": str(keys), **container_environment(os.environ)}
    keys.mkdir()
    make_caches(environ)
    person = ["--name", "Test", "--email", "test@example.org", "--comment", "", "--password", "", "--push=false"]
    for words in (["key", "newpair", "--bit-length", "2048", *person], ["sign", str(sif)]):
        done = call(["apptainer", *words], finished, **environ)
        assert done.returncode == 0, done.stdout
    plan = snakemake("--dry-run", "--use-singularity", folder=finished)
    assert "Nothing to be done" in plan.stdout, plan.stdout[-4000:]
    gate = finished / "results/gates/ladder.naive.json"
    gate.unlink()
    command = ["unshare", "--net", "snakemake", "--cores", "1", "--use-singularity", "results/gates/ladder.naive.json"]
    run = call(command, finished)
    assert run.returncode == 0, run.stdout[-4000:]
    assert json.loads(gate.read_text())["passed"] is True
