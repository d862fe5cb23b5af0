"""The ladder's sources, run on the CPU: every element loaded, multiplied and stored as it should be.

This is no measurement and no replacement for the numerical gate on a GPU. It compiles the very .cu files as C++
(tests/unit/cpu_grid.hpp turns CUDA's words into C++) and so proves index arithmetic and barriers where no GPU is.
"""

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cpu_grid import compile_program

from gemmrepro import registry
from gemmrepro.operations import Shape

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH")

DRIVER = Path(__file__).with_name("ladder_driver.cpp")
A_COUNTS = {"gemm": "size_t(m) * k", "vector_add_in_place": "n", "gelu": "n"}
B_COUNTS = {"gemm": "size_t(k) * n", "vector_add_in_place": "0", "gelu": "n"}
WORKSPACE_BYTES = 48 << 20
"""Of each intermediate array, all bits set: a kernel may not rely on what it finds."""


def launches_of(kernel: registry.Kernel) -> dict[str, tuple[str | int, ...]]:
    """The arguments of each entry point that a run of `kernel` may launch."""
    return {code.code.entry: code.call.arguments for code in kernel.codes}


def call_of(entry: str, arguments: tuple[str | int, ...], workspace: Iterable[str]) -> str:
    """A lambda that calls an entry point, whose pointers to the workspace have types of their own."""
    passed = [f"Any{{{argument}.data()}}" if argument in workspace else str(argument) for argument in arguments]
    return f"[] {{ {entry}({', '.join(passed).replace('map:b', 'map_b')}); }}"


def compile_for_cpu(
    kernel: registry.Kernel, folder: Path, precompiled: Path, plant: tuple[str, str, int] | None = None
) -> Path:
    """Compile `kernel`'s source, `plant` = (text, replacement, which occurrence) applied, into a program."""
    source = kernel.source_path.read_text()
    if plant:
        text, replacement, which = plant
        pieces = source.split(text)
        assert len(pieces) > which + 1, f"{text!r} is not in {kernel.source}"
        source = text.join(pieces[: which + 1]) + replacement + text.join(pieces[which + 1 :])
    # The headers' functions stand in cpu_grid.hpp; shared memory whose size is given at launch is ample here.
    source = re.sub(r"^#include .*$", "", source, flags=re.MULTILINE)
    source = re.sub(
        r"extern __shared__ .*\bdynamic_shared\[\];", "alignas(128) static float4 dynamic_shared[1 << 14];", source
    )
    box = kernel.call.tensor_maps["b"].box if kernel.call.tensor_maps else (0, 0)
    workspace = kernel.run.workspace
    calls = ", ".join(call_of(entry, arguments, workspace) for entry, arguments in launches_of(kernel).items())
    arrays = "struct Any { char* data; template <class T> operator T*() const { return (T*)data; } };\n" + "".join(
        f"alignas(16) static std::vector<char> {name}({WORKSPACE_BYTES}, char(0xff));\n" for name in workspace
    )
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / kernel.id
    code = DRIVER.read_text().replace("A_COUNT", A_COUNTS[kernel.compute.op]).replace("SOURCE", source)
    code = code.replace("B_COUNT", B_COUNTS[kernel.compute.op])
    code = code.replace("MAP_BOX", f"{box[0]}, {box[1]}").replace("CALLS", calls).replace("WORKSPACE", arrays)
    (folder / f"{kernel.id}.cpp").write_text(code)
    compile_program(folder / f"{kernel.id}.cpp", program, kernel.code.defines, precompiled)
    return program


def run_on_cpu(
    program: Path, kernel: registry.Kernel, shape: Shape, alpha: float, beta: float, operands, reverse: bool = False
) -> np.ndarray:
    a, b, c = operands
    given, result = program.with_suffix(".in"), program.with_suffix(".out")
    given.write_bytes(b"".join(np.ascontiguousarray(x, dtype=np.float32).tobytes() for x in (a, b, c)))
    command = [program, *(shape.m, shape.n, shape.k), alpha, beta, given, result, int(reverse)]
    entries = list(launches_of(kernel))
    steps = [(step.entry, step.launch(shape)) for step in kernel.steps_at(shape)] or [
        (kernel.code.entry, kernel.launch(shape))
    ]
    for entry, launch in steps:
        command += [entries.index(entry), *launch.grid[:2], *launch.block[:2]]
    subprocess.run([str(part) for part in command], check=True, timeout=120)
    return np.frombuffer(result.read_bytes(), np.float32).reshape(shape.m, shape.n)


def operands(shape: Shape, seed: int = 0, beta: float = 0.0):
    """A and B with small integers, so that every sum is exact; C poisoned with NaN where it may not be read."""
    rng = np.random.default_rng(seed)
    a = rng.integers(-9, 10, (shape.m, shape.k)).astype(np.float32)
    b = rng.integers(-9, 10, (shape.k, shape.n)).astype(np.float32)
    c = np.full((shape.m, shape.n), np.nan, np.float32)
    if beta:
        c = rng.integers(-9, 10, (shape.m, shape.n)).astype(np.float32)
    return a, b, c


GEMMS = [kernel for kernel in registry.kernels("ladder") if kernel.compute.op == "gemm"]


CUT = Shape(256, 512, 31 * 16)
"""Level 7.6 cuts each of its four tiles into three pieces or more."""


def shapes(kernel: registry.Kernel) -> list[Shape]:
    """Unequal sizes with more than one block each way; tails where the rung takes them."""
    if not kernel.accepts.multiple_of:
        return [Shape(37, 70, 45), Shape(33, 1, 64), Shape(1, 65, 1)]
    step = kernel.accepts.multiple_of
    cut = [CUT] if kernel.id == "ladder.cut" else []
    return [Shape(2 * step["m"], 3 * step["n"], 3 * step["k"]), Shape(step["m"], step["n"], step["k"]), *cut]


@pytest.fixture(scope="module")
def programs(tmp_path_factory, precompiled):
    """Every kernel's program by its id, compiled when it is first asked for."""
    folder = tmp_path_factory.mktemp("cpu")

    class Programs(dict[str, Path]):
        def __missing__(self, kernel_id: str) -> Path:
            self[kernel_id] = compile_for_cpu(registry.kernel(kernel_id), folder, precompiled)
            return self[kernel_id]

    return Programs()


@pytest.mark.parametrize("kernel", GEMMS, ids=lambda kernel: kernel.id)
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_gemm_is_exact_on_integers(kernel, programs, reverse):
    """And where alpha is 0, A and B are not read, as in BLAS: whatever they hold, C = beta C."""
    for shape in shapes(kernel):
        for alpha, beta in ((1.0, 0.0), (-2.0, 0.5), (0.0, 0.0), (0.0, 0.5)):
            a, b, c = operands(shape, seed=shape.n, beta=beta)
            want = alpha * (a.astype(np.float64) @ b.astype(np.float64)) + (beta * c if beta else 0.0)
            if not alpha:
                a[...], b[...] = np.nan, np.inf
            got = run_on_cpu(programs[kernel.id], kernel, shape, alpha, beta, (a, b, c), reverse)
            np.testing.assert_array_equal(got, want.astype(np.float32), err_msg=f"{shape} alpha={alpha} beta={beta}")


@pytest.mark.parametrize("blocks", [1, 7])
def test_vector_add_covers_any_length_with_any_grid(programs, blocks):
    kernel = registry.kernel("ladder.vector_add")
    small_grid = replace(kernel, launch=lambda shape: replace(kernel.launch(shape), grid=(blocks, 1, 1)))
    for n in (1, 257, 2000):
        x, y = np.arange(n, dtype=np.float32), np.full(n, 0.5, np.float32)
        nothing = np.empty(0, np.float32)
        got = run_on_cpu(programs[kernel.id], small_grid, Shape(1, n, 1), 1, 0, (x, nothing, y))
        np.testing.assert_array_equal(got[0], x + y)


def with_grid(kernel: registry.Kernel, blocks: int) -> registry.Kernel:
    """Level 7.6 launched with any number of blocks, twice: the second finds the workspace as the first left it."""
    (cut,) = kernel.steps_at(CUT)
    grid = replace(cut, launch=lambda shape: replace(cut.launch(shape), grid=(blocks, 1, 1)))
    return replace(kernel, run=replace(kernel.run, steps=(grid, grid)))


@pytest.mark.parametrize(
    ("shape", "blocks"),
    [
        (Shape(128, 256, 64), 1),  # whole
        (Shape(128, 256, 64), 3),  # too few steps for its pieces: the short ones are empty
        (Shape(128, 256, 400), 5),
        (Shape(256, 256, 160), 7),  # three pieces each, and a block too many
        (Shape(256, 256, 160), 300),  # 150 pieces each: more than any launch of the project
    ],
    ids=str,
)
def test_any_number_of_pieces_gives_right_results(shape, blocks, programs):
    kernel = with_grid(registry.kernel("ladder.cut"), blocks)
    a, b, c = operands(shape, beta=1.0)
    for reverse in (False, True):
        got = run_on_cpu(programs[kernel.id], kernel, shape, 2.0, 0.5, (a, b, c), reverse)
        product = 2 * (a.astype(np.float64) @ b)
        np.testing.assert_array_equal(got, product + 0.5 * (product + 0.5 * c))


def test_no_kernel_keeps_anything_between_launches():
    """Two launches at once would mix it: what a launch needs, its caller gives it."""
    keeping = re.compile(r"^__device__ [^(]*;", re.MULTILINE)
    assert not [kernel.id for kernel in GEMMS if keeping.search(kernel.source_path.read_text())]


BARRIER, WAIT = "__syncthreads();", "__pipeline_wait_prior(STAGES - 2);"
MISTAKES = {
    # what: (kernel, text, replacement, which occurrence)
    "no barrier before the reads": ("smem", BARRIER, "", 0),
    "no barrier after the reads": ("vectorized", BARRIER, "", 1),
    "no wait for the copies": ("fragments", WAIT, "", 1),
    "no wait for the tensor map": ("tma", "barrier_wait(&arrived[slot ^ 1], (t + 1) / 2 % 2);", "", 0),
    "a slot filled while it is read": ("pinned", "store_a(slot ^ 1);", "store_a(slot);", 0),
    "a slot filled too late": ("async_copy", "copy_tile(t + STAGES - 1);", "copy_tile(t + STAGES);", 0),
    "other elements": ("tma", "block_col, t * BK", "block_row, t * BK", 0),
    "a column left out": ("warptile", "j < WNITER * TN; j += 4)", "j < (WNITER - 1) * TN; j += 4)", 1),
    "a step of a piece lost": ("cut", "to = steps - (pieces", "to = steps - 1 - (pieces", 0),
    "a flag of the launch before": ("cut", "== launch ? seen : launch", "== launch ? seen : seen", 0),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_planted_bug_shows(mistake, tmp_path, precompiled):
    name, *plant = MISTAKES[mistake]
    kernel = registry.kernel(f"ladder.{name}")
    program = compile_for_cpu(kernel, tmp_path, precompiled, tuple(plant))
    step = kernel.accepts.multiple_of or {"m": 32, "n": 32, "k": 32}
    shape = CUT if kernel.id == "ladder.cut" else Shape(2 * step["m"], step["n"] * 2, step["k"] * 6)
    wrong = []
    for reverse in (False, True):
        a, b, c = operands(shape)
        got = run_on_cpu(program, kernel, shape, 2.0, 0.0, (a, b, c), reverse)
        wrong.append(not np.array_equal(got, 2 * (a.astype(np.float64) @ b).astype(np.float32)))
    assert any(wrong)
