"""Kernels of one's own on a GPU: the examples pass and are timed; cheats and faults are told, each by itself."""

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from gpu_tools import ROOT, stage

pytestmark = pytest.mark.gpu

CHEATS = Path(__file__).parent / "cheats"


def judged(path: Path, folder: Path, regimes: bool = False, patience: float = 100) -> dict[str, Any]:
    """What a short run says of a file: one size, two rounds, and the regimes if asked."""
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    config["sweep"] |= {"rounds": 2, "seconds_per_round": 0.05}
    config["regimes"] |= {"seconds": 0.2, "pairs": {"sustained": int(regimes), "burst": int(regimes)}}
    config["gates"]["seeds"] = 1
    (folder / "config.json").write_text(json.dumps(config))
    out, name = folder / "out" / f"{path.stem}.json", path.stem
    options = ("--config", folder / "config.json", "--journal", folder / "journal" / name, "--out", out)
    answer = stage("own", "--kernel", path, *options, "--patience", patience)
    assert answer.returncode == 0, answer.stderr
    print(answer.stderr)
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def examples(session, tmp_path_factory) -> Path:
    """The examples with what they load, each at one size."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not on PATH")
    folder = tmp_path_factory.mktemp("own")
    for path in (ROOT / "examples/own").glob("*"):
        text = path.read_text()
        (folder / path.name).write_text(text.replace("[1024, 4096, 8192]", "[4096]").replace("[1024, 4096]", "[4096]"))
    library = ["-Xcompiler", "-fPIC", "-shared", "-o"]
    commands = [[*library, "libtiled.so", "tiled.cu"], ["-cubin", "-o", "tiled.cubin", "tiled.cu"]]
    if cutlass := find_spec("cutlass_library"):
        headers = f"{next(iter(cutlass.submodule_search_locations))}/source/include"
        commands.append(["-std=c++17", "-isystem", headers, *library, "libcutlass_gemm.so", "cutlass_gemm.cu"])
    for options in commands:
        subprocess.run(["nvcc", "-O3", f"-arch={session.gpu.arch}", *options], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("name", ["triton_persistent", "cuda_library", "cubin_params", "cutlass_gemm", "torch_compile"])
def test_an_example_passes_and_is_timed_in_every_regime(name, examples, tmp_path):
    if name == "cutlass_gemm" and find_spec("cutlass_library") is None:
        pytest.skip("nvidia-cutlass is not installed")
    found = judged(examples / f"{name}.py", tmp_path, regimes=name == "triton_persistent")
    print(json.dumps({key: found[key] for key in ("against", "ended", "skipped")}))
    assert (found["gate"]["status"], found["ended"], found["skipped"]) == ("passed", "", []), found["gate"]["reason"]
    mine = [row for row in found["rows"] + found["regimes"] if row["kernel"] == found["kernel"]]
    print([(row.get("regime", row["cache"]), round(row["tflops"], 1), round(row["ratio"], 4)) for row in mine])
    assert [row["cache"] for row in found["rows"] if row["kernel"] == found["kernel"]] == ["cold", "warm"]
    assert {row["regime"] for row in found["regimes"]} == ({"sustained", "burst"} if found["regimes"] else set())
    if name == "cubin_params":
        assert found["rows"][-1]["ratio"] == pytest.approx(1, rel=0.1), "the same code, launched in another way"


@pytest.mark.parametrize(
    ("name", "by", "words"),
    [
        ("writes_elsewhere", "gate", "elements were never written"),
        ("multiplies_in_bind", "rows", "on other inputs, after it was timed"),
        ("skips_known_addresses", "rows", "on other inputs, after it was timed"),
        ("launches_elsewhere", "rows", "a launch writes C before its stream gets to it"),
    ],
)
def test_a_cheat_has_no_row(session, name, by, words, tmp_path):
    found = judged(CHEATS / f"{name}.py", tmp_path)
    assert not [row for row in found["rows"] if row["kernel"] == found["kernel"]] and not found["ended"]
    (reason,) = [found["gate"]["reason"]] if by == "gate" else [each["reason"] for each in found["skipped"]]
    print(reason)
    assert words in reason and (by == "gate") == (found["gate"]["status"] == "failed")


OUTSIDE = """
import cupy
KERNEL = {"sizes": [512]}
wild = cupy.RawKernel('extern "C" __global__ void wild(float* c) { c[1ull << 40] = 0; }', "wild")
spin = cupy.RawKernel('extern "C" __global__ void spin(float* c) { while (((volatile float*)c)[0] != 3.5f); }', "spin")
"""


@pytest.mark.parametrize(
    ("launch", "words"),
    [("wild((1,), (1,), (c,))", "a kernel failed on the"), ("spin((1,), (1,), (c,))", "did not end within 20 s")],
)
def test_a_kernel_that_breaks_ends_itself_alone(session, launch, words, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text(f"{OUTSIDE}\ndef bind(a, b, c, stream):\n    return lambda: {launch}\n")
    found = judged(path, tmp_path, patience=20)
    assert words in (found["ended"] or found["gate"]["reason"])
    session.sync()
