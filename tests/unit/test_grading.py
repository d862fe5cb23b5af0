"""The grading test refuses Strassen's step in floating point and passes it on residues, as R9 of crt takes it."""

from __future__ import annotations

import shutil

import grading
import numpy as np
import pytest
from test_crt import Device

from gemmrepro import registry

SHAPE = (48, 32, 64)
R9 = [kernel.params["moduli"] for kernel in registry.kernels("crt") if kernel.rung == "R9"]


@pytest.mark.parametrize("law", grading.INPUTS)
def test_it_tells_classical_products_from_strassens(law: str) -> None:
    """The controls are products: with integers they are exact."""
    rng = np.random.default_rng(1)
    a, b = grading.INPUTS[law](rng, *SHAPE)
    assert grading.faults(a, b, a @ b) == []
    whole_a, whole_b = rng.integers(-8, 9, a.shape).astype(float), rng.integers(-8, 9, b.shape).astype(float)
    for name, control in grading.CONTROLS.items():
        assert (control(whole_a, whole_b) == whole_a @ whole_b).all(), name
        wanted = [grading.ZEROS] if law == "uniform" else [grading.ZEROS, grading.BOUND]
        assert grading.faults(a, b, control(a, b)) == wanted, name


@pytest.mark.parametrize("count", R9)
def test_winograds_form_on_residues_passes(count: int, tmp_path) -> None:
    """By the headers of kernels/crt themselves."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not on PATH")
    device = Device(tmp_path, count, 1)
    for law, draw in grading.INPUTS.items():
        a, b = draw(np.random.default_rng(1), *SHAPE)
        assert grading.faults(a, b, device.gemm_in_blocks(a, b)) == [], law
