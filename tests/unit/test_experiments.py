"""Experiments: what is declared, how one is run and continued, how a recording is marked, and what rests on it."""

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from synthetic import World, stand_in

from gemmrepro import experiments
from gemmrepro.core.files import read_json
from gemmrepro.core.paths import ROOT
from gemmrepro.core.schemas import check
from gemmrepro.errors import UserError
from gemmrepro.experiments import run as experiments_run
from gemmrepro.experiments.results import load
from gemmrepro.experiments.run import Context, Subject
from gemmrepro.figures import stage
from gemmrepro.figures.inputs import Inputs
from gemmrepro.gpu import baselines, loaded
from gemmrepro.judge import claims, judging
from gemmrepro.judge.metrics import METRICS
from gemmrepro.judge.rules import NOT, NOT_MEASURED, NOT_TESTABLE, PARTLY, REPRODUCED, UNDECIDED
from gemmrepro.measure import rows as measure_rows
from gemmrepro.measure.recording import read_rows, write_manifest
from gemmrepro.paper.inputs import ShownRows
from gemmrepro.recordings.bring import bring_experiment, check_rows


@pytest.fixture
def sums(monkeypatch, tmp_path) -> experiments.Experiment:
    """The stand-in family's experiment."""
    stand_in(monkeypatch, tmp_path)
    return experiments.experiment("sums", "errors")


def world(folder: Path, **options) -> World:
    """Builds and gates of the stand-in kernels."""
    return World(folder, families=("sums",), ladder=False, ceilings=False, **options).write()


class Loaded:
    """Stands for a loaded binary."""

    def __init__(self, session, kernel, build, toolkit):
        self.kernel, self.toolkit = kernel, toolkit
        self.build_key = read_json(build / toolkit / f"{kernel.id}.json", "", "")["build_key"]


@pytest.fixture
def runner(sums, monkeypatch, tmp_path):
    """Runs the stage with a GPU that is none; returns (rows, what was said, whether it was finished)."""
    made = world(tmp_path / "world")
    session = SimpleNamespace(
        gpu=SimpleNamespace(
            machine={"gpu": "Synthetic GPU", "driver": "000.00", "card": "c1"},
            describe=lambda: {"name": "Synthetic GPU", "driver": "0"},
            compute_capability=(9, 0),
        ),
        sync=lambda: None,
        free_bytes=lambda: 3 << 29,
    )
    monkeypatch.setattr(loaded.Binary, "built", Loaded)
    monkeypatch.setattr(loaded.Loaded, "built", Loaded)
    library = replace(baselines.BASELINES["cublas.gemm"], version=lambda session: "cuBLAS 0.0")
    monkeypatch.setitem(baselines.BASELINES, "cublas.gemm", library)

    def run(which=sums, deadline=None):
        said = []
        paths = (made.build, made.gates, tmp_path / "journal", tmp_path / "out" / "sums")
        done = experiments_run.run(session, "sums", which, ["cuda12", "cuda13"], *paths, said.append, deadline)
        rows = load(tmp_path / "out", "sums")["errors"].rows if done else None
        return rows, said, done

    return made, run


@pytest.fixture
def recorded(runner, tmp_path) -> tuple[World, Path]:
    """Builds and gates, and the folder of a recording that the stage left."""
    made, run = runner
    run()
    folder = tmp_path / "recorded/sums/experiments"
    shutil.move(tmp_path / "out/sums", folder)
    write_manifest(folder.parent)
    return made, folder


@pytest.fixture
def brought(sums, recorded, tmp_path) -> tuple[World, Path]:
    """Builds, gates, and the experiment's files as the workflow has them."""
    made, folder = recorded
    assert bring_experiment("sums", sums, folder.parents[1], made.build, tmp_path / "out/sums") == (3 * 3 * 5, 0)
    return made, tmp_path / "out"


def test_the_fingerprint_follows_what_decides_the_rows(sums):
    same = experiments.fingerprint(sums)
    assert experiments.fingerprint(replace(sums, title="Other words")) == same
    assert experiments.fingerprint(replace(sums, version=2)) != same
    assert experiments.fingerprint(replace(sums, parameters={**sums.parameters, "ks": [64]})) != same
    assert experiments.fingerprint(replace(sums, columns=sums.columns[:-1])) != same
    assert experiments.fingerprint(replace(sums, settings={"samples": 3})) == same
    source, measured = sums.folder / "how.py", replace(sums, sources=("how.py",))
    source.write_text("samples = 3\n")
    first = experiments.fingerprint(measured)
    source.write_text("samples = 4\n")
    assert len({same, first, experiments.fingerprint(measured)}) == 3


def test_names_and_settings_are_only_those_there_are(sums):
    with pytest.raises(UserError, match="no experiment 'error'; its experiments: errors"):
        experiments.experiment("sums", "error")
    with pytest.raises(UserError, match="no column 'rms'"):
        sums.column("rms")
    timed = replace(sums, settings={"samples": 3, "seconds": 1.0})
    assert experiments.with_settings(timed, {"samples": 5}).settings == {"samples": 5, "seconds": 1.0}
    for changes, said in (({"samples": 0}, "samples cannot be 0"), ({"seconds": True}, "seconds cannot be true")):
        with pytest.raises(UserError, match=said):
            experiments.with_settings(timed, changes)


def test_a_run_writes_rows_and_circumstances_and_is_not_repeated(runner, tmp_path):
    _, run = runner
    rows, said, done = run()
    assert done and len(rows) == 3 * 3 * 5
    assert sum("/9]" in line for line in said) == 9
    text = (tmp_path / "out/sums/errors.csv").read_text()
    _, said, _ = run()
    assert said == [] and (tmp_path / "out/sums/errors.csv").read_text() == text
    about = read_json(tmp_path / "out/sums/errors.json", "", "")
    assert about["declared"] == experiments.fingerprint(experiments.experiment("sums", "errors"))
    check(about, "experiment.schema.yaml", "it")


def test_an_interrupted_run_goes_on_and_a_changed_declaration_starts_anew(runner, sums, tmp_path):
    _, run = runner
    assert run(deadline=0.0)[2] is False
    assert not (tmp_path / "out").exists()
    stop = {"left": 4}

    def measure(context, point):
        if not stop["left"]:
            raise KeyboardInterrupt
        stop["left"] -= 1
        return sums.measure(context, point)

    with pytest.raises(KeyboardInterrupt):
        run(replace(sums, measure=measure))
    _, said, done = run()
    assert done and sum("/9]" in line for line in said) == 5
    _, said, _ = run(replace(sums, version=2))
    assert sum("/9]" in line for line in said) == 9


@pytest.mark.parametrize(
    ("changes", "left", "says"),
    [
        ({}, {("sums.inside", "cuda12"), ("cublas.gemm", "library")}, "sums.inside cuda13: it was not built"),
        ({"packages": ("numpy", "nonesuch")}, set(), "nonesuch cannot be imported"),
    ],
)
def test_what_was_not_built_failed_its_gate_or_lacks_a_package_is_left_out(runner, sums, tmp_path, changes, left, says):
    made, run = runner
    path = made.gates / "sums.outside.json"
    path.write_text(path.read_text().replace('"passed": true', '"passed": false'))
    (made.build / "cuda13" / "sums.inside.json").unlink()
    rows, said, done = run(replace(sums, **changes))
    assert done and set(zip(rows["kernel"], rows["toolkit"], strict=True)) == left
    assert len(read_json(tmp_path / "out/sums/errors.json", "", "")["skipped"]) == (3 if left else 1)
    assert sum(says in line for line in said) == 1


def test_one_on_the_cpu_runs_without_a_gpu_and_says_where(sums, tmp_path):
    said = []
    on_cpu = replace(sums, device="cpu", kernels=(), libraries=("numpy.dot",), settings={"samples": 3})
    paths = [tmp_path / name for name in ("build", "gates", "journal", "out/sums")]
    for _ in range(2):
        assert experiments_run.run(None, "sums", on_cpu, ["cuda12"], *paths, said.append)
    assert sum("/9]" in line for line in said) == 9  # the second time nothing is left to do
    about = read_json(tmp_path / "out/sums/errors.json", "", "")
    check(about, "experiment.schema.yaml", "it")
    assert about["gpu"] is None and about["settings"] == {"samples": 3}
    results = replace(load(tmp_path / "out", "sums")["errors"], experiment=on_cpu)
    assert results.machine.startswith(f"{about['cpu']['name']}, {about['cpu']['cores']} core")
    assert set(results.rows["build_key"]) == {f"numpy {np.__version__}"} and results.toolkit is None
    # Other settings are other measurements.
    experiments_run.run(None, "sums", replace(on_cpu, settings={"samples": 4}), ["cuda12"], *paths, said.append)
    assert sum("/9]" in line for line in said) == 18


def test_what_gives_no_row_at_a_point_is_said_again_from_the_journal(runner, sums, tmp_path):
    _, run = runner

    def measure(context, point):
        for subject in context.subjects:
            if subject.kernel == "cublas.gemm" and point["law"] == "uniform":
                context.leave_out(subject, "it took too long")
            else:
                cells = {"rms_u": 1.0, "rms_low_u": 1.0, "rms_high_u": 1.0, "note": ""}
                yield context.row(subject, **point, **cells)

    for _ in range(2):
        rows, said, _ = run(replace(sums, measure=measure, version=7))
        assert len(rows) == 3 * 3 * 5 - 3
        assert sum("left out: cublas.gemm library: it took too long" in line for line in said) == 1


def test_a_point_without_memory_has_a_reason_and_is_measured_another_time(runner, sums, tmp_path):
    _, run = runner
    first = sums.points(sums.parameters)[0]

    def measure(context, point):
        if point == first:
            raise MemoryError("Unable to allocate 10.7 GiB for an array")
        return sums.measure(context, point)

    rows, _, done = run(replace(sums, measure=measure))
    assert done and len(rows) == 8 * 5
    skipped = read_json(tmp_path / "out/sums/errors.json", "", "")["skipped"]
    assert len(skipped) == 5 and all("needs 10.7 GiB, 1.5 GiB are free" in entry["reason"] for entry in skipped)
    _, said, _ = run()
    assert sum("/9]" in line for line in said) == 1


@pytest.mark.parametrize(
    ("cells", "word"),
    [({"law": "normal"}, "differ by"), ({"rms_u": float("nan")}, "finite"), ({"colour": "red"}, "colour")],
)
def test_a_row_that_does_not_fit_is_refused(sums, cells, word):
    whole = {"law": "a", "k": 1, "rms_u": 1.0, "rms_low_u": 1.0, "rms_high_u": 1.0, "note": ""}
    cells = cells if word == "differ by" else whole | cells
    with pytest.raises(UserError, match=word):
        Context(None, sums, {}, {}).row(Subject("sums.inside", "cuda12", "key"), **cells)


def test_rows_of_another_build_or_declaration_are_stale(sums, recorded, tmp_path):
    made, folder = recorded
    path = made.build / "cuda12" / "sums.inside.json"
    path.write_text(path.read_text().replace(made.key("sums.inside", "cuda12"), "f" * 16))
    bring = partial(bring_experiment, "sums", sums, tmp_path / "recorded", made.build, tmp_path / "out/sums")
    assert bring() == (45, 9)
    _replace(folder / "errors.json", experiments.fingerprint(sums), "0" * 16)
    write_manifest(folder.parent)
    assert bring() == (45, 45)


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (lambda folder: (folder / "errors.json").unlink(), "errors.json is missing"),
        (lambda folder: _replace(folder / "errors.csv", "normal,64", "normal,6_4"), "line 2 .*k: '6_4' is not"),
        (lambda folder: _replace(folder / "errors.csv", "normal,64", "nor\u200bmal,64"), "law: .* does not match"),
        (lambda folder: _replace(folder / "errors.json", '"source"', '"synthetic": true, "source"'), "is synthetic"),
        (lambda folder: _replace(folder / "errors.json", '"version": 1', '"version": "one"'), "version"),
    ],
)
def test_a_spoiled_recording_is_refused_by_name(sums, recorded, tmp_path, spoil, word):
    made, folder = recorded
    spoil(folder)
    write_manifest(tmp_path / "recorded/sums")
    with pytest.raises(UserError, match=word):
        bring_experiment("sums", sums, tmp_path / "recorded", made.build, tmp_path / "out/sums")


LATENCY = ROOT / "reports/recorded/h200/ladder/experiments/latency.csv"


@pytest.mark.parametrize(
    ("cells", "word"),
    [
        ({"cycles": "2.01"}, ""),  # half of the highest clock: a GPU may be slowed down
        ({"cycles": "4.2"}, "clock of 2064 MHz, and this GPU's is at most 1980 MHz"),
        ({"cycles": "0.00403"}, "hardly below 198 MHz"),
        ({"ns": "0.00203"}, "cannot be"),
        ({"ns": "2035"}, "cannot be"),
        ({"ns": "0"}, "must be positive"),
        ({"cycles": "-4", "ns": "-2"}, "must be positive"),
        ({"hops": "0"}, "must be positive"),
        ({"cycles": "4.2", "hops": "256"}, ""),  # 521 ns, which the timer may count in one step
        ({"cycles": "40", "ns": ""}, ""),
    ],
)
def test_clocks_that_a_probe_reads_itself_are_held_against_each_other(cells, word):
    declared = experiments.experiment("ladder", "latency")
    row = read_rows(LATENCY, declared.header)[0]
    assert row["kernel"] == "ceilings.chain"
    rows = [row | cells]
    check_rows(declared, rows, LATENCY)  # of a GPU whose highest clock is not known
    with pytest.raises(UserError, match=f"line 2 of .*{word}") if word else nullcontext():
        check_rows(declared, rows, LATENCY, 1980)


@pytest.mark.parametrize(
    ("family", "name", "column", "follows"),
    [
        ("memory", "histogram_lengths", "time_low_us", "gbps_high"),
        ("pytorch", "gelu", "median_us", "moved_gbps"),
        ("sgemm", "modes", "us", "tflops"),
        ("ladder", "vector_add", "issued_us", "issued_share"),
    ],
)
def test_a_column_that_follows_from_its_row_is_computed_again(family, name, column, follows):
    declared = experiments.experiment(family, name)
    path = ROOT / f"reports/recorded/h200/{family}/experiments/{name}.csv"
    rows = read_rows(path, declared.header)
    changed = next(row for row in rows if row[column])
    changed[column] = f"{float(changed[column]) / 2:.6g}"
    with pytest.raises(
        UserError, match=rf"line 2 .* is corrupt: {follows} is .*, and from the rest of its row follows"
    ):
        check_rows(declared, rows, path, 1980)


@pytest.mark.parametrize("mib", [0, 3, 40, 50, 72])
def test_levels_called_l2_fit_the_l2_of_the_gpu_and_are_as_recorded_where_they_do(mib):
    module = experiments.beside("ladder", "experiments.py")
    context = SimpleNamespace(session=SimpleNamespace(gpu=SimpleNamespace(l2_bytes=mib << 20)))
    declared = module.BANDWIDTH.parameters["l2_bytes"]
    sizes = [module.in_l2(context, size, max(declared)) for size in declared]
    latency = module.in_l2(context, module.L2_BYTES)
    assert len(set(sizes)) == len(declared) and max(*sizes, latency) < 0.7 * ((mib or 72) << 20)
    assert min(sizes) >= 1 << 17 and latency >= 1 << 20
    if mib >= 50 or mib == 0:  # not told
        assert (sizes, latency) == (declared, module.L2_BYTES)


def _replace(path: Path, text: str, other: str) -> None:
    assert text in path.read_text()
    path.write_text(path.read_text().replace(text, other))


def claim(**compute) -> claims.Claim:
    compute = {"metric": "experiment", "experiment": "errors", "value": "rms_u", "kernel": "sums.inside", **compute}
    return claims.Claim(
        id="sums.x",
        family="sums",
        article="ada",
        where="text",
        statement="Outside errs less.",
        published=(),
        compute=compute,
        transfer={"kind": "order", "why": "It is an order."},
        tolerance=None,
        within_factor=2.0,
        same_side=False,
        toolkits=("cuda12", "cuda13"),
        cache="warm",
    )


def judged(made: World, folder: Path | None, one: claims.Claim) -> dict:
    return judging.judge_all(made.measure, made.gates, made.build, ("sums",), lambda _: [one], folder)["claims"][0]


EVERY = {"law": ["normal", "uniform", "integers"], "k": [64, 256, 1024]}
ONE = {"law": "normal", "k": 64}
OVER = {"over": "sums.inside", "where": {"law": "normal", "k": 256}}


@pytest.mark.parametrize(
    ("compute", "verdict", "words"),
    [
        ({"over": "sums.outside", "above": 1, "where": EVERY}, REPRODUCED, "at all 6 points, from 8.00 (normal, k 64)"),
        ({"over": "sums.outside", "above": 8, "where": EVERY}, PARTLY, "4 of 6 points"),
        ({"over": "cublas.gemm", "above": 1, "where": EVERY}, REPRODUCED, "times that of cuBLAS, for"),
        ({"most": 5, "where": ONE}, REPRODUCED, "square of the error: 4.00 [3.60, 4.40] u for"),
        ({"most": 3, "where": ONE}, NOT, "4.00 [3.60, 4.40] u for"),
        ({"most": 4.2, "where": ONE}, UNDECIDED, "crosses the bound: ["),  # 4.4 at its upper end
        ({"least": 0, "most": 0, "where": {"law": "integers", "k": [64, 256]}}, REPRODUCED, "all 2 points"),
        ({"over": "sums.outside", "above": 1, "where": {"law": "integers", "k": 64}}, NOT_MEASURED, "neither errs"),
        ({"above": 1, "where": {"law": "cubic", "k": 64}}, NOT_MEASURED, "no row of Sum kept inside"),
        ({**OVER, "above": 3, "over_where": {"k": 64}}, REPRODUCED, "times that of Sum kept inside (k 64) for Sum"),
        ({**OVER, "above": 1, "over_where": {"k": 65}}, NOT_MEASURED, "k 65"),
        ({"above": 1, "where": {"k": 64}}, NOT_MEASURED, "must name more columns"),
    ],
)
def test_a_claim_follows_from_the_rows(brought, compute, verdict, words):
    entry = judged(*brought, claim(**compute))
    assert (entry["verdict"], words in entry["explanation"]) == (verdict, True), entry["explanation"]
    assert json.loads(json.dumps(entry, allow_nan=False)) == entry
    if verdict != NOT_MEASURED:
        (value,) = entry["measured"]
        assert value["experiment"] == "errors" and value["from"][0].startswith("sums/errors/sums.inside/cuda12/")


@pytest.mark.parametrize(
    ("bounds", "shown"), [({"most": 99}, 64.0), ({"least": 0}, 4.0), ({"least": 0, "most": 99}, 4.0)]
)
def test_of_many_points_the_one_that_is_nearest_to_contradicting_is_shown(brought, bounds, shown):
    entry = judged(*brought, claim(**bounds, where={"law": ["normal", "uniform"], "k": [64, 256, 1024]}))
    assert entry["measured"][0]["value"] == shown


def test_stale_rows_and_failed_gates_support_nothing_and_another_toolkit_stands_in(brought):
    made, folder = brought
    one, table = claim(over="sums.outside", above=1, where=EVERY), folder / "sums" / "errors.csv"
    path, whole = made.gates / "sums.outside.json", table.read_text()
    saved = path.read_text()
    path.write_text(saved.replace('"passed": true', '"passed": false'))
    entry = judged(made, folder, one)
    assert entry["verdict"] == NOT_MEASURED and "failed its gate" in entry["explanation"]
    path.write_text(saved)
    _replace(table, ",current", ",stale")
    entry = judged(made, folder, one)
    assert entry["verdict"] == NOT_MEASURED and "stale" in entry["explanation"]
    assert judged(made, None, one)["verdict"] == NOT_MEASURED
    table.write_text("".join(line for line in whole.splitlines(True) if ",cuda12," not in line))
    entry = judged(made, folder, one)
    assert (entry["verdict"], entry["judged_on"]) == (REPRODUCED, "cuda13")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"experiment": "misses"}, "no experiment 'misses'"),
        ({"value": "rms"}, "no column 'rms'"),
        ({"where": {"colour": ["red"], "k": 64}}, "no column 'colour'"),
        ({"over_where": {"colour": "red"}}, "no column 'colour'"),
        ({"over": "sums.nowhere"}, "no kernel 'sums.nowhere'"),
    ],
)
def test_claims_on_experiments_name_what_there_is(sums, changes, word):
    one = claim(over="sums.outside", above=1, where=ONE)
    assert METRICS["experiment"].check(one) == [] and one.kernels == ("sums.inside", "sums.outside")
    ((_, problem),) = METRICS["experiment"].check(replace(one, compute=one.compute | changes))
    assert word in problem


def draw(made: World, folder: Path | None):
    swept = {"sums": measure_rows.load(made.measure, "sums")}
    return stage.draw(Inputs(swept, {"sums": load(folder, "sums")}, family="sums"))["errors"]


def test_a_figure_holds_every_row_of_one_toolkit(brought):
    drawing = draw(*brought)
    shown = ShownRows({}, {"sums": load(brought[1], "sums")}, {}, set())
    figure = shown.linked(SimpleNamespace(table=drawing.table), "sums")
    assert sum(map(len, figure.links)) == len(figure.rows) == 3 * 3 * 3, "numbers that are equal have rows of their own"
    rows = [shown.by_id[place]["kernel"] for place in figure.links[0].values()]
    assert rows == ["sums.inside", "sums.outside", "cublas.gemm"]
    mean = shown.linked(SimpleNamespace(table=[{"keys": {"": sum(drawing.table[0].pop("keys").values(), ())}}]), "sums")
    assert len(mean.rows) == 3 and mean.links == ({},), "of several rows none is the number's own"
    assert drawing.table[0] == {"law": "N(0, 1)", "K": 64, "inside": 4.0, "outside": 0.5, "cuBLAS": 0.5, "stale": False}
    assert "Recorded earlier on Synthetic GPU, 20" in drawing.caption and "cuda12" in drawing.caption
    assert drawing.alt == "Figure of RMS error. At integers, 1,024: inside 0, outside 0 and cuBLAS 0."
    made, folder = brought
    _replace(folder / "sums" / "errors.csv", ",current", ",stale")
    drawing = draw(made, folder)
    assert drawing.stale and "Hollow" in drawing.caption


@pytest.mark.parametrize(
    ("published", "kind", "verdict", "words"),
    [
        (8.2, "ratio", REPRODUCED, "Published 8.2 on NVIDIA T4; measured 8.00"),  # 6.5 to 9.8 by its interval
        (2.0, "ratio", NOT, "4.0 times higher: outside the tolerance"),
        (2.0, "none", NOT_TESTABLE, "Only NVIDIA T4 can confirm"),
    ],
)
def test_a_published_figure_is_held_against_the_rows(brought, published, kind, verdict, words):
    about = {"system": "x", "metric": "ratio", "unit": "ratio", "hardware": "NVIDIA T4", "place": "a table"}
    rows, transfer = ({**about, "value": published, "n": 1, "dtype": ""},), {"kind": kind, "why": "It is a quotient."}
    one = replace(claim(over="sums.outside", where=ONE), published=rows, tolerance=0.5, transfer=transfer)
    entry = judged(*brought, one)
    assert (entry["verdict"], words in entry["explanation"]) == (verdict, True), entry["explanation"]
    assert entry["measured"][0]["value"] == 8.0 and entry["judged_on"] == "cuda12"
