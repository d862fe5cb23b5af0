"""Whole calls of dgemm on a machine without a GPU: the package's launches, run by R17's source on the CPU.

In a process of its own, whose libcuda is `cpu_driver.cpp`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tests/unit"))

import hopper_grid
import staged

ROOT = Path(__file__).parents[2]

CALLS = """
import sys, types
import numpy as np

cupy = types.ModuleType("cupy")
class Memory:
    def __init__(self, size):
        self.held = np.full(size + 256, 0xC3, np.uint8)
        self.ptr = self.held.ctypes.data + -self.held.ctypes.data % 256
stream = types.SimpleNamespace(ptr=0)
cupy.cuda = types.SimpleNamespace(alloc=Memory, get_current_stream=lambda device: stream)
sys.modules["cupy"] = cupy

import gemmrepro_blas as blas
from gemmrepro_blas import certified, library, program

class Array:
    def __init__(self, x):
        self.x, self.__cuda_array_interface__ = x, x.__array_interface__

certified.pays = lambda *shape: True
program._dgemm().params["long"] = 64
blocks = 0
def listed(*given, plain=program._listed):
    global blocks
    blocks += 1
    return plain(*given)
program._listed = listed
LAWS = ("normal", "one row of tiles in double")
m, n, k = map(int, sys.argv[1:4])
for law in LAWS:
    rng = np.random.default_rng(1)
    a, b, c0 = rng.standard_normal((m, k)), rng.standard_normal((k, n)), rng.standard_normal((m, n))
    if law != "normal":
        a[130:140] *= np.exp(14 * rng.standard_normal((10, k)))
    exact = -0.5 * (a.astype(np.longdouble) @ b.astype(np.longdouble)) + 2 * c0
    scale = 0.5 * abs(a) @ abs(b)
    results = []
    least = sum(each.total for each in program.decision(program.Shape(m, n, k)))
    some, more = least + 1_300_000, least + 2_600_000
    for turned in ((False, True) if law == "normal" else (False,)):
        stored = [np.ascontiguousarray(x.T).T if turned else x for x in (a, b)]
        held = blas.prepare(Array(stored[1]), binary=sys.argv[4])
        for right, workspace in ((Array(stored[1]), None), (Array(stored[1]), some), (held, None), (held, more)):
            blocks = 0
            c = c0.copy()
            _, how = blas.dgemm(Array(stored[0]), right, Array(c), alpha=-0.5, beta=2.0, details=True,
                                workspace=workspace, binary=sys.argv[4])
            assert (blocks > 1) == (workspace is not None), blocks
            assert how.moduli and (how.native_tiles > 0) == (law != "normal"), how
            allowed = max(how.gamma, k * 2.0**-53) * scale + 3 * 2.0**-53 * (abs(exact) + abs(2 * c0))
            error = float((abs(c - exact) / allowed).max())
            results.append((c, how, error))
            assert error < 1, (law, turned, workspace, error)
    same = [(one == results[0][0]).all() for one, _, _ in results]
    print(law, results[0][1], max(error for _, _, error in results), same)
    assert all(same)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where libcuda.so.1 is, and a binary that it takes."""
    made = tmp_path_factory.mktemp("driver")
    source = hopper_grid.as_model(staged.source_text("R17"))
    text = (Path(__file__).parent / "cpu_driver.cpp").read_text().replace("SOURCE;", source)
    (made / "driver.cpp").write_text(f'#include "certified_grid.hpp"\n{text}')
    flags = (*hopper_grid.COMMON, *hopper_grid.EXACT, "-fPIC", "-shared", "-DSHARED_TILES", "-DLONG=64", "-DFIRST_WAVE")
    engine = hopper_grid.FOLDER / "hopper_grid.cpp"
    subprocess.run([*flags, "-O1", "-o", made / "libcuda.so.1", made / "driver.cpp", engine], check=True)
    (made / "x.fatbin").write_bytes(b"\x7fELF")
    return made


@pytest.mark.parametrize("shape", [(300, 400, 70), (512, 200, 70)])
def test_blocks_and_prepared_factors_have_the_bits_of_the_whole(folder: Path, shape: tuple[int, int, int]) -> None:
    """Within the bound of exact sums, by rows and by columns, some tiles in double; with K of shared tiles, or not."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": f"{ROOT}/workflow:{ROOT}/blas"}
    words = (*map(str, shape), str(folder / "x.fatbin"))
    found = subprocess.run(
        [sys.executable, "-c", CALLS, *words], env=environment, capture_output=True, text=True, check=False
    )
    print(found.stdout)
    assert found.returncode == 0, found.stderr[-3000:]
