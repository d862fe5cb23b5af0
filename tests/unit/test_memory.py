"""The family memory's sources, run on the CPU: each element copied, counted or summed once, no other memory touched.

As in test_kernels.py, this proves index arithmetic and barriers where no GPU is, and replaces no gate on a GPU.
"""

import math
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cpu_grid import compile_program

from gemmrepro import registry
from gemmrepro.core.dtypes import DTYPES, STORAGE
from gemmrepro.gates import vectors
from gemmrepro.operations import Shape, counts
from gemmrepro.registry import Kernel, Step
from gemmrepro.registry.ladders import original

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH")

KERNELS = [kernel for kernel in registry.kernels("memory") if original(kernel) is None]
"""One of each source."""
GUARD = 1024
"""Bytes before and behind every array."""

DRIVER = r"""
#include "cpu_grid.hpp"
#include <string>
struct fp16 { unsigned short bits; };
SOURCE
static long long value[8];  // arguments; of a pointer, where in `memory` it points
static char* memory;
template <class T> struct Cast { static T from(long long v) { return T(v); } };
template <class T> struct Cast<T*> { static T* from(long long v) { return reinterpret_cast<T*>(memory + v); } };

// The file, its size, reversed or not; then of each launch the entry, blocks, threads, and its arguments, counted.
int main(int, char** v) {
    const size_t size = atoll(v[2]);
    memory = static_cast<char*>(aligned_alloc(256, (size + 255) / 256 * 256));
    FILE* file = fopen(v[1], "rb");
    if (fread(memory, 1, size, file) != size) return 2;
    fclose(file);
    for (char** at = v + 4; *at;) {
        const std::string entry = *at++;
        const unsigned blocks = atoi(*at++), threads = atoi(*at++);
        const int count = atoi(*at++);
        for (int i = 0; i < count; ++i) value[i] = atoll(*at++);
        void (*call)() = nullptr;
        CALLS
        if (!call) return 3;
        cpu_grid::launch({blocks, 1, 1}, {threads, 1, 1}, call, atoi(v[3]));
    }
    file = fopen(v[1], "wb");
    fwrite(memory, 1, size, file);
    fclose(file);
}
"""


def calls(source: str) -> str:
    """For every entry point of a source, the C++ that calls it on the driver's `value`s."""
    found = []
    for name, parameters in re.findall(r'extern "C" __global__ .*\n(\w+)\(([^{]*?)\) \{', source):
        types = [re.sub(r"\s*\w+$", "", each.strip()) for each in parameters.split(",")]
        passed = ", ".join(f"Cast<{type}>::from(value[{place}])" for place, type in enumerate(types))
        found.append(f'if (entry == "{name}") call = [] {{ {name}({passed}); }};')
    return "\n".join(found)


@cache
def compiled(kernel_id: str, folder: Path, precompiled: Path, plant: tuple[str, str] | None = None) -> Path:
    kernel = registry.kernel(kernel_id)
    source = kernel.source_path.read_text()
    if plant:
        assert source.count(plant[0]) == 1, f"{plant[0]!r} is not once in {kernel.source}"
        source = source.replace(*plant)
    source = re.sub(r"^#include .*$", "", source, flags=re.MULTILINE)
    source = re.sub(r"extern __shared__ unsigned own\[\];", "static unsigned own[12288];", source)
    # Loads past a cache are loads.
    source = re.sub(
        r'asm volatile\("ld\..*?\("l"\(from\)\);|asm volatile\("ld\..*?: "l"\(from\)\);',
        "return *from;",
        source,
        flags=re.S,
    )
    source = re.sub(r'asm volatile\("?(?:st|STORE).*?: "memory"\);', "*to = value;", source, flags=re.S)
    code = DRIVER.replace("SOURCE", source).replace("CALLS", calls(source))
    program = folder / (kernel_id + (".planted" if plant else ""))
    program.with_suffix(".cpp").write_text(code)
    compile_program(program.with_suffix(".cpp"), program, kernel.code.defines, precompiled)
    return program


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("memory")


def run(program: Path, kernel: Kernel, shape: Shape, given: np.ndarray, reverse: bool, times: int = 2) -> np.ndarray:
    """What `times` runs leave in the output; the input and everything around the arrays must stay as it was."""
    output = counts(kernel.problem, shape)[1] * DTYPES[kernel.compute.dtype_out]
    own = {name: DTYPES[one.dtype] * math.prod(one.lengths(shape)) for name, one in kernel.run.workspace.items()}
    own["c"] = output
    places, at = {}, GUARD
    for name, size in (("a", given.nbytes), *own.items()):
        places[name] = at
        at += -(-size // 256) * 256 + GUARD
    memory = np.frombuffer(np.random.default_rng(2).bytes(at), np.uint8).copy()
    memory[places["a"] : places["a"] + given.nbytes] = given.view(np.uint8)
    before = memory.copy()
    steps = kernel.steps_at(shape) or (Step(kernel.code.entry, kernel.launch, kernel.call.arguments),)

    def value(argument: str | int) -> int:
        if isinstance(argument, int):
            return argument
        if argument.startswith("n="):
            return int(argument[2:])
        return places[argument] if argument in places else getattr(shape, argument)

    command = []
    for step in steps * times:
        launch = step.launch(shape)
        assert launch.grid[1:] == launch.block[1:] == (1, 1)
        command += [step.entry, launch.grid[0], launch.block[0], len(step.arguments)]
        command += map(value, step.arguments)
    file = program.with_suffix(".data")
    file.write_bytes(memory.tobytes())
    subprocess.run(
        [str(each) for each in (program, file, len(memory), int(reverse), *command)], check=True, timeout=120
    )
    after = np.frombuffer(file.read_bytes(), np.uint8)
    written = np.zeros(at, bool)
    for name, size in own.items():
        written[places[name] : places[name] + size] = True
    assert (after[~written] == before[~written]).all(), "memory outside the arrays, or the input, was overwritten"
    return after[places["c"] : places["c"] + output].view(STORAGE[kernel.compute.dtype_out])


def shapes(kernel: Kernel) -> list[Shape]:
    lengths = (5, 16_403)
    if kernel.compute.op != "histogram":
        step = kernel.accepts.multiple_of.get("n", 1)
        return [Shape(1, -(-n // step) * step, 1) for n in lengths]
    found = [*(Shape(1, n, k) for k in (256, 3) for n in lengths), Shape(1, lengths[-1], 100_003)]
    return list(filter(kernel.takes, found))


def data(kernel: Kernel, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """An input with tails and, of ids, strays; and what must come out, bit for bit."""
    if kernel.compute.op == "histogram":
        ids = vectors.gate_ids("some outside", shape.n, shape.k, 1)
        return ids, vectors.counts_of(ids, shape.k, np)
    if kernel.compute.op == "reduce":
        values = vectors.gate_values("integers", shape.n, 1)
        return values, values.sum(keepdims=True)
    storage = np.dtype(STORAGE[kernel.compute.dtype_in])
    values = np.frombuffer(np.random.default_rng(1).bytes(shape.n * storage.itemsize), storage)
    return values, values


def same(got: np.ndarray, want: np.ndarray) -> bool:
    return bool((got.view(np.uint8) == np.ascontiguousarray(want).view(np.uint8)).all())


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_a_kernel_is_right_on_the_cpu(kernel, folder, precompiled):
    program = compiled(kernel.id, folder, precompiled)
    for shape in shapes(kernel):
        given, want = data(kernel, shape)
        for reverse in (False, True):
            assert same(run(program, kernel, shape, given, reverse), want), f"{shape}, reversed {reverse}"


WRONG = {
    "ids outside counted, too": ("memory.histogram_global", "(unsigned)bins)", "(unsigned)bins + 1)"),
    "counts kept for the next launch": ("memory.histogram_lanes", "counts[bin] = 0;", ""),
    "a segment's place in its tile forgotten": ("memory.histogram_ranges", "TILE_UNITS + (next >> 16)", "TILE_UNITS"),
    "the barrier before adding missing": (
        "memory.histogram_shared_waves",
        "    __syncthreads();\n    for (int bin = threadIdx.x; bin <= bins; bin += THREADS) {\n        if",
        "    for (int bin = threadIdx.x; bin <= bins; bin += THREADS) {\n        if",
    ),
    "a step of the tree left out": ("memory.reduce_divergent", "step < THREADS", "2 * step < THREADS"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_seen_on_the_cpu(name, folder, precompiled):
    kernel_id, *plant = WRONG[name]
    kernel, program = registry.kernel(kernel_id), compiled(kernel_id, folder, precompiled, tuple(plant))
    for shape in shapes(kernel):
        given, want = data(kernel, shape)
        for reverse in (False, True):
            try:
                if not same(run(program, kernel, shape, given, reverse), want):
                    return
            except AssertionError:
                return
    pytest.fail("it went unnoticed")
