"""Planted bugs: each finds its place in a source, and those of the FP64 schemes are caught by the gate on the CPU.

cuTile's sources run in cpu_tile, the headers of crt compiled as C++ (test_crt). What bugs in products, tiles and
barriers do shows on a GPU alone (tests/gpu/test_gpu_gate.py).
"""

import math
import re
import shutil
import sys
from dataclasses import replace
from types import SimpleNamespace

import cpu_tile
import numpy as np
import pytest
from numpy_cupy import NumpyCupy
from plants import PLANTS
from test_crt import Device

from gemmrepro import registry
from gemmrepro.errors import UserError
from gemmrepro.gates import gemm, gemm_cases
from gemmrepro.operations import Shape
from gemmrepro.registry import card

SESSION = SimpleNamespace(sync=lambda: None)
SMALL = {"m": 37, "n": 34, "k": 80}
"""What the gate's shapes are cut down to: tails, every law, and one of everything."""

HEADERS = ("moduli", "reconstruction", "scaling", "coarse", "winograd")
OZAKI = [name for name, plant in PLANTS.items() if plant.kernel.startswith("ozaki.")]
DEVICE = [name for name, plant in PLANTS.items() if re.fullmatch(rf"crt/({'|'.join(HEADERS)})\.cuh", plant.header)]
DEVICE.remove("a row with an Inf not marked")  # converting an Inf to an integer is undefined in C++
"""Bugs in functions that the CPU can call."""


@pytest.fixture(autouse=True)
def numpy_for_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", NumpyCupy())


def failure(kernel: registry.Kernel, run) -> str:
    """The first message of the gate on its cases, cut down; "" where all pass. `run` gives C of A[m,k] and B[k,n]."""

    def launch(given) -> None:
        shape = given.shape
        a, b = (np.array(one) for one in given.inputs)
        try:
            given.output[...] = run(a.reshape(shape.m, shape.k), b.reshape(shape.k, shape.n))
        except UserError as error:
            refused.append(str(error))

    refused: list[str] = []
    cut = {axis: most // (step := kernel.accepts.multiple_of.get(axis, 1)) * step for axis, most in SMALL.items()}
    cases = {
        replace(case, shape=Shape(**{axis: min(most, getattr(case.shape, axis)) for axis, most in cut.items()})): None
        for case in gemm_cases.gemm_cases(kernel, [1])
    }
    for case in cases:
        verdict = gemm.run_case(SESSION, launch, case, kernel.problem, repeats=1, kernel=kernel).verdict
        if refused or not verdict.passed:
            return refused[0] if refused else verdict.message
    return ""


def tiles(kernel: registry.Kernel):
    return lambda a, b: cpu_tile.Launches(kernel, a, b).run()


@pytest.mark.parametrize("name", OZAKI)
def test_a_bug_in_a_tile_is_caught(name, tmp_path) -> None:
    kernel, text = PLANTS[name].apply()
    source = tmp_path / "changed.py"
    source.write_text(text)
    message = failure(kernel, tiles(replace(kernel, source=str(source))))
    assert message, f"{name} went unnoticed"


@pytest.mark.parametrize("kernel_id", ["ozaki.fused_bf16_d5", "ozaki.rows_bf16_d9"])
def test_the_sources_as_they_are_pass(kernel_id) -> None:
    kernel = registry.kernel(kernel_id)
    assert failure(kernel, tiles(kernel)) == ""


def compiled(folder, changed=None) -> Device:
    """The headers of crt, `changed` by name, on the CPU."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not on PATH")
    return Device(folder, 15, 1, changed)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory) -> Device:
    return compiled(tmp_path_factory.mktemp("crt"))


def product_on(made, kernel):
    """The product as crt's headers make it: in blocks whose halves are whole quads, or by rows that are."""

    def run(a, b):
        (m, k), n = a.shape, b.shape[1]
        blocks = kernel.rung == "R9"
        a = np.pad(a, ((0, -m % 2 * blocks), (0, -k % (8 if blocks else 4))))
        b = np.pad(b, ((0, a.shape[1] - k), (0, -n % 8 * blocks)))
        with np.errstate(invalid="ignore"):
            if blocks:
                return made.gemm_in_blocks(a, b)[:m, :n]
            return made.gemm(a, b, kernel.id == "crt.accurate")

    return run


@pytest.mark.parametrize("name", DEVICE)
def test_a_bug_in_a_header_is_caught(name, tmp_path) -> None:
    plant = PLANTS[name]
    kernel = registry.kernel(plant.kernel)
    made = compiled(tmp_path, {plant.header: plant.apply()[1]})
    message = failure(kernel, product_on(made, kernel))
    assert message, f"{name} went unnoticed"


@pytest.mark.parametrize("kernel_id", ["crt.fused", "crt.accurate", "crt.winograd"])
def test_the_headers_as_they_are_pass(kernel_id, unchanged) -> None:
    kernel = registry.kernel(kernel_id)
    assert failure(kernel, product_on(unchanged, kernel)) == ""


HOPPER = [kernel for kernel in registry.kernels("hopper") if kernel.compute.op == "gemm"]


@pytest.mark.parametrize("name", PLANTS)
def test_a_plant_finds_its_place(name):
    kernel, source = PLANTS[name].apply()
    assert kernel != registry.kernel(kernel.id) or source != kernel.source_path.read_text()
    shapes = PLANTS[name].shapes()
    assert shapes != set(), "the kernel has no shapes of its own"
    if (
        shapes is not None and kernel.compute.op == "gemm"
    ):  # an operation on vectors is tried on its own shapes and others
        assert shapes <= {case.shape for case in gemm_cases.gemm_cases(registry.kernel(kernel.id), [1])}


@pytest.mark.parametrize("sms", [4, 16, 17, 114, 132])
@pytest.mark.parametrize(
    "kernel", [kernel for kernel in HOPPER if "worth" in kernel.params], ids=lambda kernel: kernel.id
)
def test_a_shape_of_its_own_makes_stream_k_cut_tiles(kernel, sms, monkeypatch):
    """And nothing else does: the shapes of every kernel are too small for it."""
    monkeypatch.setattr(card, "_at_hand", card.Card(sms, 700.0))

    def saved(shape):
        tiles = math.ceil(shape.m / 256) * math.ceil(shape.n / 256)
        steps, clusters = math.ceil(shape.k / kernel.params["bk"]), math.prod(kernel.launch(shape).grid) // 2
        return (clusters - tiles % clusters) * steps // clusters if tiles % clusters else 0

    cut = {case.shape for case in gemm_cases.gemm_cases(kernel, [1]) if saved(case.shape) >= kernel.params["worth"]}
    assert cut == set(kernel.promises.gate_shapes)
    assert any(shape.k % kernel.params["bk"] for shape in cut), "with a tail along K"
