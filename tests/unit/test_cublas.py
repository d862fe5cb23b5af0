"""What is asked of cuBLAS, with a library that only takes notes."""

import ctypes
import gc
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from gemmrepro import experiments
from gemmrepro.errors import UserError
from gemmrepro.gpu import baselines, cublas
from gemmrepro.gpu.cublas import Trials
from gemmrepro.operands import Operands
from gemmrepro.operations import Problem, Shape

HALF = Problem("gemm", "fp16", "fp32", "row,col,row")
FP8 = Problem("gemm", "fp8_e4m3", "fp16", "row,col,row")
FUSED = Problem("gemm_epilogue", "bf16", "bf16", "row,col,row")
SCALED = Problem("gemm_scaled", "fp8_e4m3", "fp16", "row,col,row")
SHAPE = Shape(48, 40, 24)
SESSION = SimpleNamespace(stream=SimpleNamespace(ptr=0))


class Status(Exception):
    """As nvmath's own: it has the library's status."""

    def __init__(self, status):
        super().__init__(f"status {status}")
        self.status = status


class Library:
    """nvmath's bindings as far as they are used: counts what is made and destroyed, keeps the calls."""

    cuBLASLtError = Status
    # cublasLtMatmulHeuristicResult_t
    matmul_heuristic_result_dtype = np.dtype(
        [("algo", "<u8", 8), ("workspace_size", "<u8"), ("state", "<i4"), ("waves", "<f4"), ("reserved", "<i4", 4)]
    )

    def __init__(self):
        self.alive, self.made, self.calls, self.ways, self.status = set(), 0, [], 3, {}
        self.attributes, self.keeps_mode, self.mode, self.version = {}, False, None, 130500

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, arguments))
            if name in self.status:
                raise Status(self.status[name])
            if name.endswith("_create"):
                self.made += 1
                self.alive.add(self.made)
                return self.made
            if name.endswith("_destroy"):
                self.alive.remove(arguments[0])
            elif name.endswith("_set_attribute"):
                _, attribute, address, size = arguments
                self.attributes[attribute] = read(address, f"<i{size}")
            elif name == "set_math_mode":
                self.mode = arguments[1]
            elif name == "get_math_mode":
                return self.mode if self.keeps_mode else -1
            elif name == "matmul_algo_get_heuristic":
                np.frombuffer(memory(arguments[-1], 4), "<i4")[0] = self.ways
            return {"create": 7, "get_version": self.version}.get(name)

        call.__name__ = name
        return call

    def named(self, name):
        return [arguments for called, arguments in self.calls if called == name]


def memory(address, size):
    """The bytes at an address, which the library is given as a number."""
    return (ctypes.c_char * size).from_address(address)


def read(address, kind):
    return np.frombuffer(memory(address, np.dtype(kind).itemsize), kind)[0]


def operands(problem=HALF, base=0, shape=SHAPE, **scalars):
    """Operands at 1, 2, ... times 4096 behind `base`; the output is the last."""
    count = 3 if problem.op == "gemm" else 5
    *inputs, output = (SimpleNamespace(data=SimpleNamespace(ptr=base + (place << 12))) for place in range(1, count + 1))
    return Operands(problem, shape, tuple(inputs), output, **scalars)


@pytest.fixture
def library(monkeypatch):
    fake = Library()
    monkeypatch.setattr(cublas, "_binding", lambda name: fake)
    monkeypatch.setattr(cublas, "_workspace", lambda: SimpleNamespace(data=SimpleNamespace(ptr=0)))
    return fake


@pytest.fixture
def lt(library):
    return cublas.CublasLt(SESSION)


def test_the_heuristic_is_asked_once_for_a_problem_and_shape(library, lt):
    first = lt.candidates(operands(), 8)
    made = library.made
    second = lt.candidates(operands(base=1 << 20), 8)
    assert len(first) == len(second) == 3
    assert library.made == made and len(library.named("matmul_algo_get_heuristic")) == 1
    for call in (*first, *second):
        call()
    # B comes first for a column-major library, and each call has its own arrays.
    assert [arguments[3] for arguments in library.named("matmul")] == [2 << 12] * 3 + [(2 << 12) + (1 << 20)] * 3
    lt.candidates(operands(Problem("gemm", "bf16", "bf16", "row,row,row")), 8)
    assert len(library.named("matmul_algo_get_heuristic")) == 2


def test_an_algorithm_is_described_by_what_the_library_knows_of_it(library, lt):
    session = SimpleNamespace(stream=SimpleNamespace(ptr=0), libraries={"cublasLt": lt})
    names = [baselines.algorithm_name(session, "cublas.gemm", HALF, SHAPE, place) for place in (0, 3)]
    assert names[0] == "cublasGemmEx" and names[1].startswith("cublasLt algorithm 0 tile 0 split-K 0 ")
    library.status["matmul_algo_config_get_attribute"] = cublas.NOT_SUPPORTED
    assert lt.described(HALF, SHAPE, 8) == ["cublasLt"] * 3


def test_other_sums_are_asked_for_and_are_a_question_of_their_own(library, lt):
    lt.candidates(operands(FP8), 8)
    assert cublas.LT_FAST_ACCUM not in library.attributes
    lt.candidates(operands(FP8), 8, cublas.Sums.FAST)
    assert library.attributes[cublas.LT_FAST_ACCUM] == 1
    assert len(library.named("matmul_algo_get_heuristic")) == 2
    library.calls.clear()
    (call, *_) = lt.candidates(operands(Problem("gemm", "fp16", "fp16", "col,row,row")), 8, cublas.Sums.HALF)
    assert library.named("matmul_desc_create") == [(cublas.COMPUTE_16F, 2)]
    call()
    (arguments,) = library.named("matmul")
    assert (read(arguments[2], "<u2"), read(arguments[7], "<u2")) == (0x3C00, 0), "1 and 0 as fp16"


def test_a_fused_epilogue_is_gelu_of_a_bias_and_c_stays(library, lt):
    call, *others = lt.fused(operands(FUSED, alpha=0.125, beta=0.5), 8)
    assert len(others) == 2
    assert library.attributes[cublas.LT_EPILOGUE] == cublas.GELU_BIAS
    assert library.attributes[cublas.LT_BIAS_POINTER] == 4 << 12
    call()
    (arguments,) = library.named("matmul")
    assert (read(arguments[2], "<f4"), read(arguments[7], "<f4")) == (0.125, 0.5)
    assert (arguments[3], arguments[5]) == (2 << 12, 1 << 12), "B, then A"
    assert (arguments[8], arguments[10]) == (3 << 12, 5 << 12), "C is read, D is written"
    lt.candidates(operands(), 8)
    assert len(library.named("matmul_algo_get_heuristic")) == 2


def test_block_scales_are_asked_for_and_each_call_has_its_own(library, lt):
    shape = Shape(256, 256, 512)
    first, second = (lt.candidates(operands(SCALED, base, shape), 8)[0] for base in (0, 1 << 20))
    assert (library.attributes[31], library.attributes[32]) == (5, 4)  # of 128 x 128 for B, the library's first matrix
    for call, base in ((second, 1 << 20), (first, 0)):
        call()
        assert (library.attributes[17], library.attributes[18]) == (base + (4 << 12), base + (3 << 12))
    assert len(library.named("matmul_algo_get_heuristic")) == 1


def test_the_algorithm_of_other_sums_is_another_and_trials_have_a_limit():
    trials = Trials()
    trials.take(FP8, SHAPE, 3, "cublas.gemm_k_major")
    assert trials.algorithm(FP8, SHAPE, "cublas.gemm_fast") is None
    trials.take(FP8, SHAPE, 1, "cublas.gemm_fast")
    assert trials.algorithm(FP8, SHAPE, "cublas.gemm_fast") == 1 and trials.algorithm(FP8, SHAPE) == 3
    for name in ("cublas.gemm_half_sums", "cublas.gemm_gelu_bias"):
        assert trials.algorithm(FP8, SHAPE, name) is None
    for seconds, milliseconds in ((0.1, 100.0), (5.0, 800.0)):
        trials.limit(seconds)
        assert trials.milliseconds == milliseconds


def test_what_was_made_is_destroyed(library, lt):
    calls = lt.candidates(operands(), 8)
    assert len(library.alive) == 4, "the preference ends with the question; three layouts and the product stay"
    lt._plans.clear()
    gc.collect()
    assert len(library.alive) == 4, "the calls still need them"
    calls.clear()
    gc.collect()
    assert not library.alive


@pytest.mark.parametrize(
    ("setting", "value", "ask", "says"),
    [
        ("matmul_algo_get_heuristic", 7, lambda lt: lt.candidates(operands(), 8), r"algorithms failed \(status 7\)"),
        ("matmul", 14, lambda lt: lt.candidates(operands(), 8)[0](), r"matmul of cuBLAS failed \(status 14\)"),
        ("matmul_algo_get_heuristic", 15, lambda lt: lt.fused(operands(FUSED), 8), "130500 fuses no GELU and bias"),
        ("version", 120500, lambda lt: lt.candidates(operands(SCALED), 8), r"^cublasLt 12\.5 has no block scales"),
        ("keeps_mode", False, lambda lt: cublas.Cublas(SESSION), "math mode -1"),
        ("create", 1, lambda lt: cublas.Cublas(SESSION), "nvidia-cublas or the CUDA toolkit is installed"),
    ],
)
def test_a_library_that_refuses_is_told_with_the_way_out_and_leaves_nothing(library, lt, setting, value, ask, says):
    if setting in vars(library):
        setattr(library, setting, value)
    else:
        library.status[setting] = value
    with pytest.raises(UserError, match=says):
        ask(lt)
    assert setting == "matmul" or not library.alive


def test_an_algorithm_that_cannot_run_is_left_out_and_the_others_keep_their_places(library, lt, monkeypatch):
    whole = np.zeros
    monkeypatch.setattr(cublas.np, "zeros", lambda count, kind: refused(whole(count, kind)))

    def refused(made):
        if made.dtype == library.matmul_heuristic_result_dtype:
            made["state"][1] = 15
        return made

    for call in lt.candidates(operands(), 8):
        call()
    first, second = (arguments[12] for arguments in library.named("matmul"))
    assert second - first == 2 * library.matmul_heuristic_result_dtype.itemsize


M, N, K = SHAPE.m, SHAPE.n, SHAPE.k
PLAIN, TURNED = ((N, K, N), (K, M, K), (N, M, N)), ((K, N, K), (K, M, K), (N, M, N))


@pytest.mark.parametrize(
    ("problem", "kind", "out", "compute", "scalar", "layouts", "transposed"),
    [
        # problem, its operands' and output's cudaDataType_t, cublasComputeType_t, type of alpha; B comes first
        (Problem("gemm", "tf32", "fp32"), 0, 0, 77, "<f4", PLAIN, ""),
        (Problem("gemm", "fp64", "fp64"), 1, 1, 70, "<f8", PLAIN, ""),
        (Problem("gemm", "int8", "int32", "row,col,row"), 3, 10, 72, "<i4", TURNED, "B"),
        (FP8, 28, 2, 68, "<f4", TURNED, "B"),
        (HALF, 2, 0, 68, "<f4", TURNED, "B"),
        (Problem("gemm", "bf16", "bf16"), 14, 14, 68, "<f4", PLAIN, ""),
        (Problem("gemm", "fp16", "fp16", "col,row,row"), 2, 2, 68, "<f4", ((N, K, N), (M, K, M), (N, M, N)), "A"),
    ],
    ids=lambda value: value.dtype_in if isinstance(value, Problem) else "",
)
def test_every_type_and_layout_is_as_asked_for(library, lt, problem, kind, out, compute, scalar, layouts, transposed):
    scales = {"<f8": 1, "<i4": 10, "<f4": 0}
    (call, *_) = lt.candidates(operands(problem), 8)
    call()
    assert library.named("matmul_desc_create") == [(compute, scales[scalar])]
    made = [(of, *lengths) for of, lengths in zip((kind, kind, out), layouts, strict=True)]
    assert library.named("matrix_layout_create") == made
    sides = [library.attributes.get(side, cublas.OP_N) for side in (cublas.LT_TRANSA, cublas.LT_TRANSB)]
    assert sides == [cublas.OP_T if name == transposed else cublas.OP_N for name in "BA"]
    ((_, _, alpha, *_, beta, _, _, _, _, _, _, _, _),) = library.named("matmul")
    assert (read(alpha, scalar), read(beta, scalar)) == (1, 0)
    library.keeps_mode = True
    handle = cublas.Cublas(SESSION)
    handle.gemm_ex(operands(problem))()
    ((*_, computed, _),) = library.named("gemm_ex")
    assert computed == compute and handle.version == "13.5.0"


def test_8_bit_floats_go_to_cublaslt_alone_and_no_way_is_named(library, lt, monkeypatch):
    monkeypatch.setattr(baselines, "opened", lambda session: pytest.fail("cublasGemmEx multiplies no 8-bit floats"))
    session = SimpleNamespace(trials=Trials(), libraries={"cublasLt": lt})
    library.ways = 0
    multiply = baselines.baseline("cublas.gemm").bind
    with pytest.raises(UserError, match="cuBLAS has no algorithm for gemm fp8_e5m2 in layout row,row,row"):
        multiply(session, operands(Problem("gemm", "fp8_e5m2", "fp16", "row,row,row")))
    library.ways = 2
    session.trials.take(FP8, SHAPE, 1)
    assert callable(multiply(session, operands(FP8)))


def test_without_nvmath_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvmath", None)
    with pytest.raises(UserError, match="install nvmath-python"):
        cublas.Cublas(SESSION)


def test_a_session_opens_each_library_once(library):
    library.keeps_mode = True
    session = SimpleNamespace(stream=SimpleNamespace(ptr=0), libraries={})
    assert cublas.opened(session) is cublas.opened(session) is not cublas.opened(session, "tf32")
    assert cublas.opened_lt(session) is cublas.opened_lt(session)


def test_a_release_is_a_folder_with_both_libraries_and_its_process_says_what_stopped_it(tmp_path):
    """The experiment `releases`: none for what is installed, then each folder; without a GPU its process ends."""
    releases = experiments.beside("fp8", "releases.py")
    with pytest.raises(UserError, match=r"has no folder with libcublasLt.so.13 and libcublas.so.13; unpack a release"):
        releases.folders(str(tmp_path))
    for name in releases.FILES:
        (tmp_path / "13.10.0").mkdir(exist_ok=True)
        (tmp_path / "13.10.0" / name).touch()
    assert (releases.folders(""), releases.folders(str(tmp_path))) == ([None], [None, tmp_path / "13.10.0"])
    said = "beside cuBLAS of this machine nothing could be measured: (CuPy|CUDA|there is no|no GPU)"
    with pytest.raises(UserError, match=said):
        releases.beside(None, {"subjects": []})
