"""Tuning without a GPU: the space, the search on invented timings, what is left out and why, winners, candidates."""

import contextlib
import csv
import io
import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from records import record

from gemmrepro import __main__ as command
from gemmrepro import registry, stats, timing
from gemmrepro.build import key, nvcc
from gemmrepro.core import paths
from gemmrepro.errors import UserError
from gemmrepro.gates import gemm
from gemmrepro.gates.gate import Judged, Verdict
from gemmrepro.gpu import baselines, device, loaded
from gemmrepro.measure.prepare import Check
from gemmrepro.operations import Shape
from gemmrepro.registry import Kernel, Launch, Tunable, families
from gemmrepro.registry.keys import compiled
from gemmrepro.tune import bench as benches
from gemmrepro.tune import candidates, stage
from gemmrepro.tune.candidates import Listing
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
SIZES = [1024, 2048]


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
    found = candidates.candidates(tunable)
    allowed = [(32, 2), (32, 4), (32, 8), (64, 2), (64, 4), (128, 2)]
    assert [tuple(candidate.params.values()) for candidate in found] == allowed
    assert len({candidate.digest for candidate in found}) == len(found)
    assert len({key.build_key(candidate.kernel, "13.0") for candidate in found}) == len(found)
    assert found[0].digest == candidates.Candidate({"steps": 2, "tile": 32}, found[0].kernel).digest
    assert str(found[0]) == "tile=32 steps=2"
    with pytest.raises(UserError, match=r"the space of ladder\.scale_tuned allows no combination"):
        candidates.candidates(replace(tunable, allowed=lambda params: False))


def row(candidate, **changes):
    found = {"digest": candidate.digest, "params": dict(candidate.params), "target": "90", "error": None}
    found |= {"build_key": key.build_key(candidate.kernel, "13.0.88"), "registers": 40, "spill_bytes": 0}
    return found | {"shared_bytes": 512} | changes


def listing_file(folder, tunable, changes=lambda candidate: {}, **top):
    """A candidates.json of an invented compilation, its binaries empty."""
    field = candidates.candidates(tunable)
    content = {"kernel": tunable.id, "toolkit": "cuda13", "toolkit_version": "13.0.88", "target": "90"}
    content["candidates"] = [row(candidate, **changes(candidate)) for candidate in field]
    folder.mkdir(exist_ok=True)
    (folder / "candidates.json").write_text(json.dumps({**content, **top}))
    for candidate in field:
        (folder / f"{candidate.digest}.fatbin").write_bytes(b"")
    return folder


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path, tunable: path.unlink(), r"is missing; run the compile step again: .*--kernel ladder\.scale"),
        (lambda path, tunable: path.write_text("{"), "is corrupt"),
        (lambda path, tunable: path.write_text(path.read_text().replace("registers", "r")), "is corrupt"),
        (lambda path, tunable: path.write_text(path.read_text().replace("scale_tuned", "else")), r"of ladder\.else"),
        (lambda path, tunable: tunable.space.update(tile=(32,)), "another space or other sources"),
        (
            lambda path, tunable: next(iter(candidates.candidates(tunable))).kernel.source_path.write_text("// new"),
            "another space or other sources",
        ),
    ],
    ids=["missing", "cut", "a field less", "another tunable", "another space", "edited"],
)
def test_a_listing_that_does_not_fit_is_refused(tunable, tmp_path, spoil, said):
    folder = listing_file(tmp_path / "built", tunable)
    spoil(folder / "candidates.json", tunable)
    with pytest.raises(UserError, match=said):
        Listing.read(folder, tunable)


LIMITS = candidates.Limits(shared_bytes=2048, registers=65536, threads=1024)


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


def point(ratio):
    return benches.Point(100.0 / ratio, 100.0, stats.Interval(ratio, ratio * 0.99, ratio * 1.01))


def test_a_third_and_then_five_go_on_and_the_fastest_wins():
    timed = {}

    def measure(stage, names, sizes):
        timed[stage.name] = (list(names), list(sizes))
        return {name: {size: point(0.5 + int(name[1:]) / 100) for size in sizes} for name in names}

    standings = benches.successive_halving([f"c{index:02}" for index in range(30)], SIZES, measure)
    assert [len(names) for names, _ in timed.values()] == [30, 10, 5]
    assert [sizes for _, sizes in timed.values()] == [SIZES[:1], SIZES, SIZES]
    assert timed["final"][0] == ["c29", "c28", "c27", "c26", "c25"]
    assert list(standings)[:6] == ["c29", "c28", "c27", "c26", "c25", "c24"]
    assert [standings[name].stage for name in ("c25", "c24", "c20", "c19")] == ["final", "close", "close", "coarse"]
    assert len(standings) == 30
    assert benches.Standing("final", {1: point(0.5), 2: point(2.0)}).score == pytest.approx(1.0)


class FakeLoaded:
    """A kernel whose launches take (tile * steps) µs."""

    def __init__(self, kernel, bound):
        self.kernel, self.bound = kernel, bound

    def bind(self, operands):
        self.bound.append(self.kernel)
        return lambda: self.kernel.params["tile"] * self.kernel.params["steps"]


class FakeWorkspace:
    def __init__(self, session, problem, shape, seed):
        self.shape = shape

    def operands(self, kernel):
        return self

    def check(self, call, timer):
        wrong = self.shape.n == 2048 and call() == 128
        return Check(not wrong, "2 elements are wrong" if wrong else "", estimate_us=float(call()))


class FakeTimer:
    def __init__(self, session):
        pass

    def burst(self, sides, against, cache, plan, estimates, graphs):
        assert cache == "warm"
        return timing.Burst([float(sides[0]())] * 6, [float(against[0]())] * 6, [{"clock_mhz": 1500, "power_w": 600.0}])


@pytest.fixture
def session(monkeypatch):
    """An invented H200 on which the candidate of tile 64 and 2 steps computes wrong sums."""
    broken = []

    def sync():
        if broken:
            raise UserError("a kernel failed")

    def run_case(session, launch, case, problem, **shared):
        launch(None)
        params = bound[-1].params
        wrong = (params["tile"], params["steps"]) == (64, 2)
        return Judged(case, Verdict(not wrong, None, None, "7 elements are wrong" if wrong else ""), 0.0)

    bound = []

    def from_file(session, kernel, path, toolkit):
        return FakeLoaded(kernel, bound)

    monkeypatch.setattr(loaded.Loaded, "from_file", from_file)
    monkeypatch.setattr(gemm, "run_case", run_case)
    monkeypatch.setattr(benches, "Workspace", FakeWorkspace)
    monkeypatch.setattr(timing, "Timer", FakeTimer)
    monkeypatch.setattr(candidates.Limits, "here", lambda: LIMITS)
    library = baselines.Baseline("cublas.sgemm", "", "gemm", lambda *_: lambda: 100.0, lambda _: "cuBLAS 13.1")
    monkeypatch.setattr(baselines, "baseline", lambda name: library)
    of = {"name": "NVIDIA H200", "slug": "h200", "arch": "sm_90", "compute_capability": (9, 0), "driver": "580.1"}
    machine = {"gpu": "NVIDIA H200", "driver": "580.1", "card": "c1"}
    described = SimpleNamespace(**of, driver_cuda=(13, 0), machine=machine)
    return SimpleNamespace(gpu=described, sync=sync, broken=broken, other_processes=lambda: 0)


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
    # Of six, (32, 8) spills, (64, 2) is wrong in the gate's case, and (32, 4) at 2048 only.
    assert result["count"] == {"candidates": 6, "compiled": 6, "fitting": 5, "right": 3, "timed": 3}
    assert result["winner"]["params"] == {"tile": 32, "steps": 2}
    assert result["winner"]["score"] == pytest.approx(100 / 64, abs=1e-4)
    found = result["winner"]["sizes"]["2048"]
    assert found["ratio"] == pytest.approx(100 / 64, abs=1e-4)
    assert found["tflops"] == pytest.approx(2 * 2048**3 / 64e-6 * 1e-12, rel=1e-3)
    assert (found["clock_mhz"], found["power_w"]) == (1500, 600.0)
    assert result["gpu"]["slug"] == "h200" and result["baseline"]["version"] == "cuBLAS 13.1"
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert len(rows) == 6
    assert (rows[0]["tile"], rows[0]["steps"], rows[0]["stage"]) == ("32", "2", "final")
    left_out = {(entry["tile"], entry["steps"]): entry["left_out"] for entry in rows if entry["left_out"]}
    assert left_out[("32", "8")] == "spills 16 bytes"
    assert "7 elements are wrong" in left_out[("64", "2")]
    assert left_out[("32", "4")] == "wrong at 2048: 2 elements are wrong"
    assert float(rows[0]["us_1024"]) == 64.0


def test_a_candidate_that_breaks_the_context_ends_the_process_and_is_left_out(bench, session, monkeypatch):
    first = bench()
    names = list(first.listing.candidates)

    def crash(session_, kernel, path, toolkit):
        session.broken.append(kernel)
        raise RuntimeError("illegal memory access")

    with monkeypatch.context() as patch:
        patch.setattr(loaded.Loaded, "from_file", crash)
        with pytest.raises(candidates.Broken):
            first.judge(names[:2])
    session.broken.clear()
    again = bench()
    assert again.verdict(names[0]) == "illegal memory access"
    assert again.judge(names[:2]) == names[1:2]


def test_the_supervisors_word_on_a_hung_candidate_becomes_its_verdict(bench, tmp_path):
    first = bench()
    name = next(iter(first.listing.candidates))
    candidates.marker(tmp_path / "journal").write_text(f"{name} it did not end within 60 s")
    assert bench().verdict(name) == "it did not end within 60 s"
    assert not candidates.marker(tmp_path / "journal").exists()
    candidates.marker(tmp_path / "journal").write_text(list(first.listing.candidates)[1])
    assert bench().verdict(list(first.listing.candidates)[1]) is None


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
    monkeypatch.setenv("GEMMREPRO_TUNED", "h200")
    out = tmp_path / "out.json"

    def run():
        places = ("--candidates", str(tmp_path / "built"), "--out", str(out))
        return command.run(["tune-measure", "--worker", "--kernel", tunable.id, "--sizes", "1024,2048", *places])

    with monkeypatch.context() as patch:
        patch.setattr(gemm, "run_case", lambda *_, **shared: session.broken.append(1) or 1 / 0)
        assert run() == candidates.REPLACE
    assert not out.exists()
    session.broken.clear()
    assert run() == 0
    assert json.loads(out.read_text())["count"]["right"] == 2 and out.with_suffix(".csv").is_file()
    install([out])
    monkeypatch.setenv("GEMMREPRO_TUNED", "h200")
    (winner,) = registry.tuned(tunable)
    measured = {key.build_key(candidate.kernel, "13.0") for candidate in candidates.candidates(tunable)}
    assert key.build_key(winner, "13.0") in measured


WORKER = """\
import os, pathlib, sys, time
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
        ("sys.exit(76)", 0, 0, 2, ""),
        ("os.abort()", 0, 0, 2, "abc its process ended with code -6"),
        ("time.sleep(600)", 0, 0, 2, "abc it did not end within 1 s"),
        ("os.kill(os.getpid(), 15)", 0, -15, 1, None),
    ],
    ids=["error", "broken", "crash", "hang", "ended by somebody"],
)
def test_the_process_is_replaced_only_where_a_candidate_is_at_fault(tmp_path, does, ends, code, runs, seen):
    script = tmp_path / "worker.py"
    script.write_text(WORKER.replace("DOES", does).replace("ENDS", str(ends)))
    candidates.marker(tmp_path).write_text("left-by-a-run-that-was-killed")
    hang = 1.0 if "sleep" in does else 600.0  # or a busy machine that is slow to end a process would count as one
    assert candidates.supervise([sys.executable, str(script), str(tmp_path)], tmp_path, hang_seconds=hang) == code
    assert len((tmp_path / "runs").read_text()) == runs
    assert (tmp_path / "seen-1").read_text() == ""
    if seen is not None:
        assert (tmp_path / "seen-2").read_text() == seen


def result_file(path, params, gpu="h200", kernel="ladder.scale_tuned"):
    sizes = {"4096": {"tflops": 46.5, "ratio": 0.95}, "8192": {"tflops": 47.25, "ratio": 0.96}}
    content = {
        **{"kernel": kernel, "gpu": {"name": "", "slug": gpu}, "driver": "580.1", "target": "90"},
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
        (lambda path: result_file(path, None), "is no tuning result"),
        (lambda path: path.write_text("[]"), "is no tuning result"),
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
    listing = candidates.compile_all(roomy, toolkit, "90", folder, 2)
    compiled_of = {listing.compiled[digest].params["tile"]: listing.compiled[digest] for digest in listing.candidates}
    assert [one.error is None for one in compiled_of.values()] == [True, True, False]
    assert "the tile is too large" in compiled_of[128].error
    assert [compiled_of[tile].shared_bytes for tile in (32, 64)] == [128, 256]
    assert compiled_of[32].spill_bytes == 0 and 8 <= compiled_of[32].registers <= 64
    assert listing.binary(compiled_of[32].digest).stat().st_size > 500
    assert not listing.binary(compiled_of[128].digest).exists()
    assert Listing.read(folder, roomy).compiled == listing.compiled

    made = []
    real = nvcc.Nvcc.compile

    def noted(self, kernel, *rest):
        made.append(kernel.params)
        return real(self, kernel, *rest)

    monkeypatch.setattr(nvcc.Nvcc, "compile", noted)
    assert candidates.compile_all(roomy, toolkit, "90", folder, 1).compiled == listing.compiled
    assert made == []
    listing.binary(compiled_of[64].digest).unlink()
    (folder / f"{compiled_of[32].digest}.json").write_text("{")
    assert candidates.compile_all(roomy, toolkit, "90", folder, 1).compiled == listing.compiled
    assert [params["tile"] for params in made] == [32, 64]


@pytest.mark.containers
def test_a_space_of_which_nothing_compiles_is_an_error(toolkit, tunable, tmp_path):
    hopeless = replace(tunable, allowed=lambda params: params["tile"] * params["steps"] > 256)
    with pytest.raises(UserError, match=r"no candidate of ladder\.scale_tuned compiles.*the tile is too large"):
        candidates.compile_all(hopeless, toolkit, "90", tmp_path, 1)
