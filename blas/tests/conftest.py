"""Fixtures of the tests of gemmrepro_blas."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
from blas_fakes import gpu

from gemmrepro_blas import UserError
from gemmrepro_blas.table import table, usable

__all__ = ["gpu"]


@pytest.fixture(scope="session")
def on_hopper() -> Callable[[str], ModuleType]:
    """CuPy, where there is a Hopper GPU and the binary of a kernel; elsewhere its tests are skipped."""

    def cupy_for(kernel: str) -> ModuleType:
        cupy = pytest.importorskip("cupy")
        if cupy.cuda.Device().compute_capability != "90":
            pytest.skip("gemmrepro_blas runs on Hopper")
        try:
            usable(kernel)
        except UserError as error:
            pytest.skip(str(error))
        return cupy

    return cupy_for


@pytest.fixture(scope="module")
def cp(on_hopper: Callable[[str], ModuleType]) -> ModuleType:
    return on_hopper(table()["dgemm"])
