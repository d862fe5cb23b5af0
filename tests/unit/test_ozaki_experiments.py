"""The experiments of the family ozaki on the CPU: NumPy stands in for CuPy, and kernels run as in cpu_tile."""

import sys
from dataclasses import replace
from typing import Any

import cpu_tile
import numpy as np
import pytest

from gemmrepro import experiments, operands, registry, timing
from gemmrepro.core.dtypes import widen
from gemmrepro.experiments.run import Subject
from gemmrepro.gpu import baselines
from gemmrepro.gpu.cublas import Trials

FUSED, ROWS, NAIVE = "ozaki.fused_bf16_d9", "ozaki.rows_bf16_d9", "ozaki.naive_bf16"
LIBRARY = Subject("cublas.gemm", "library", "v")


class Timer:
    """Launches, and says that it took 30 ms."""

    def __init__(self, session: Any) -> None:
        pass

    def once(self, call: Any) -> float:
        call()
        return 30_000.0


class Loaded:
    def __init__(self, name: str) -> None:
        self.kernel = registry.kernel(name)
        self._made: dict[int, cpu_tile.Launches] = {}

    def launches(self, given: operands.Operands) -> cpu_tile.Launches:
        if id(given) not in self._made:
            m, n, k = given.shape.m, given.shape.n, given.shape.k
            a, b = given.inputs
            made = cpu_tile.Launches(self.kernel, a.reshape(m, k), b.reshape(k, n))
            made.operands["c"] = given.output.reshape(m, n)
            self._made[id(given)] = made
        return self._made[id(given)]

    def bind(self, given: operands.Operands):
        return lambda: self.launches(given).run()


class Context:
    """What gemmrepro.experiment.Context is to `measure`, without a GPU."""

    def __init__(self, experiment: experiments.Experiment, names: list[str]) -> None:
        self.experiment, self.parameters, self.session = experiment, experiment.parameters, self
        self.settings, self.trials = experiment.settings, Trials()
        self.subjects = [Subject(name, "cuda13", "k") for name in names] + [LIBRARY] * ("pair" not in names[0])
        self._loaded: dict[str, Loaded] = {}

    def sync(self) -> None:
        pass

    def kernel(self, subject: Subject) -> registry.Kernel:
        return registry.kernel(subject.kernel)

    def loaded(self, subject: Subject) -> Loaded:
        return self._loaded.setdefault(subject.kernel, Loaded(subject.kernel))

    def bind(self, subject: Subject, given: operands.Operands):
        if subject.toolkit == "library":
            return self.bind_library(subject.kernel, given)
        if self.kernel(subject).run.steps:
            return self.loaded(subject).bind(given)

        def pair() -> None:
            a, b = (widen(values, given.problem.dtype_in) for values in given.inputs)
            given.output[...] = (a @ b.T).astype(np.float32)

        return pair

    def bind_library(self, name: str, given: operands.Operands):
        m, n, k = given.shape.m, given.shape.n, given.shape.k

        def call() -> None:
            given.output.reshape(m, n)[...] = given.inputs[0].reshape(m, k) @ given.inputs[1].reshape(k, n)

        return call

    def row(self, subject: Subject, **cells: Any) -> dict[str, Any]:
        assert set(cells) == {column.name for column in self.experiment.columns}
        return {"kernel": subject.kernel, **cells}


@pytest.fixture
def measure(monkeypatch):
    """Runs an experiment of the family with some parameters changed; returns its rows."""
    monkeypatch.setitem(sys.modules, "cupy", np)
    monkeypatch.setattr(timing, "Timer", Timer)

    def random(problem, shape, seed):
        rng = np.random.default_rng(seed)
        return [rng.standard_normal(shape.m * shape.k), rng.standard_normal(shape.k * shape.n)], np.zeros(
            shape.m * shape.n
        )

    monkeypatch.setattr(operands, "random", random)
    library = type("Library", (), {"bind": lambda self, *_: lambda: None})()
    monkeypatch.setattr(baselines, "baseline", lambda name: library)

    def run(
        name: str, kernels: list[str], settings: dict[str, Any] | None = None, **parameters: Any
    ) -> list[dict[str, Any]]:
        declared = experiments.with_settings(experiments.experiment("ozaki", name), settings or {})
        changed = replace(declared, parameters={**declared.parameters, **parameters})
        context = Context(changed, kernels)
        return [row for point in changed.points(changed.parameters) for row in changed.measure(context, point)]

    return run


def test_products_count_and_judge_what_they_multiply(measure):
    found = measure("products", [FUSED, NAIVE], {"rounds": 1, "most": 1}, ns=[32], sampled=12)
    rows = {row["kernel"]: row for row in found}
    fused, naive, library = rows[FUSED], rows[NAIVE], rows["cublas.gemm"]
    assert (fused["slices_a"], fused["pairs"], fused["d"], naive["d"]) == (7, 39, 9, None)
    assert naive["pairs"] == naive["slices_a"] * naive["slices_b"] >= 49
    assert fused["share"] == pytest.approx(39) and library["share"] is None
    # All bits are taken: right to the last place, where the fused split drops some.
    assert naive["err_fro"] < 3e-16 < fused["err_fro"] < 1e-14
    assert library["err_article"] == 0 < naive["err_article"]
    assert 5 <= fused["d_random"] <= fused["d_worst"] <= 9


def test_a_scheme_that_refuses_operands_says_why(measure):
    (row,) = (
        row
        for row in measure("accuracy", [NAIVE], n=16, phis=[], laws=["wider"], ks=[], narrow=8)
        if row["kernel"] == NAIVE
    )
    assert row["err_fro"] is None and row["refused"].startswith("after 32 slices of A something is left")


@pytest.fixture(autouse=True)
def wider(monkeypatch):
    from gemmrepro.ozaki import inputs

    monkeypatch.setitem(inputs.INPUTS, "wider", inputs.graded(400))


def test_sums_that_are_not_exact_are_counted(measure):
    rows = measure("accumulator", ["ozaki.pair_fp16_32"], m=8, n=8, betas={"fp16": [5, 11]}, ks=[64, 4096])
    wrong = {(row["law"], row["beta"], row["k"]): row["wrong"] for row in rows}
    assert all(share == 0 for (_, beta, _), share in wrong.items() if beta == 5)
    assert wrong["same sign", 11, 4096] > 0.5  # rounded to fp32 at the end, as it is here
    assert {row["tile_k"] for row in rows} == {32}
    assert max(row["bits"] for row in rows if row["k"] == 4096) > 24
