"""The wheel: what it holds, and that it works without the checkout."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from support import ROOT, copy_sources, snakemake

from gemmrepro import registry
from gemmrepro.build.key import keyed
from gemmrepro.build.toolkit import Toolkit
from gemmrepro_blas import UserError, export

sys.path.insert(0, str(Path(__file__).parents[1]))

import wheel


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of today's sources, beside binaries that nothing loads."""
    folder = tmp_path_factory.mktemp("build") / "cuda13"
    folder.mkdir()
    for name in (export.DGEMM, *export.SGEMM.values()):
        record = keyed(registry.kernel(name), Toolkit("cuda13", "13.4.92", frozenset())).to_json()
        (folder / f"{name}.json").write_text(json.dumps(record))
        (folder / f"{name}.fatbin").write_bytes(name.encode())
    return folder


@pytest.fixture(scope="module")
def made(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel.write(built, tmp_path_factory.mktemp("wheel"))


def test_a_wheel_is_recorded_file_by_file_and_made_again_byte_by_byte(made: Path, built: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(made) as held:
        contents = {name: held.read(name) for name in held.namelist()}
    (record,) = (name for name in contents if name.endswith("/RECORD"))
    rows = dict(line.split(",", 1) for line in contents[record].decode().splitlines())
    for name, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        assert rows[name] == ("," if name == record else f"sha256={digest},{len(content)}")
    assert wheel.write(built, tmp_path).read_bytes() == made.read_bytes()


def test_its_metadata_name_version_and_build_keys(made: Path, built: Path) -> None:
    with zipfile.ZipFile(made) as held:
        (name,) = (name for name in held.namelist() if name.endswith("/METADATA"))
        text = held.read(name).decode()
        table = json.loads(held.read("gemmrepro_blas/table.json"))
    assert text.startswith("Metadata-Version: 2.1\nName: gemmrepro-blas\nVersion: ")
    for kernel, binary in table["built"].items():
        assert binary == {"build_key": export.keys(kernel, built)[1], "toolkit": "13.4.92"}
        assert f"- {kernel}: build key {binary['build_key']}, CUDA 13.4.92" in text


def test_binaries_of_other_sources_are_not_packed(built: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cuda13"
    folder.mkdir()
    for path in built.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    record = json.loads((folder / f"{export.DGEMM}.json").read_text())
    (folder / f"{export.DGEMM}.json").write_text(json.dumps(record | {"build_key": "f" * 16}))
    with pytest.raises(UserError, match=r"crt\.first_wave in .* was built from other sources than today's; run the t"):
        wheel.write(folder, tmp_path)


def test_a_finished_run_packs_its_binaries(tmp_path: Path) -> None:
    """By the rule, in a copy of the checkout whose builds are done."""
    if not (ROOT / "results/build/cuda13/crt.first_wave.fatbin").is_file() or not shutil.which("apptainer"):
        pytest.skip("the stage build has not run here")
    copy = tmp_path / "gemmrepro"
    copy_sources(copy)
    for name in ("results", ".snakemake"):
        subprocess.run(["cp", "-a", str(ROOT / name), str(copy)], check=True)
    shutil.rmtree(copy / ".snakemake/locks", ignore_errors=True)
    (copy / "resources").mkdir()
    for name in ("images", "cache"):
        (copy / "resources" / name).symlink_to((ROOT / "resources" / name).resolve())
    done = snakemake("--rerun-triggers", "mtime", "--use-singularity", "wheel", folder=copy)
    assert done.returncode == 0, done.stdout
    (made,) = (copy / "results/wheel").glob("gemmrepro_blas-*.whl")
    with zipfile.ZipFile(made) as held:
        packed = [name for name in held.namelist() if name.endswith(".fatbin")]
        built = {name: (copy / "results/build/cuda13" / Path(name).name).read_bytes() for name in packed}
        assert len(packed) == 7 and all(held.read(name) == built[name] for name in packed)


@pytest.fixture(scope="module")
def python(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment of its own with the wheel and NumPy."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", str(made)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for part in ("numpy", "numpy.libs"):
        (site / part).symlink_to(Path(np.__file__).parents[1] / part)
    return python


def called(python: Path, *arguments: str) -> subprocess.CompletedProcess:
    """A run far from the checkout, without its variables, on a machine that shows no GPU."""
    environment = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": ""}
    command = [str(python), *arguments]
    return subprocess.run(command, cwd=python.parents[1], env=environment, capture_output=True, text=True, check=False)


def test_an_installed_wheel_needs_no_checkout(python: Path) -> None:
    """Its table and binaries are its own, and it explains itself."""
    program = (
        "import gemmrepro_blas, sys; from gemmrepro_blas import table; "
        "print(table.usable(table.table()['dgemm']).name, 'gemmrepro' in sys.modules, table.table()['version'])"
    )
    assert called(python, "-c", program).stdout.split() == [
        "crt.first_wave.fatbin",
        "False",
        wheel.project()["version"],
    ]
    shown = called(python, "-m", "gemmrepro_blas", "--help")
    assert shown.returncode == 0 and "self-test" in shown.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("-m", "gemmrepro_blas"),
        ("-c", "import gemmrepro_blas as b, numpy as n; b.dgemm(n.ones((2, 2)), n.ones((2, 2)))"),
    ],
)
def test_without_a_gpu_it_refuses_in_a_sentence(python: Path, arguments: tuple[str, ...]) -> None:
    found = called(python, *arguments)
    last = found.stderr.strip().splitlines()[-1]
    assert found.returncode == 1 and "Self-test" not in found.stdout
    assert any(words in last for words in ("no CUDA driver", "CUDA sees no GPU", "is on the host"))
    assert arguments[0] == "-c" or len(found.stderr.strip().splitlines()) == 1
