"""What is asked of cuBLAS, with a library that only takes notes."""

import ctypes
import gc
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from gemmrepro.errors import UserError
from gemmrepro.gpu import baselines, cublas
from gemmrepro.gpu.cublas import Trials
from gemmrepro.operands import Operands
from gemmrepro.operations import Problem, Shape

HALF = Problem("gemm", "fp16", "fp32", "row,col,row")
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
        self.attributes, self.scalars, self.keeps_mode, self.mode = {}, [], False, None

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
                write(arguments[-1], self.ways)
            return {"create": 7, "get_version": 130500}.get(name)

        call.__name__ = name
        return call

    def named(self, name):
        return [arguments for called, arguments in self.calls if called == name]


def memory(address, size):
    """The bytes at an address, which the library is given as a number."""
    return (ctypes.c_char * size).from_address(address)


def read(address, kind):
    return np.frombuffer(memory(address, np.dtype(kind).itemsize), kind)[0]


def write(address, value):
    np.frombuffer(memory(address, 4), "<i4")[0] = value


def operands(problem=HALF, base=0):
    a, b, c = (SimpleNamespace(data=SimpleNamespace(ptr=base + place)) for place in (1 << 12, 2 << 12, 3 << 12))
    return Operands(problem, SHAPE, (a, b), c)


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
    told = lt.described(HALF, SHAPE, 8)
    assert len(told) == 3 and told[0].startswith("cublasLt algorithm 0 tile 0 split-K 0 ")
    read = library.named("matmul_algo_config_get_attribute")
    assert [attribute for _, attribute, *_ in read] == 3 * list(range(9))
    assert [size for *_, size, _ in read[:9]] == [4, 4, 4, 4, 4, 4, 4, 2, 2]
    assert len({algorithm for algorithm, *_ in read}) == 3
    library.status["matmul_algo_config_get_attribute"] = cublas.NOT_SUPPORTED
    assert lt.described(HALF, SHAPE, 8) == ["cublasLt"] * 3
    session = SimpleNamespace(stream=SimpleNamespace(ptr=0), libraries={"cublasLt": lt})
    assert baselines.algorithm_name(session, "cublas.gemm", HALF, SHAPE, 0) == "cublasGemmEx"
    assert baselines.algorithm_name(session, "cublas.gemm", HALF, SHAPE, 3) == "cublasLt"


def test_types_and_layout_are_as_asked_for(library, lt):
    lt.candidates(operands(), 8)
    layouts = [list(arguments) for arguments in library.named("matrix_layout_create")]
    fp16, fp32, k, m, n = 2, 0, SHAPE.k, SHAPE.m, SHAPE.n
    assert layouts == [[fp16, k, n, k], [fp16, k, m, k], [fp32, n, m, n]]
    library.calls.clear()
    lt.candidates(operands(Problem("gemm", "bf16", "bf16", "row,row,row")), 8)
    layouts = [list(arguments) for arguments in library.named("matrix_layout_create")]
    assert layouts == [[14, n, k, n], [14, k, m, k], [14, n, m, n]]
    lt.candidates(operands(Problem("gemm", "fp16", "fp16", "col,row,row")), 8)
    assert [library.attributes[side] for side in (cublas.LT_TRANSA, cublas.LT_TRANSB)] == [cublas.OP_N, cublas.OP_T]
    layouts = [list(arguments[1:]) for arguments in library.named("matrix_layout_create")]
    assert layouts[3:] == [[n, k, n], [m, k, m], [n, m, n]], "an M-major A is a transposed second matrix"


def test_fast_sums_are_asked_for_and_are_a_question_of_their_own(library, lt):
    problem = Problem("gemm", "fp8_e4m3", "fp16", "row,col,row")
    lt.candidates(operands(problem), 8)
    assert cublas.LT_FAST_ACCUM not in library.attributes
    lt.candidates(operands(problem), 8, cublas.Sums.FAST)
    assert library.attributes[cublas.LT_FAST_ACCUM] == 1
    assert len(library.named("matmul_algo_get_heuristic")) == 2


def test_sums_in_fp16_are_asked_for_with_factors_in_fp16(library, lt):
    problem, fp16 = Problem("gemm", "fp16", "fp16", "col,row,row"), 2
    (call, *_) = lt.candidates(operands(problem), 8, cublas.Sums.HALF)
    assert library.named("matmul_desc_create") == [(cublas.COMPUTE_16F, fp16)]
    call()
    (arguments,) = library.named("matmul")
    assert (read(arguments[2], "<u2"), read(arguments[7], "<u2")) == (0x3C00, 0), "1 and 0 as fp16"


FUSED = Problem("gemm_epilogue", "bf16", "bf16", "row,col,row")


def fused_operands():
    arrays = [SimpleNamespace(data=SimpleNamespace(ptr=place << 12)) for place in (1, 2, 3, 4, 5)]
    return Operands(FUSED, SHAPE, tuple(arrays[:4]), arrays[4], 0.125, 0.5)


def test_a_fused_epilogue_is_gelu_of_a_bias_and_c_stays(library, lt):
    call, *others = lt.fused(fused_operands(), 8)
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


def test_a_library_without_the_epilogue_says_what_to_compare_with_instead(library, lt):
    library.status["matmul_algo_get_heuristic"] = cublas.NOT_SUPPORTED
    with pytest.raises(UserError, match=r"cublasLt 130500 fuses no GELU and bias into .* a pointwise kernel instead"):
        lt.fused(fused_operands(), 8)


def test_the_algorithm_of_fast_sums_is_not_that_of_others():
    trials, problem = Trials(), Problem("gemm", "fp8_e4m3", "fp16")
    trials.take(problem, SHAPE, 3, "cublas.gemm_k_major")
    assert trials.algorithm(problem, SHAPE, "cublas.gemm_fast") is None
    trials.take(problem, SHAPE, 1, "cublas.gemm_fast")
    assert trials.algorithm(problem, SHAPE, "cublas.gemm_fast") == 1
    assert trials.algorithm(problem, SHAPE) == 3
    for name in ("cublas.gemm_half_sums", "cublas.gemm_gelu_bias"):
        assert trials.algorithm(problem, SHAPE, name) is None
    trials.limit(0.1)
    assert trials.milliseconds == 100.0
    trials.limit(5.0)
    assert trials.milliseconds == cublas.TRIAL_MS == 800.0


def test_what_was_made_is_destroyed(library, lt):
    calls = lt.candidates(operands(), 8)
    assert len(library.alive) == 4, "the preference ends with the question; three layouts and the product stay"
    lt._plans.clear()
    gc.collect()
    assert len(library.alive) == 4, "the calls still need them"
    calls.clear()
    gc.collect()
    assert not library.alive


def test_nothing_stays_of_a_question_that_failed(library, lt):
    library.status["matmul_algo_get_heuristic"] = 7
    with pytest.raises(UserError, match=r"asking cublasLt for algorithms failed \(status 7\)"):
        lt.candidates(operands(), 8)
    assert not library.alive


def test_a_handle_that_keeps_another_math_mode_is_refused(library):
    with pytest.raises(UserError, match="math mode -1"):
        cublas.Cublas(SESSION)


def test_a_call_that_fails_says_so(library, lt):
    call = lt.candidates(operands(), 8)[0]
    library.status["matmul"] = 14
    with pytest.raises(UserError, match=r"matmul of cuBLAS failed \(status 14\)"):
        call()


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


def test_without_nvmath_or_the_library_it_says_what_to_install(library, monkeypatch):
    library.status["create"] = 1
    for opened in (cublas.Cublas, cublas.CublasLt):
        with pytest.raises(UserError, match="nvidia-cublas or the CUDA toolkit is installed"):
            opened(SESSION)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "nvmath", None)
    with pytest.raises(UserError, match="install nvmath-python"):
        cublas.Cublas(SESSION)


TYPES = [
    # problem, its operands' and output's cudaDataType_t, cublasComputeType_t, type of alpha
    (Problem("gemm", "tf32", "fp32"), 0, 0, 77, "<f4"),
    (Problem("gemm", "fp64", "fp64"), 1, 1, 70, "<f8"),
    (Problem("gemm", "int8", "int32", "row,col,row"), 3, 10, 72, "<i4"),
    (Problem("gemm", "fp8_e4m3", "fp16", "row,col,row"), 28, 2, 68, "<f4"),
    (Problem("gemm", "bf16", "bf16"), 14, 14, 68, "<f4"),
]
BY_TYPE = {"argnames": ("problem", "kind", "out", "compute", "scalar"), "argvalues": TYPES}


@pytest.mark.parametrize(**BY_TYPE, ids=lambda value: value.dtype_in if isinstance(value, Problem) else "")
def test_every_type_is_summed_and_scaled_in_its_own(library, lt, problem, kind, out, compute, scalar):
    scales = {"<f8": 1, "<i4": 10, "<f4": 0}
    (call, *_) = lt.candidates(operands(problem), 8)
    call()
    assert library.named("matmul_desc_create") == [(compute, scales[scalar])]
    assert [layout[0] for layout in library.named("matrix_layout_create")] == [kind, kind, out]
    ((_, _, alpha, *_, beta, _, _, _, _, _, _, _, _),) = library.named("matmul")
    assert (read(alpha, scalar), read(beta, scalar)) == (1, 0)
    library.calls.clear()
    library.keeps_mode = True
    handle = cublas.Cublas(SESSION)
    handle.gemm_ex(operands(problem))()
    ((*_, computed, _),) = library.named("gemm_ex")
    assert computed == compute
    assert handle.version == "13.5.0"


def test_8_bit_floats_go_to_cublaslt_alone_and_no_way_is_named(library, lt, monkeypatch):
    monkeypatch.setattr(baselines, "opened_lt", lambda session: lt)
    monkeypatch.setattr(baselines, "opened", lambda session: pytest.fail("cublasGemmEx multiplies no 8-bit floats"))
    session = SimpleNamespace(trials=Trials())
    problem = Problem("gemm", "fp8_e5m2", "fp16", "row,row,row")
    library.ways = 0
    multiply = baselines.baseline("cublas.gemm").bind
    with pytest.raises(UserError, match="cuBLAS has no algorithm for gemm fp8_e5m2 in layout row,row,row"):
        multiply(session, operands(problem))
    library.ways = 2
    problem = Problem("gemm", "fp8_e4m3", "fp16", "row,col,row")
    session.trials.take(problem, SHAPE, 1)
    assert callable(multiply(session, operands(problem)))


def test_block_scales_are_asked_for_and_each_call_has_its_own(library, lt):
    problem, shape = Problem("gemm_scaled", "fp8_e4m3", "fp16", "row,col,row"), Shape(256, 256, 512)

    def of(base):
        arrays = [SimpleNamespace(data=SimpleNamespace(ptr=base + 256 * place)) for place in range(5)]
        return Operands(problem, shape, tuple(arrays[:4]), arrays[4])

    first, second = (lt.candidates(of(base), 8)[0] for base in (4096, 8192))
    assert (library.attributes[31], library.attributes[32]) == (5, 4)  # of 128 x 128 for B, the library's first matrix
    for call, base in ((second, 8192), (first, 4096)):
        call()
        assert (library.attributes[17], library.attributes[18]) == (base + 3 * 256, base + 2 * 256)
    assert len(library.named("matmul_algo_get_heuristic")) == 1


def test_a_library_without_block_scales_is_refused_by_its_version(library, lt, monkeypatch):
    monkeypatch.setattr(library, "get_version", lambda: 120500, raising=False)
    problem = Problem("gemm_scaled", "fp8_e4m3", "fp16", "row,col,row")
    arrays = [SimpleNamespace(data=SimpleNamespace(ptr=4096)) for _ in range(5)]
    with pytest.raises(UserError, match=r"^cublasLt 12\.5 has no block scales"):
        lt.candidates(Operands(problem, Shape(256, 256, 512), tuple(arrays[:4]), arrays[4]), 8)
