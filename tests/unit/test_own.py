"""Kernels of one's own without a GPU: what a file may declare, how its process ends, and cheats that only it could try.

tests/gpu/test_gpu_own.py has the examples and the cheats on a GPU; here the GPU is that of test_cheats.py.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import test_cheats as simulated
import yaml
from support import ROOT
from synthetic_gpu import SyntheticGpu
from test_cheats import gpu  # noqa: F401

from gemmrepro.errors import UserError
from gemmrepro.figures import paper
from gemmrepro.figures.stage import svg_of
from gemmrepro.gpu import own as files
from gemmrepro.gpu.baselines import BASELINES, Baseline
from gemmrepro.measure import own as stage
from gemmrepro.operands import Operands
from gemmrepro.operations import Shape
from gemmrepro.paper import page

BIND = "\n\ndef bind(a, b, c, stream):\n    return lambda: None\n"


def file(folder: Path, declared: str = "{}", name: str = "mine.py", bind: str = BIND, before: str = "") -> Path:
    path = folder / name
    path.write_text(f"{before}KERNEL = {declared}{bind}")
    return path


def test_what_a_file_declares_becomes_a_record(tmp_path):
    own = files.read(
        file(tmp_path, '{"dtype_in": "bf16", "layout": "row,col,row", "multiple_of": {"k": 8}, "sizes": [64, 72]}')
    )
    kernel = own.kernel
    assert (kernel.id, kernel.problem.dtype_out, kernel.timing.baseline, own.sizes) == (
        "own.mine", "bf16", "cublas.gemm", (64, 72)
    )  # fmt: skip
    assert kernel.problem.b_is_k_major and not kernel.scales and kernel.capturable
    assert not kernel.takes(Shape(64, 64, 60)) and own.lines == {
        **dict.fromkeys(("dtype_in", "layout", "multiple_of", "sizes", "KERNEL"), 1),
        "bind": 3,
    }
    plain = files.read(file(tmp_path, '{"graph": False}', "Other-1.py")).kernel
    assert (plain.id, plain.problem.dtype_in, plain.timing.baseline) == ("own.other_1", "fp32", "cublas.sgemm")
    assert not plain.capturable


@pytest.mark.parametrize(
    ("declared", "bind", "words"),
    [
        ('{\n "dtypin": "fp16"}', BIND, "line 2: dtypin: [...]unexpected); choose among name, title, op,"),
        ('{"dtype_in": "fp4"}', BIND, "choose one of fp32, tf32, fp64, fp16, bf16, fp8_e4m3, fp8_e5m2, int8"),
        ('{"dtype_in": "fp16", "dtype_out": "fp64"}', BIND, "dtype_out: a product of fp16 is judged in fp16 or fp32;"),
        ('{"dtype_in": "bf16", "dtype_acc": "fp16"}', BIND, "dtype_acc: sums of bf16 are not kept in fp16; leave it"),
        ('{"sizes": [100],\n "multiple_of": {"k": 8}}', BIND, "line 1: sizes: K = 100 is not a multiple of 8, as it"),
        ('{"name": "My Kernel"}', BIND, "name: 'My Kernel' does not match [...]; write a word of a-z, 0-9 and _"),
        ('{\n\n"baseline": "cublas.gem"}', BIND, "line 3: there is no baseline 'cublas.gem'; known baselines: cub."),
        ('{"baseline": "no.py"}', BIND, "line 1: there is no no.py beside it; name a file there, or a library's call"),
        ('{"baseline": "mine.py"}', BIND, "line 1: mine.py must compute the same and have another name"),
        ("dict(op='gemm')", BIND, "line 1: write KERNEL = {...}, a dict of constants"),
        ("{}", "\n\ndef bind(a, b):\n    pass\n", "line 3: write def bind(a, b, c, stream)"),
        ("{}", "\n\ndef bind(a, b, c, stream, *more):\n    pass\n", "line 3: write def bind(a, b, c, stream)"),
        ("{[1]: 2}", BIND, "line 1: write KERNEL = {...}, a dict of constants"),
        ('{"name": "mine\\n"}', BIND, "name: 'mine\\n' does not match [...]; write a word of a-z, 0-9 and _"),
        (f"{'-' * 10**5}1", BIND, "line 1: it is nested too deeply; correct it"),
        ('{"dtype_in": "fp64", "baseline": "cublas.sgemm"}', BIND, "line 1: cublas.sgemm does not compute what KERNEL"),
        ("{}\0", BIND, "line 1: source code string cannot contain null bytes; correct it"),
        ('{"op": "gemm", "op": "gemm"}', BIND, "line 1: KERNEL has a key twice; leave one"),
    ],
)
def test_a_wrong_declaration_is_one_line_with_file_line_and_remedy(declared, bind, words, tmp_path):
    path = file(tmp_path, declared, bind=bind)
    with pytest.raises(UserError) as error:
        files.read(path)
    said = str(error.value)
    assert said.startswith(f"{path}, line ") and "\n" not in said
    for part in words.split("[...]"):
        assert part in said


def test_a_baseline_of_ones_own_is_no_kernel_and_two_kernels_have_two_names(tmp_path):
    mine, theirs = file(tmp_path, '{"baseline": "theirs.py"}'), file(tmp_path, name="theirs.py")
    with pytest.raises(UserError, match=r" cannot be read \(Is a directory\); correct its name"):
        files.read(tmp_path)
    (found,) = files.named([theirs, mine, mine]).values()
    assert (found.path, found.kernel.timing.baseline, found.baseline.path) == (mine, "own.theirs", theirs)
    again = file(tmp_path, '{\n"name": "mine"}', "again.py")
    with pytest.raises(UserError, match=r"again.py, line 2: .*mine.py is mine too; give one another name"):
        files.named([mine, again])


def test_the_key_follows_what_the_file_uses_beside_it(tmp_path):
    path = file(tmp_path, before="import helper\nlibrary = 'libmine.so'\n")
    helper, library, other = (tmp_path / name for name in ("helper.py", "libmine.so", "other.so"))
    seen = [files.read(path).key]
    for changed in (library, helper):
        changed.write_text("1")
        seen.append(files.read(path).key)
    other.write_text("1")
    assert len(set(seen)) == 3 and files.read(path).key == seen[-1]


HOW = {
    "import nosuch_package": "mine.py, line 1: the image torch has no package nosuch_package; do without it, or put it",
    "import sys; sys.exit(3)": "mine.py, line 1: SystemExit: 3",
    "import os; os.abort()": "gate: its process was ended by SIGABRT",
    "import os; os._exit(0)": "gate: its process ended with exit code 0 before it was finished",
    "while True: pass": "gate: it did not end within 2 s",
}
"""What a file does when it runs, and what its result says."""


def judged(path: Path, out: Path) -> subprocess.CompletedProcess[str]:
    (out.parent / "config.json").write_text(json.dumps({"sweep": {"rounds": 2}}))
    options = ("--config", out.parent / "config.json", "--journal", out.parent / "journal", "--patience", "2")
    command = [sys.executable, "-m", "gemmrepro", "own", "--kernel", path, "--out", out, *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow"), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("before", HOW)
def test_a_file_that_fails_ends_itself_alone_and_its_result_says_how(before, tmp_path):
    answer = judged(file(tmp_path, before=f"{before}\n"), tmp_path / "mine.json")
    found = json.loads((tmp_path / "mine.json").read_text())
    assert answer.returncode == 0, answer.stderr
    assert HOW[before] in found["ended"] and (found["gate"], found["rows"]) == (None, [])
    assert found["static"] == "not applicable" and (tmp_path / "mine.csv").read_text().startswith("kernel,family,")


def test_a_machine_that_cannot_measure_is_not_the_files_fault(tmp_path):
    answer = judged(file(tmp_path), tmp_path / "mine.json")
    assert answer.returncode == 1 and "gemmrepro: " in answer.stderr
    assert json.loads((tmp_path / "mine.json").read_text())["ended"] == ""


def bound(path: Path, function) -> files.Bound:
    session = SimpleNamespace(gpu=SimpleNamespace(arch="sm_90"), stream=SimpleNamespace(ptr=7))
    return files.Bound(session, files.read(path), function)


def operands(own: files.Bound, m: int, n: int, k: int) -> Operands:
    flat = [np.zeros(count, np.float16) for count in (m * k, k * n, m * n)]
    return Operands(own.kernel.problem, Shape(m, n, k), tuple(flat[:2]), flat[2])


def test_bind_gets_arrays_as_they_are_stored_and_the_streams_handle(tmp_path):
    path, seen = file(tmp_path, '{"dtype_in": "fp16", "layout": "row,col,row", "multiple_of": {"k": 4}}'), []
    own = bound(path, lambda *given: seen.append(given) or print)
    assert own.bind(operands(own, 2, 3, 4)) is print
    *arrays, stream = seen[0]
    assert ([array.shape for array in arrays], stream) == ([(2, 4), (3, 4), (2, 3)], 7)
    with pytest.raises(UserError, match=r"own.mine cannot run 2x3x5: K = 5 is not a multiple of 4"):
        own.bind(operands(own, 2, 3, 5))
    with pytest.raises(UserError, match=r"mine.py, line 3: bind returned None; return a function that launches once"):
        bound(path, lambda *_: None).bind(operands(own, 2, 3, 4))
    path = file(tmp_path, bind="\n\ndef bind(a, b, c, stream):\n    return a.nothing\n", name="other.py")
    with pytest.raises(UserError, match=r"other.py, line 4: AttributeError: .*nothing"):
        bound(path, files.loaded(files.read(path))).bind(operands(own, 2, 3, 4))


SIZE = 48


@pytest.fixture
def found(gpu, tmp_path, monkeypatch):  # noqa: F811
    """Takes a `bind` through all parts beside an honest library, on the simulated GPU; gives what was found."""
    honest = simulated.launches_of("", gpu)
    library = Baseline("cublas.sgemm", "cuBLAS", "gemm", lambda _, given: lambda: honest(given), lambda _: "cuBLAS 1")
    monkeypatch.setattr(stage, "judge", lambda *_: {"status": "passed", "reason": "", "cases": []})
    # A launch elsewhere leaves its work in the simulated GPU's list.
    monkeypatch.setattr(stage, "elsewhere", lambda session, call, output, us: bool(call() or gpu.elsewhere))
    session = simulated.session_on(describe=lambda: {"name": "GPU A"})
    monkeypatch.setattr("gemmrepro.gpu.baselines.BASELINES", {**BASELINES, "cublas.sgemm": library})
    file(tmp_path, name="theirs.py")
    options = SimpleNamespace(patience=100.0, journal=tmp_path / "journal")
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    monkeypatch.setattr(stage, "GpuDevice", lambda session: SyntheticGpu())

    def run(*binds, baseline: str = "cublas.sgemm") -> dict:
        own = files.read(file(tmp_path, f'{{"sizes": [{SIZE}], "baseline": "{baseline}"}}'))
        made = stage.Bench(session, own, binds, config, options)
        for part in ("gate", "0", "1", "2", "regimes"):
            made.do(part)
        signal.setitimer(signal.ITIMER_REAL, 0)
        return json.loads(json.dumps(made.found()))

    return run


def multiply(gpu, a, b, c) -> None:  # noqa: F811
    c[...] = a.astype(np.float64) @ b
    gpu.work(gpu.launch_us)


def test_an_honest_file_has_rows_beside_its_baseline(found, gpu):  # noqa: F811
    said = found(lambda a, b, c, stream: lambda: multiply(gpu, a, b, c))
    assert (said["gate"]["status"], said["skipped"], said["against"]) == ("passed", [], "cuBLAS 1")
    rows = {(row["kernel"], row["cache"]): row for row in said["rows"]}
    assert rows.keys() == {(kernel, cache) for kernel in ("own.mine", "cublas.sgemm") for cache in ("cold", "warm")}
    mine = rows["own.mine", "warm"]
    assert (mine["n"], mine["rounds"], mine["ratio"], mine["baseline"]) == (SIZE, 3, 1, "cublas.sgemm")
    alone = {(row["kernel"], row["regime"]): row["ratio"] for row in said["regimes"]}
    assert alone.keys() == {(name, use) for name in ("own.mine", "cublas.sgemm") for use in ("sustained", "burst")}
    assert alone["own.mine", "sustained"] == pytest.approx(1, rel=0.1)


def test_a_baseline_of_ones_own_stands_where_a_library_would(found, gpu):  # noqa: F811
    half = lambda a, b, c, stream: lambda: multiply(gpu, a, b, c) or gpu.work(gpu.launch_us)  # noqa: E731
    said = found(lambda a, b, c, stream: lambda: multiply(gpu, a, b, c), half, baseline="theirs.py")
    rows = {(row["kernel"], row["cache"]): row for row in said["rows"]}
    assert said["against"].startswith("theirs.py ") and rows["own.theirs", "warm"]["toolkit"] == "library"
    assert rows["own.mine", "cold"]["ratio"] == 2


def knows_its_inputs(gpu):  # noqa: F811
    def bind(a, b, c, stream):
        made = a.astype(np.float64) @ b
        return lambda: c.__setitem__(..., made) or gpu.work(gpu.launch_us)

    return bind


def elsewhere_after(honest: int):
    def cheat(gpu):  # noqa: F811
        launches = itertools.count()

        def bind(a, b, c, stream):
            def launch() -> None:
                multiply(gpu, a, b, c)
                if next(launches) >= honest:
                    gpu.elsewhere.append(launch)

            return launch

        return bind

    return cheat


@pytest.mark.parametrize(
    ("cheat", "words"),
    [
        (knows_its_inputs, "on other inputs, after it was timed"),
        (elsewhere_after(0), "a launch writes C before its stream gets to it"),
        (elsewhere_after(400), "a launch writes C before its stream gets to it"),
    ],
)
def test_a_cheat_that_only_a_file_can_try_has_no_row(cheat, words, found, gpu):  # noqa: F811
    said = found(cheat(gpu))
    (reason,) = [each["reason"] for each in said["skipped"]]
    assert words in reason and {row["kernel"] for row in said["rows"]} == {"cublas.sgemm"}


def test_the_page_and_the_figure_show_rows_and_what_has_none():
    """Of a run of examples/own/triton_persistent.py on an H200, and of a file that was refused."""
    timed = json.loads((ROOT / "tests/unit/data/own.json").read_text())
    left = {"kernel": "own.other", "toolkit": "own", "reason": "wrong at 512x512x512: on other inputs"}
    none = {"rows": [], "regimes": [], "gate": None, "skipped": [left]}
    refused = timed | none | {"kernel": "own.other", "title": "Other"}
    drawing = paper.own([timed, refused | {"ended": "gate: it did not end within 300 s"}])
    ratios = {row["regime"]: round(row["ratio"], 4) for row in drawing.table}
    assert ratios == {"in turn": 0.3908, "sustained": 0.4643, "in bursts": 0.3899}
    assert drawing.alt.endswith("None is faster than its baseline at any size.") and "not measured" in svg_of(drawing)
    faster = [row | {"ratio": 1.2, "ratio_ci_low": 1.1, "ratio_ci_high": 1.3} for row in timed["rows"]]
    assert "Faster at some size: Triton, persistent." in paper.own([timed | {"rows": faster}]).alt
    environment = page._environment()
    template = environment.get_template("own.html.j2")
    macros = {"scroll": environment.get_template("macros.j2").module.scroll}
    context = template.new_context({"own": [timed, refused], "own_figure": SimpleNamespace(svg=""), **macros})
    text = "".join(template.blocks["content"](context))
    for words in ("passed, 2 cases", "not run", "not applicable", "own.other: wrong at 512x512x512", "0.3908", ">297<"):
        assert words in text, words
