"""gemmrepro_blas.sgemm without a GPU: what it takes, and what it launches, in which order."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_dgemm import OnGpu, fake_cupy

import gemmrepro_blas
from gemmrepro import registry
from gemmrepro.build.key import keyed
from gemmrepro.build.toolkit import Toolkit
from gemmrepro.errors import UserError
from gemmrepro.operations import Shape
from gemmrepro_blas import library, program, single
from gemmrepro_blas.matrices import SINGLES, Matrix, matrix


def singles(rows: int, columns: int) -> OnGpu:
    return OnGpu(np.zeros((rows, columns), np.float32))


@pytest.mark.parametrize(
    ("arrays", "more", "message"),
    [
        ((OnGpu(np.zeros((3, 4))), singles(4, 6)), {}, "A holds <f8 and sgemm multiplies float32; convert A"),
        ((singles(3, 4), np.zeros((4, 6), np.float32)), {}, "B is on the host"),
        ((singles(3, 4), [[1.0]]), {}, "B is a list; sgemm takes arrays of CuPy or PyTorch"),
        ((singles(3, 4), singles(5, 6)), {}, "A is 3 x 4 and B is 5 x 6; A needs as many columns"),
        ((singles(3, 4), singles(4, 6)), {"accuracy": "best"}, "accuracy is 'best'; choose one of 'element'"),
        ((singles(3, 4), singles(4, 6)), {"beta": 1.0}, r"beta is 1\.0, but there is no C"),
        ((singles(3, 4), singles(4, 6)), {"alpha": "2"}, "alpha is '2'; pass a real number"),
        ((singles(3, 4), singles(4, 6)), {"c": OnGpu(np.zeros((3, 6)))}, "C holds <f8 and sgemm multiplies float32"),
        ((singles(3, 4), singles(4, 6)), {"c": singles(6, 3)}, "C is 6 x 3; pass one of 3 x 6"),
        (
            (singles(3, 4), singles(4, 6)),
            {"c": singles(3, 6), "binary": "none.fatbin"},
            r"the binary none\.fatbin is missing; build it with .*sgemm\.bf16_x6\.fatbin",
        ),
    ],
)
def test_what_does_not_fit_is_refused(arrays: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        gemmrepro_blas.sgemm(*arrays, **more)


def test_a_c_that_shares_memory_with_a_factor_is_refused() -> None:
    whole = np.zeros((8, 8), np.float32)
    with pytest.raises(UserError, match="C shares memory with B"):
        gemmrepro_blas.sgemm(singles(4, 4), OnGpu(whole[:4, :4]), OnGpu(whole[3:7, 3:7]))


def test_elements_of_four_bytes_are_found_where_they_lie() -> None:
    whole = np.zeros((9, 10), np.float32)
    for array in (whole, whole[2:5, 1:7], whole.T[1:4, 2:6]):
        found = matrix(OnGpu(array), "A", kind=SINGLES)
        for (i, j), _ in np.ndenumerate(array):
            at = found.pointer + 4 * (i + j * found.ld if found.by_columns else i * found.ld + j)
            assert at == array.ctypes.data + i * array.strides[0] + j * array.strides[1]
            assert found.from_column(j, array.shape[1]).from_row(i, array.shape[0]).pointer == at


def test_nothing_is_launched_into_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cupy(monkeypatch, True, 0)
    with pytest.raises(UserError, match="is being captured, and sgemm takes memory from CuPy's pool"):
        gemmrepro_blas.sgemm(singles(3, 4), singles(4, 6), singles(3, 6), binary=__file__)


def test_a_binary_of_other_sources_is_refused(tmp_path: Path) -> None:
    built, kernel = tmp_path / "cuda13", registry.kernel("sgemm.remainders")
    built.mkdir()
    fatbin = built / f"{kernel.id}.fatbin"
    fatbin.write_bytes(b"x")
    record = keyed(kernel, Toolkit("cuda13", "13.4.92", frozenset())).to_json()
    fatbin.with_suffix(".json").write_text(json.dumps(record | {"build_key": "f" * 16}))
    with pytest.raises(UserError, match=r"sgemm\.remainders in .* was built from other sources than today's"):
        program.usable(None, built, kernel.id)
    fatbin.with_suffix(".json").write_text(json.dumps(record))
    assert program.usable(None, built, kernel.id) == fatbin


class Array(SimpleNamespace):
    """An array of the workspace, which lies at its name."""


def launched(monkeypatch: pytest.MonkeyPatch, name: str, a: Matrix, b: Matrix, c: Matrix) -> list[tuple[str, Any, Any]]:
    """Entry point, launch and arguments of each kernel; an array of the workspace stands as its name."""
    loaded = single.Program.__new__(single.Program)
    loaded.kernel = registry.kernel(name)
    loaded._steps = {step.entry: step for step in loaded.kernel.own_launches}
    found: list[tuple[str, Any, Any]] = []

    def workspace(shape: Shape) -> dict[str, Any]:
        buffers = loaded.kernel.run.workspace.items()
        return {each: Array(data=SimpleNamespace(ptr=each), shape=buffer.lengths(shape)) for each, buffer in buffers}

    monkeypatch.setattr(loaded, "workspace", workspace)
    monkeypatch.setattr(loaded, "_map", lambda step, each, array: f"map:{each}")
    monkeypatch.setattr(loaded, "_launch", lambda stream, entry, launch, *rest: found.append((entry, launch, [*rest])))
    loaded.run(a, b, c, (2.0, 3.0), None)
    return found


@pytest.mark.parametrize("name", single.ACCURACIES.values())
def test_row_major_operands_are_launched_as_the_record_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Shape(700, 1030, 600)
    a, b, c = (matrix(singles(*size), "X", kind=SINGLES) for size in ((700, 600), (600, 1030), (700, 1030)))
    names = {"m": 700, "n": 1030, "k": 600, "a": a.pointer, "b": b.pointer, "c": c.pointer, "alpha": 2.0, "beta": 3.0}
    calls, steps = launched(monkeypatch, name, a, b, c), registry.kernel(name).own_launches
    assert [entry for entry, _, _ in calls] == [step.entry for step in steps]
    for (entry, launch, arguments), step in zip(calls, steps, strict=True):
        assert launch == step.launch(shape), entry
        assert arguments == [names.get(str(argument), argument) for argument in step.arguments], entry


@pytest.mark.parametrize("name", ["sgemm.bf16_x6", "sgemm.remainders"])
@pytest.mark.parametrize("turned", [(False, True), (True, False), (True, True)])
def test_transposed_operands_take_the_launches_of_their_layout(
    name: str, turned: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stored(rows: int, columns: int, by_columns: bool) -> Matrix:
        one = singles(columns, rows).array.T if by_columns else singles(rows, columns).array
        return matrix(OnGpu(one), "X", kind=SINGLES)

    a, b, c = stored(300, 200, turned[0]), stored(200, 400, turned[1]), stored(300, 400, False)
    calls = launched(monkeypatch, name, a, b, c)
    cuts = [call for call in calls if call[0].startswith(("row", "column"))]
    by_rows = [entry.startswith("row") for entry, _, _ in cuts]
    assert by_rows.count(True) == (not turned[0]) + turned[1] and len(cuts) == 4 - by_rows.count(True)
    assert all(arguments[:2] in ([a.pointer, a.ld], [b.pointer, b.ld]) for _, _, arguments in cuts)
    for _, launch, arguments in cuts:
        lines = arguments[-2]
        assert arguments[-1] == 200 and lines in (300, 400) and launch.grid[0] in (lines, -(-lines // 32))


def test_long_sums_are_cut_into_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """beta counts once; with alpha = 0 nothing is multiplied."""
    runs: list[Any] = []

    class Loaded:
        def run(self, a: Matrix, b: Matrix, c: Matrix, scalars: Any, stream: Any) -> None:
            runs.append((a.columns, b.rows, scalars))

    fake_cupy(monkeypatch, False, 0)
    handle = SimpleNamespace(from_handle=lambda handle: handle)
    monkeypatch.setitem(sys.modules, "cuda.core", SimpleNamespace(Stream=handle))
    monkeypatch.setattr(single, "program", lambda *which: Loaded())
    monkeypatch.setattr(library, "scale", lambda c, beta: runs.append(("scale", beta)))
    a, b, c = singles(2, 150_000), singles(150_000, 3), singles(2, 3)
    assert gemmrepro_blas.sgemm(a, b, c, beta=2.0, accuracy="norm", binary=__file__) is c
    assert runs == [(65536, 65536, (1.0, 2.0)), (65536, 65536, (1.0, 1.0)), (18928, 18928, (1.0, 1.0))]
    runs.clear()
    gemmrepro_blas.sgemm(a, b, c, alpha=0.0, beta=2.0, binary=__file__)
    assert runs == [("scale", 2.0)]
