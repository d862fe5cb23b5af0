"""The build stage: its parsers and errors everywhere, real compilations where a CUDA toolkit is on PATH."""

import importlib.metadata
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmrepro import registry
from gemmrepro.build import compile as compiling
from gemmrepro.build import listings
from gemmrepro.build.key import build_key
from gemmrepro.build.listings import parse_advisories, parse_ptxas
from gemmrepro.build.nvcc import header_packages
from gemmrepro.build.record import Usage
from gemmrepro.build.toolkit import Toolkit, find_toolkit, gencode
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError
from gemmrepro.registry.keys import compiled


def test_what_ptxas_prints_is_read_by_architecture():
    log = (Path(__file__).parent / "data/ptxas.txt").read_text()
    assert parse_ptxas(log, "warptile") == {
        "sm_90": Usage(registers=167, stack_bytes=0, spill_store_bytes=0, spill_load_bytes=0, shared_bytes=16384),
        "sm_86": Usage(registers=168, stack_bytes=24, spill_store_bytes=20, spill_load_bytes=28, shared_bytes=0),
    }
    assert parse_ptxas(log, "another") == {}
    advice = "(C7508) Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum registers."
    assert parse_advisories(f"{log}ptxas info    : {advice}\n") == [advice]


TOOLKIT = Toolkit("cuda12", "12.4.131", frozenset({"80", "86", "89", "90"}))
NAIVE = registry.kernel("ladder.naive")


def test_architectures_are_sorted_and_only_those_the_kernel_runs_on():
    assert compiling.wanted_archs(NAIVE, TOOLKIT, ["90", "86", "80", "86"]) == ["80", "86", "90"]
    hopper = NAIVE.with_platform(min_capability=(9, 0))
    assert compiling.wanted_archs(hopper, TOOLKIT, ["80", "90", "90a"]) == ["90", "90a"]


@pytest.mark.parametrize(
    ("archs", "said"),
    [
        (["120"], r"cannot compile for sm_120; it knows 80, 86, 89, 90\. Take 120 out of build\.cuda12"),
        (["9.0"], r"'9\.0' is not an architecture"),
        ([], "has none; add one to build.cuda12"),
    ],
)
def test_architectures_that_cannot_be_are_refused(archs, said):
    with pytest.raises(UserError, match=said):
        compiling.wanted_archs(NAIVE, TOOLKIT, archs)


def test_ptx_is_added_once_for_the_newest_portable_architecture():
    flags = gencode(["80", "90", "90a"])
    assert [flag for flag in flags if "code=compute" in flag] == ["-gencode=arch=compute_90,code=compute_90"]
    assert gencode(["90a"]) == ["-gencode=arch=compute_90a,code=sm_90a"]
    codes = ("sm_80", "sm_90", "compute_80")
    assert gencode(["80", "90"], "80") == [f"-gencode=arch=compute_80,code={code}" for code in codes]


TOOLS = {"nvcc", "cuobjdump", "nvdisasm"}


@pytest.mark.parametrize(
    ("name", "tools", "said"),
    [
        ("cuda13", TOOLS - {"nvcc"}, "nvcc is not on PATH.*--use-singularity"),
        ("cuda13", TOOLS - {"nvdisasm"}, "nvdisasm is not on PATH.*--use-singularity"),
        ("cuda13", TOOLS, r"is CUDA 12\.4\.131, and cuda13 needs CUDA 13"),
        ("cuda11", TOOLS, "no toolkit 'cuda11'; known toolkits: cuda12, cuda13"),
    ],
)
def test_a_toolkit_that_is_not_there_is_named_with_what_to_do(tmp_path, monkeypatch, name, tools, said):
    for tool in tools:
        (tmp_path / tool).write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.4, V12.4.131'\n")
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=said):
        find_toolkit(name)


CUDA = """// What it does.
#define DOUBLED(x) (2 * (x))  /* a macro */
__global__ void f(float* to) {
    asm volatile("mov.u32 %0, 1; // kept" : : "f"(DOUBLED(1'000.0f)));
    const char* raw = R"(/* kept */)";
}
"""
PYTHON = '''"""A kernel."""
def f(a: Constant, b: int):
    """Its docstring."""
    return a + b  # both
'''
SAMPLES = {"cu": CUDA, "cuh": CUDA, "py": PYTHON}


@pytest.mark.parametrize(
    ("suffix", "text", "replacement", "same"),
    [
        ("cu", "// What it does.", "// What else it does.\\\n   still so", True),
        ("cuh", "    asm volatile(", "  asm\\\n volatile  (", True),
        ("cu", "1; // kept", "1; // changed", False),
        ("cuh", "2 * (x)", "3 * (x)", False),
        ("cu", "DOUBLED(x) (", "DOUBLED (x) (", False),
        ("cu", "1'000.0f", "1'00'0.0f // as much\n", False),
        ("py", "Its docstring.", "Another docstring.", True),
        ("py", "a + b", "(a +\n        b)", True),
        ("py", "a: Constant", "a: int", False),
        ("py", "a + b", "a - b", False),
    ],
)
def test_a_comment_moves_no_build_key_and_code_does(tmp_path, suffix, text, replacement, same):
    keys = []
    for number, content in enumerate((SAMPLES[suffix], SAMPLES[suffix].replace(text, replacement))):
        path = tmp_path / f"{number}.{suffix}"
        path.write_text(content)
        header = NAIVE.with_code(headers=(str(path),))
        keys.append(build_key(header if suffix == "cuh" else replace(NAIVE, source=str(path)), "13.0.88"))
    assert SAMPLES[suffix] != content and (keys[0] == keys[1]) == same


def test_flags_ptx_and_headers_change_the_key():
    key = build_key(NAIVE, "13.0.88")
    relaxed = NAIVE.with_code(flags=("--expt-relaxed-constexpr",))
    assert len({key, build_key(relaxed, "13.0.88"), build_key(NAIVE.with_code(ptx="80"), "13.0.88")}) == 3
    assert compiled(NAIVE) != compiled(relaxed)
    with pytest.raises(UserError, match=r"kernels/common/none\.cuh is missing"):
        build_key(NAIVE.with_code(headers=("common/none.cuh",)), "13.0.88")


def test_packages_of_headers_are_part_of_the_key_and_a_missing_one_is_named(tmp_path, monkeypatch):
    def install(version):
        distribution = SimpleNamespace(version=version, locate_file=lambda path: tmp_path / path)
        monkeypatch.setattr(importlib.metadata, "distribution", lambda name: distribution)

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    kernel = NAIVE.with_code(packages=("nvidia-cutlass",))
    install("4.2.0.0")
    with pytest.raises(UserError, match=r"nvidia-cutlass 4\.2\.0\.0 has no headers in cutlass_library/source/include"):
        header_packages(kernel)
    (tmp_path / "cutlass_library/source/include").mkdir(parents=True)
    assert header_packages(kernel) == {"nvidia-cutlass": ("4.2.0.0", tmp_path / "cutlass_library/source/include")}
    key = build_key(kernel, "13.0.88")
    install("4.3.0")
    assert len({key, build_key(kernel, "13.0.88"), build_key(NAIVE, "13.0.88")}) == 3
    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(UserError, match="nvidia-cutlass, which is not installed; run Snakemake with --use-singularity"):
        build_key(kernel, "13.0.88")


def stage(toolkit: str, *words: str) -> list[str]:
    """The command line of the build stage."""
    return ["python3", "-u", "-m", "gemmrepro", "build", "--toolkit", toolkit, *words]


@pytest.mark.containers
def test_what_a_killed_job_compiled_is_kept_and_a_failure_does_not_lose_the_others(toolkit, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "workflow"))
    command = stage(toolkit, "--cache", tmp_path / "cache", "--out", tmp_path / "out", "--kernels")
    kernels = ["ladder.vector_add=80", "ladder.naive=80", "ladder.coalesced=80"]
    with subprocess.Popen([*command, *kernels], stdout=subprocess.PIPE, text=True) as job:
        first = job.stdout.readline()
        job.kill()
    assert first.startswith("ladder.vector_add ")
    shutil.rmtree(tmp_path / "out")  # as Snakemake does before it runs a job again
    kernels[1] = "ladder.naive=7x"
    again = subprocess.run([*command, *kernels], capture_output=True, text=True)
    assert again.returncode == 1
    assert re.search(r"^ladder\.vector_add .* kept$", again.stdout, re.M)
    assert again.stderr.startswith("gemmrepro: ladder.naive: '7x' is not an architecture")
    assert "The other 2 of 3 were built." in again.stderr and "Traceback" not in again.stderr
    of_one = sorted(path.suffix for path in (tmp_path / "out").glob("ladder.coalesced.*"))
    assert of_one == [".fatbin", ".json", ".sass"]


def test_resource_usage_by_architecture():
    listing = (
        "arch = sm_80\nResource usage:\n Function g:\n  REG:9 STACK:0 CONSTANT[0]:360\n"
        " Function f:\n  REG:10 STACK:0 CONSTANT[0]:376 TEXTURE:0\n\nFatbin elf code:\n================\n"
        "arch = sm_90\n Function f:\n  REG:10 STACK:8 SHARED:16 CONSTANT[0]:552\n"
    )
    assert listings.parse_resources(listing, "f") == {
        "sm_80": {"REG": 10, "STACK": 0, "CONSTANT[0]": 376, "TEXTURE": 0},
        "sm_90": {"REG": 10, "STACK": 8, "SHARED": 16, "CONSTANT[0]": 552},
    }
