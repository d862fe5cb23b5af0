"""The family memory's sources, run on the CPU: each element copied, counted or summed once, no other memory touched.

As in test_kernels.py, this proves index arithmetic and barriers where no GPU is, and replaces no gate on a GPU.
"""

import itertools
import math
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cpu_grid import compile_program
from plants import PLANTS

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

DRIVER = Path(__file__).with_name("memory_driver.cpp")


def calls(source: str) -> str:
    """For every entry point of a source, the C++ that calls it on the driver's `value`s."""
    found = []
    for name, parameters in re.findall(r'extern "C" __global__ .*\n(\w+)\(([^{]*?)\) \{', source):
        types = [re.sub(r"\s*\w+$", "", each.strip()) for each in parameters.split(",")]
        passed = ", ".join(f"Cast<{type}>::from(value[{place}])" for place, type in enumerate(types))
        found.append(f'if (entry == "{name}") call = [] {{ {name}({passed}); }};')
    return "\n".join(found)


def compiled(kernel: Kernel, source: str, folder: Path, precompiled: Path) -> Path:
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
    code = DRIVER.read_text().replace("SOURCE", source).replace("CALLS", calls(source))
    program = folder / kernel.id
    program.with_suffix(".cpp").write_text(code)
    compile_program(program.with_suffix(".cpp"), program, kernel.code.defines, precompiled)
    return program


def run(program: Path, kernel: Kernel, shape: Shape, given: np.ndarray, reverse: bool) -> np.ndarray | None:
    """What two runs leave in the output; None if the input, or anything around the arrays, is not as it was."""
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
    for step in steps * 2:
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
    if (after[~written] != before[~written]).any():
        return None
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


def problem(kernel: Kernel, source: str, folder: Path, precompiled: Path) -> str:
    """What a source of the kernel does wrong, from the first thread to the last or in reverse; "" if nothing."""
    program = compiled(kernel, source, folder, precompiled)
    for shape, reverse in itertools.product(shapes(kernel), (False, True)):
        given, want = data(kernel, shape)
        got = run(program, kernel, shape, given, reverse)
        if got is None:
            return f"{shape}, reversed {reverse}: memory outside the arrays, or the input, was overwritten"
        if not (got.view(np.uint8) == np.ascontiguousarray(want).view(np.uint8)).all():
            return f"{shape}, reversed {reverse}: a wrong result"
    return ""


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.id)
def test_a_kernel_is_right_on_the_cpu(kernel, tmp_path, precompiled):
    assert problem(kernel, kernel.source_path.read_text(), tmp_path, precompiled) == ""


@pytest.mark.parametrize(
    "name",
    [
        "ids outside counted behind the counts",
        "counts of the launch before kept",
        "a segment's place within its tile forgotten",
        "every barrier of a sum missing",
        "the last elements not summed",
    ],
)
def test_a_wrong_kernel_is_seen_on_the_cpu(name, tmp_path, precompiled):
    kernel, source = PLANTS[name].apply()
    assert problem(kernel, source, tmp_path, precompiled) != ""
