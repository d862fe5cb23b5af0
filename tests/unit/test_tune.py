"""Tuning without a GPU: the space, the search on invented timings, what is left out and why, winners, candidates."""

import contextlib
import csv
import io
import json
import signal
import sys
from dataclasses import replace

import numpy as np
import pytest
import test_cheats as simulated
from records import record
from test_cheats import gpu  # noqa: F401

from gemmrepro import __main__ as command
from gemmrepro import registry, timing
from gemmrepro.build import key, nvcc
from gemmrepro.core import paths
from gemmrepro.errors import UserError
from gemmrepro.gates import gemm
from gemmrepro.gates.gate import Judged, Verdict
from gemmrepro.gpu import baselines, device
from gemmrepro.operands import Operands
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel, Launch, Tunable, families
from gemmrepro.registry.keys import compiled
from gemmrepro.tune import bench as benches
from gemmrepro.tune import stage
from gemmrepro.tune.bench import Listing
from gemmrepro.tune.stage import install

SOURCE = """\
#ifndef PARAMETERS  // the tuner may pass its own
#define PARAMETERS TILE = 32, STEPS = 4
#endif
constexpr int PARAMETERS;
static_assert(TILE * STEPS <= 256, "the tile is too large");
__global__ void unrelated() {}
extern "C" __global__ void scale(int m, int n, int k, float alpha, const float* A, const float* B, float beta,
                                 float* C) {
    __shared__ float tile[TILE];
    tile[threadIdx.x % TILE] = A[threadIdx.x];
    __syncthreads();
    for (int i = 0; i < STEPS; ++i) C[blockIdx.x * STEPS + i] = alpha * tile[i];
}
"""
SIZES = [128, 256]
SMALL = Shape.cube(32)


def kernel_of(params, source) -> Kernel:
    return record(
        "ladder.scale_tuned",
        source=str(source),
        entry="scale",
        launch=lambda shape: Launch((shape.n // params["tile"], 1, 1), (params["tile"], 1, 1), shared_bytes=1024),
        params=dict(params),
        multiple_of={"n": params["tile"]},
        defines=registry.parameters(params),
    )


@pytest.fixture
def tunable(tmp_path, monkeypatch) -> Tunable:
    """A tunable of six candidates over a source of its own, in a folder of kernels of its own."""
    source = tmp_path / "kernels" / "scale.cu"
    source.parent.mkdir()
    source.write_text(SOURCE)
    made = Tunable(
        "ladder.scale_tuned",
        {"tile": (32, 64, 128), "steps": (2, 4, 8)},
        lambda params: params["tile"] * params["steps"] <= 256,
        lambda params: kernel_of(params, source),
    )
    monkeypatch.setattr(paths, "KERNELS_DIR", source.parent)
    monkeypatch.setattr(families, "tunables", lambda family=None: (made,))
    return made


def test_every_allowed_combination_is_a_candidate_with_a_name_of_its_own(tunable):
    found = benches.candidates(tunable)
    allowed = [(32, 2), (32, 4), (32, 8), (64, 2), (64, 4), (128, 2)]
    assert [tuple(candidate.params.values()) for candidate in found] == allowed
    assert len({candidate.digest for candidate in found}) == len(found)
    assert len({key.build_key(candidate.kernel, "13.0") for candidate in found}) == len(found)
    assert found[0].digest == benches.Candidate({"steps": 2, "tile": 32}, found[0].kernel).digest
    assert str(found[0]) == "tile=32 steps=2"
    with pytest.raises(UserError, match=r"the space of ladder\.scale_tuned allows no combination"):
        benches.candidates(replace(tunable, allowed=lambda params: False))


def row(candidate, **changes):
    found = {"target": "90", "error": None}
    found |= {"build_key": key.build_key(candidate.kernel, "13.0.88"), "registers": 40, "spill_bytes": 0}
    return found | {"shared_bytes": 512} | changes


def listing_file(folder, tunable, changes=lambda candidate: {}):
    """A candidates.json of an invented compilation, its binaries empty."""
    field = benches.candidates(tunable)
    content = {"kernel": tunable.id, "toolkit": "cuda13", "toolkit_version": "13.0.88", "target": "90"}
    folder.mkdir(exist_ok=True)
    (folder / "candidates.json").write_text(json.dumps(content | {"packages": None}))
    for candidate in field:
        (folder / f"{candidate.digest}.json").write_text(json.dumps(row(candidate, **changes(candidate))))
        (folder / f"{candidate.digest}.fatbin").write_bytes(b"")
    return folder


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path, tunable: path.unlink(), r"is missing; run the compile step again: .*--kernel ladder\.scale"),
        (lambda path, tunable: path.write_text("{"), "is corrupt"),
        (lambda path, tunable: path.write_text(path.read_text().replace("scale_tuned", "else")), r"of ladder\.else"),
        (
            lambda path, tunable: next(iter(benches.candidates(tunable))).kernel.source_path.write_text("// new"),
            "other sources",
        ),
    ],
    ids=["missing", "cut", "another tunable", "edited"],
)
def test_a_listing_that_does_not_fit_is_refused(tunable, tmp_path, spoil, said):
    folder = listing_file(tmp_path / "built", tunable)
    spoil(folder / "candidates.json", tunable)
    with pytest.raises(UserError, match=said):
        Listing.read(folder, tunable)


LIMITS = benches.Limits(shared_bytes=2048, registers=65536, threads=1024)


@pytest.mark.parametrize(
    ("changes", "limits", "said"),
    [
        ({}, LIMITS, None),
        ({"error": "ptxas error: too much"}, LIMITS, "does not compile: ptxas error: too much"),
        ({"spill_bytes": 8}, LIMITS, "spills 8 bytes"),
        ({"shared_bytes": 1025}, LIMITS, "2049 bytes of shared memory per block are over the GPU's 2048"),
        ({}, replace(LIMITS, threads=16), "32 threads per block are over"),
        # 40 registers per thread are given to a warp as 5 * 256.
        ({}, replace(LIMITS, registers=1279), "1280 registers per block are over the GPU's 1279"),
    ],
)
def test_what_does_not_fit_is_left_out_with_the_reason(tunable, tmp_path, changes, limits, said):
    listing = Listing.read(listing_file(tmp_path / "built", tunable, lambda _: changes), tunable)
    found = listing.unfit(next(iter(listing.compiled)), [Shape.cube(1024)], limits)
    assert found is None if said is None else said in found


def rows(sizes, ratio):
    return {size: {"ratio": ratio} for size in sizes}


def test_a_third_and_then_five_go_on_and_the_fastest_wins():
    timed = {}

    def measure(stage, names, sizes):
        timed[stage.name] = (list(names), list(sizes))
        return {name: rows(sizes, 0.5 + int(name[1:]) / 100) for name in names}

    standings = benches.successive_halving([f"c{index:02}" for index in range(30)], SIZES, measure)
    assert [len(names) for names, _ in timed.values()] == [30, 10, 5]
    assert [sizes for _, sizes in timed.values()] == [SIZES[:1], SIZES, SIZES]
    assert list(standings)[:6] == ["c29", "c28", "c27", "c26", "c25", "c24"]
    assert [standings[name].stage for name in ("c25", "c24", "c20", "c19")] == ["final", "close", "close", "coarse"]
    assert len(standings) == 30
    assert benches.Standing("final", rows([1], 0.5) | rows([2], 2.0)).score == pytest.approx(1.0)


class Timer(simulated.Timer):
    def burst(self, calls, beside, cache, plan, estimates, graphs):
        assert cache == "warm"
        burst = timing.Burst(sensors=[{"clock_mhz": 1500, "power_w": 600.0, "temp_c": 50, "throttle": 0}])
        burst.add([(self._next(calls[0]), self._next(beside[0])) for _ in range(6)])
        return burst


@pytest.fixture
def session(gpu, monkeypatch):  # noqa: F811
    """A simulated H200, on which launches take (tile * steps) µs.

    The candidate of tile 64 and 2 steps is wrong in the gate's case, that of tile 32 and 4 steps at the larger size.
    """
    bound, products = [], {}

    def multiply(given):
        inputs = tuple(array[:8].tobytes() for array in given.inputs)
        if inputs not in products:
            products[inputs] = simulated.product(given)
        simulated.matrices(given)[2][...] = products[inputs]

    class Loaded:
        def __init__(self, session, binary):
            self.kernel, self.build_key, self.arch = binary.kernel, binary.build_key, binary.arch

        def bind(self, given):
            bound.append(self.kernel.params)
            tile, steps = self.kernel.params["tile"], self.kernel.params["steps"]

            def launch():
                multiply(given)
                if (tile, steps) == (32, 4) and given.shape.n == SIZES[1]:
                    given.output[...] += 1
                gpu.work(float(tile * steps))

            return launch

    def run_case(session, launch, case, problem, **shared):
        launch(Operands(problem, SMALL, *simulated_arrays))
        wrong = bound[-1] == {"tile": 64, "steps": 2}
        return Judged(case, Verdict(not wrong, None, None, "7 elements are wrong" if wrong else ""), 0.0)

    simulated_arrays = (tuple(np.zeros(1024, np.float32) for _ in "ab"), np.zeros(1024, np.float32))
    monkeypatch.setattr(benches, "Loaded", Loaded)
    monkeypatch.setattr(gemm, "run_case", run_case)
    monkeypatch.setattr(timing, "Timer", type("Simulated", (Timer,), {"gpu": gpu}))
    monkeypatch.setattr(benches.Limits, "here", lambda: LIMITS)
    honest = lambda _, given: lambda: multiply(given) or gpu.work(1000.0)  # noqa: E731
    library = baselines.Baseline("cublas.sgemm", "cuBLAS", "gemm", honest, lambda _: "cuBLAS 13.1")
    monkeypatch.setitem(baselines.BASELINES, "cublas.sgemm", library)
    return simulated.session_on(name="NVIDIA H200", slug="h200", driver="580.1", driver_cuda=(13, 0))


@pytest.fixture
def bench(session, tunable, tmp_path):
    """Opens the bench anew, as a second process would."""

    def spill(candidate):
        return {"spill_bytes": 16} if candidate.params["steps"] == 8 else {}

    listing = Listing.read(listing_file(tmp_path / "built", tunable, spill), tunable)
    return lambda: benches.Bench(session, listing, tmp_path / "journal")


def test_a_search_from_the_listing_to_the_winner(bench, tunable, tmp_path):
    out, table = tmp_path / "out.json", tmp_path / "out.csv"
    benches.search(bench(), SIZES, out)
    result = json.loads(out.read_text())
    assert result["count"] == {"candidates": 6, "timed": 3}
    assert result["winner"]["params"] == {"tile": 32, "steps": 2}
    assert result["winner"]["score"] == pytest.approx(1000 / 64, rel=1e-3)
    found = result["winner"]["sizes"][str(SIZES[1])]
    assert found["ratio"] == pytest.approx(1000 / 64, rel=1e-3)
    assert found["tflops"] == pytest.approx(2 * SIZES[1] ** 3 / 64e-6 * 1e-12, abs=0.005)
    assert result["gpu"]["slug"] == "h200" and result["baseline"]["version"] == "cuBLAS 13.1"
    table_rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert len(table_rows) == 6
    assert (table_rows[0]["tile"], table_rows[0]["steps"], table_rows[0]["stage"]) == ("32", "2", "final")
    left_out = {(entry["tile"], entry["steps"]): entry["left_out"] for entry in table_rows if entry["left_out"]}
    assert left_out[("32", "8")] == "spills 16 bytes"
    assert "7 elements are wrong" in left_out[("64", "2")]
    assert f"wrong at {Shape.cube(SIZES[1])}" in left_out[("32", "4")]
    assert float(table_rows[0][f"us_{SIZES[0]}"]) == 64.0


def test_a_candidate_that_fails_ends_the_process_and_is_left_out_by_the_next(bench, monkeypatch, tmp_path):
    first = bench()
    names = list(first.listing.candidates)

    def crash(self, session, binary):
        raise RuntimeError("illegal memory access")

    with monkeypatch.context() as patch:
        patch.setattr(benches.Loaded, "__init__", crash)
        with pytest.raises(benches.Broken):
            first.judge(names[:2])
    again = bench()
    assert again.verdict(names[0]) == "illegal memory access" and again.judge(names[:2]) == names[1:2]
    benches.marker(tmp_path / "journal").write_text(names[1])
    assert bench().verdict(names[1]) == "", "its process was ended by somebody"
    with pytest.raises(OSError, match="full"), again.at_work(names[2]):  # which is no candidate's fault
        assert benches.suspect(tmp_path / "journal") == names[2]
        assert signal.getitimer(signal.ITIMER_REAL)[0] > benches.HANG_SECONDS / 2, "a hang would end it"
        raise OSError("the disk is full")
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0 and bench().verdict(names[2]) is None
    library = baselines.baseline("cublas.sgemm")
    wrong = replace(library, bind=lambda _, given: lambda: given.output.fill(1))
    monkeypatch.setitem(baselines.BASELINES, "cublas.sgemm", wrong)
    with pytest.raises(UserError, match=r"cublas\.sgemm is wrong at .*nothing is compared with it"):
        again.measure(benches.STAGES[0], names[1:2], SIZES[:1])


def test_candidates_of_another_gpu_and_too_old_a_driver_are_refused(bench, session):
    session.gpu.compute_capability, session.gpu.arch = (8, 6), "sm_86"
    with pytest.raises(UserError, match=r"compiled for sm_90 and this is the NVIDIA H200 \(sm_86\).*--arch 86"):
        bench()
    session.gpu.compute_capability, session.gpu.driver_cuda = (9, 0), (12, 4)
    with pytest.raises(UserError, match=r"driver 580\.1 is too old for what CUDA 13\.0\.88 compiled"):
        bench()


def test_the_measuring_process_tells_its_supervisor_how_it_ended(bench, session, tunable, tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "end_with_parent", lambda: None)
    monkeypatch.setattr(device, "open_gpu", lambda card: session)
    monkeypatch.setattr(device, "exclusive", lambda session: contextlib.nullcontext())
    out = tmp_path / "out.json"

    def run():
        places = ("--candidates", str(tmp_path / "built"), "--out", str(out))
        sizes = ",".join(map(str, SIZES))
        return command.run(["tune-measure", "--worker", "--kernel", tunable.id, "--sizes", sizes, *places])

    with monkeypatch.context() as patch:
        patch.setattr(gemm, "run_case", lambda *_, **shared: 1 / 0)
        assert run() == benches.REPLACE
    assert not out.exists()
    assert run() == 0
    assert json.loads(out.read_text())["count"]["timed"] == 2 and out.with_suffix(".csv").is_file()


WORKER = """\
import os, pathlib, signal, sys, time
journal = pathlib.Path(sys.argv[1])
runs = journal / "runs"
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
marker = journal / "at-work"
number = len(runs.read_text())
(journal / f"seen-{number}").write_text(marker.read_text() if marker.exists() else "")
if number == 1:
    marker.write_text("abc")
    DOES
marker.unlink(missing_ok=True)
sys.exit(ENDS)
"""


@pytest.mark.parametrize(
    ("does", "ends", "code", "runs", "seen"),
    [
        ("pass", 1, 1, 1, None),
        ("marker.write_text('abc it failed'); sys.exit(76)", 0, 0, 2, "abc it failed"),
        ("os.abort()", 0, 0, 2, "abc its process ended with code -6"),
        ("signal.setitimer(signal.ITIMER_REAL, 0.1); time.sleep(600)", 0, 0, 2, "abc it did not end within 60 s"),
        ("os.kill(os.getpid(), 15)", 0, -15, 1, None),
    ],
    ids=["error", "broken", "crash", "hang", "ended by somebody"],
)
def test_the_process_is_replaced_only_where_a_candidate_is_at_fault(tmp_path, does, ends, code, runs, seen):
    script = tmp_path / "worker.py"
    script.write_text(WORKER.replace("DOES", does).replace("ENDS", str(ends)))
    benches.marker(tmp_path).write_text("left-by-a-run-that-was-killed")
    assert benches.supervise([sys.executable, str(script), str(tmp_path)], tmp_path) == code
    assert len((tmp_path / "runs").read_text()) == runs
    assert (tmp_path / "seen-1").read_text() == ""
    if seen is not None:
        assert (tmp_path / "seen-2").read_text() == seen


def result_file(path, params, kernel="ladder.scale_tuned"):
    sizes = {"4096": {"tflops": 46.5, "ratio": 0.95}, "8192": {"tflops": 47.25, "ratio": 0.96}}
    content = {
        **{"kernel": kernel, "gpu": {"name": "", "slug": "h200"}, "driver": "580.1", "target": "90"},
        **{"toolkit": "cuda13", "toolkit_version": "13.4.92", "count": {"candidates": 6}},
        "baseline": {"id": "cublas.sgemm", "version": "cuBLAS 13.1"},
        "winner": {"params": params, "sizes": sizes},
    }
    path.write_text(json.dumps(content))
    return path


def test_an_installed_winner_is_what_the_registry_builds(tunable, tmp_path, monkeypatch):
    (target,) = install([result_file(tmp_path / "a.json", {"tile": 64, "steps": 4})])
    assert target == paths.KERNELS_DIR / "ladder" / "tuned" / "h200.json"
    assert json.loads(target.read_text())["ladder.scale_tuned"] == {
        **{"params": {"tile": 64, "steps": 4}, "target": "90", "toolkit": "cuda13", "toolkit_version": "13.4.92"},
        **{"driver": "580.1", "baseline": "cuBLAS 13.1", "candidates": 6},
        **{"tflops": {"4096": 46.5, "8192": 47.25}, "ratio": {"4096": 0.95, "8192": 0.96}},
    }
    monkeypatch.setenv("GEMMREPRO_TUNED", "h200")
    (kernel,) = registry.tuned(tunable)
    assert kernel.platform.chosen_for == "90"
    assert kernel.params == {"tile": 64, "steps": 4}
    before = compiled(kernel)
    install([result_file(tmp_path / "a.json", {"tile": 64, "steps": 2})])
    assert compiled(registry.tuned(tunable)[0]) != before
    monkeypatch.setenv("GEMMREPRO_TUNED", "a100")
    assert registry.tuned(tunable) == ()


TILE = {"tile": 64, "steps": 4}


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (lambda path: result_file(path, {"tile": 48, "steps": 4}), "the space of ladder.scale_tuned does not hold"),
        (lambda path: path.write_text("{"), "is corrupt"),
        (lambda path: None, "is missing"),
        (lambda path: result_file(path, TILE, kernel="ladder.nope"), r"'ladder\.nope' cannot be tuned; tunable"),
    ],
)
def test_a_result_that_is_none_or_outside_the_space_is_refused_and_nothing_is_written(tunable, tmp_path, bad, said):
    bad(tmp_path / "bad.json")
    with pytest.raises(UserError, match=said):
        install([result_file(tmp_path / "good.json", TILE), tmp_path / "bad.json"])
    assert not registry.winners_path("ladder", "h200").exists()


@pytest.mark.containers
def test_candidates_are_compiled_once_and_what_the_compiler_refuses_is_a_row(toolkit, tunable, tmp_path, monkeypatch):
    roomy = replace(tunable, allowed=lambda params: params["steps"] == 4)  # (128, 4) fails its static_assert
    folder = tmp_path / "built"
    listing = benches.compile_all(roomy, toolkit, "90", folder, 2)
    named = {candidate.params["tile"]: digest for digest, candidate in listing.candidates.items()}
    compiled_of = {tile: listing.compiled[digest] for tile, digest in named.items()}
    assert [compiled.error is None for compiled in compiled_of.values()] == [True, True, False]
    assert "the tile is too large" in compiled_of[128].error
    assert [compiled_of[tile].shared_bytes for tile in (32, 64)] == [128, 256]
    assert compiled_of[32].spill_bytes == 0 and not listing.binary(named[128]).exists()
    assert Listing.read(folder, roomy).compiled == listing.compiled

    made = []
    real = nvcc.Nvcc.compile

    def noted(self, kernel, *rest):
        made.append(kernel.params)
        return real(self, kernel, *rest)

    monkeypatch.setattr(nvcc.Nvcc, "compile", noted)
    listing.binary(named[64]).unlink()
    (folder / f"{named[32]}.json").write_text("{")
    assert benches.compile_all(roomy, toolkit, "90", folder, 1).compiled == listing.compiled
    assert [params["tile"] for params in made] == [32, 64], "the third is as it was"
    hopeless = replace(tunable, allowed=lambda params: params["tile"] * params["steps"] > 256)
    with pytest.raises(UserError, match=r"no candidate of ladder\.scale_tuned compiles.*the tile is too large"):
        benches.compile_all(hopeless, toolkit, "90", tmp_path, 1)
