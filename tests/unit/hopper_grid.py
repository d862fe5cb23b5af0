"""Runs Hopper's .cu sources on the CPU under hopper_grid.hpp: any order of threads, copies and products."""

from __future__ import annotations

import atexit
import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from gemmrepro.core.paths import KERNELS_DIR
from gemmrepro.operations import Shape
from gemmrepro.registry import Buffer, Kernel, TensorMap

FOLDER = Path(__file__).parent
COMMON = ("g++", "-std=c++17", "-w", "-I", str(FOLDER))
FAST = ("-O1", "-ftree-vectorize", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math")
EXACT = ("-O1", "-ffp-contract=off")
"""Where infinities and NaN are part of what is computed: none of the flags by which sums may change their order."""

# Instructions that a kernel's own source spells out, and what the model does instead.
INSTRUCTIONS = (
    (r'asm volatile\("st\.release\.gpu\.global\.u32 \[%0\], 1;" ::"l"\((\w+)\) : "memory"\);', r"release_flag(\1, 1);"),
    (
        r'asm volatile\("ld\.acquire\.gpu\.global\.u32 %0, \[%1\];" : "=r"\((\w+)\) : "l"\((\w+)\) : "memory"\);',
        r"\1 = acquire_flag(\2);",
    ),
    (r'asm volatile\(""[^;]*\);', ""),  # pins registers
    (r'asm volatile\("griddepcontrol\.launch_dependents;" ::: "memory"\);', ""),
    (r'asm volatile\("griddepcontrol\.wait;" ::: "memory"\);', "hopper_grid::running->waited = true;"),
    (r'asm volatile\("bar\.sync %0, (\d+);" ::"r"\(([^;]*)\) : "memory"\);', r"named_barrier(\2, \1);"),
)

DRIVER = r"""
#include "hopper_grid.hpp"
SOURCE
// Exact in bf16 whatever the order of the sums: -1, 0 and 1, and few enough of them.
static void fill(std::vector<bf16>& matrix, size_t count, unsigned seed) {
    std::mt19937 draw(seed);
    matrix.resize(count);
    for (bf16& element : matrix) {
        element = narrow(float(int(draw() % 3) - 1));
    }
}

// An array of the caller's: zero before the first launch, and as the kernel leaves it before the next.
struct Workspace {
    std::vector<float4> memory;
    explicit Workspace(size_t bytes) : memory(bytes / sizeof(float4) + 1, float4{}) {}
    template <class Type>
    operator Type*() {
        return reinterpret_cast<Type*>(memory.data());
    }
};

int main(int, char** v) {
    WORKSPACE
    const int m = atoi(v[1]), n = atoi(v[2]), k = atoi(v[3]), from = atoi(v[8]), to = atoi(v[9]);
    constexpr size_t GUARD = 4096;
    std::vector<bf16> A, B, C;
    fill(A, size_t(m) * k, 1), fill(B, size_t(n) * k, 2);
    std::vector<float> wanted(size_t(m) * n);
    for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
            float sum = 0;
            for (int p = 0; p < k; ++p) {
                sum += widen(A[size_t(i) * k + p]) * widen(B[size_t(j) * k + p]);
            }
            wanted[size_t(i) * n + j] = widen(narrow(sum));
        }
    }
    hopper_grid::early_launch = EARLY;
    hopper_grid::lengths = {atoi(v[10]), atoi(v[11]), atoi(v[12])};
    for (int seed = from; seed < to; ++seed) {
        // Another product than the launch before: what that one left behind must not pass for this one's.
        for (bf16& element : A) {
            element = narrow(-widen(element));
        }
        for (float& sum : wanted) {
            sum = -sum;
        }
        C.assign(size_t(m) * n + GUARD, bf16{0x7FC1});
        const TensorMap map_a{A.data(), m, k, BOX_A}, map_b{B.data(), n, k, BOX_B}, map_c{C.data(), m, n, BOX_C};
        bf16* const c = C.data();
        (void)map_c, (void)c;
        hopper_grid::launch(atoi(v[4]), atoi(v[5]), atoi(v[6]), atoi(v[7]), [&] { CALL; }, seed);
        if (!hopper_grid::problem.empty()) {
            printf("%s\n", hopper_grid::problem.c_str());
            return 1;
        }
        for (size_t i = 0; i < C.size(); ++i) {
            const bool right = i < wanted.size() ? widen(C[i]) == wanted[i] : C[i].bits == 0x7FC1;
            if (!right) {
                printf("C[%zu, %zu] is %g, not %g (seed %d)\n", i / n, i % n, widen(C[i]),
                       i < wanted.size() ? wanted[i] : NAN, seed);
                return 1;
            }
        }
    }
}
"""


BYTES = {"fp32": 4, "int32": 4, "uint32": 4}


@cache
def _models() -> Path:
    """A folder of this process with the engine's object file, which all programs share."""
    folder = Path(tempfile.mkdtemp(prefix="hopper-grid-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = (*COMMON, *FAST, "-O2", "-c", FOLDER / "hopper_grid.cpp", "-o", folder / "engine.o")
    subprocess.run(command, check=True)
    return folder


@cache
def _precompiled(header: str, flags: tuple[str, ...]) -> Path:
    """The folder of the precompiled `header`, which takes longer to compile than a kernel."""
    folder = _models() / f"{header}{'-'.join(flags)}"
    folder.mkdir()
    command = (*COMMON, *flags, "-x", "c++-header", FOLDER / header, "-o", folder / f"{header}.gch")
    subprocess.run(command, check=True)
    return folder


def compile_program(
    text: str,
    program: Path,
    header: str = "hopper_grid.hpp",
    flags: tuple[str, ...] = FAST,
    defines: Sequence[str] = (),
) -> Path:
    """Compile C++ that begins by including `header`, and link it with the engine. Raises CalledProcessError."""
    source = program.with_suffix(".cpp")
    source.write_text(text)
    command = (COMMON[0], "-I", _precompiled(header, flags), *COMMON[1:], *flags, *defines)
    subprocess.run([*command, "-o", program, source, _models() / "engine.o"], check=True)
    return program


def inlined(source: Path, left_out: Collection[str] = (), families: str = "crt") -> str:
    """A source with what it includes of `families` (a pattern) in its place, once; without the headers `left_out`."""
    seen = set(left_out)

    def header(found: re.Match[str]) -> str:
        if found[1] in seen:
            return ""
        seen.add(found[1])
        return text(KERNELS_DIR / found[1])

    def text(path: Path) -> str:
        return re.sub(rf'^#include "((?:{families})/\w+\.cuh?)"$', header, path.read_text(), flags=re.MULTILINE)

    return text(source)


def with_plant(source: str, pattern: str, replacement: str, which: int = 0) -> str:
    """The source with a bug in the place of the match number `which` of `pattern`."""
    found = list(re.finditer(pattern, source))
    assert len(found) > which, f"the source no longer has {pattern}"
    at = found[which]
    return source[: at.start()] + at.expand(replacement) + source[at.end() :]


def _bytes(buffer: Buffer) -> int:
    return int(np.prod(buffer.lengths(Shape(4096, 4096, 4096)))) * BYTES[buffer.dtype]


def box(map_: TensorMap | None) -> str:
    return f"{map_.box[0]}, {map_.box[1]}, {map_.swizzle}" if map_ else "0, 0, 0"


def as_model(source: str) -> str:
    """A kernel's source with CUDA's declarations and instructions as the model has them.

    Raises AssertionError if it has an instruction that the model does not know.
    """
    source = re.sub(r"^#include .*$", "", source, flags=re.MULTILINE)
    for pattern, replacement in INSTRUCTIONS:
        source = re.sub(pattern, replacement, source)
    source = re.sub(r"//.*$", "", source, flags=re.MULTILINE)
    assert "asm" not in source, "an instruction that the model does not know"
    source = re.sub(r"extern __shared__ .*\bshared_bytes\[\];", "", source)  # the model's dynamic_shared()
    return re.sub(
        r"(?:alignas\((\d+)\) )?__shared__ ((?:unsigned )?\w+) (\w+)((?:\[[^\]]*\])*);",
        lambda found: f"auto& {found[3]} = hopper_grid::allot<{found[2]}{found[4]}>(__LINE__, {found[1] or 16});",
        source,
    )


def compile_model(
    kernel: Kernel,
    source: str,
    program: Path,
    entry: str = "",
    maps: dict[str, TensorMap] | None = None,
) -> Path:
    """Compile `source`, that of `kernel` or a planted one, to a program that runs `entry` (default: the kernel's own).

    Raises CalledProcessError.
    """
    return compile_text(kernel, as_model(source), program, entry, maps)


def compile_text(
    kernel: Kernel,
    text: str,
    program: Path,
    entry: str = "",
    maps: dict[str, TensorMap] | None = None,
) -> Path:
    """`compile_model` of a text that is in the model's terms already."""
    maps = maps or dict(kernel.call.tensor_maps)
    names = {"map:a": "map_a", "map:b": "map_b", "map:c": "map_c"}
    arguments = ", ".join(names.get(str(argument), str(argument)) for argument in kernel.call.arguments)
    arrays = [f"Workspace {name}({_bytes(buffer)});" for name, buffer in kernel.run.workspace.items()]
    code = DRIVER.replace("SOURCE", text).replace("WORKSPACE", " ".join(arrays))
    code = code.replace("EARLY", str(kernel.launch(Shape(4096, 4096, 4096)).early).lower())
    code = code.replace("CALL", f"{entry or kernel.code.entry}({arguments})")
    for operand in "abc":
        code = code.replace(f"BOX_{operand.upper()}", box(maps.get(operand)))
    defines = [f"-D{name}={value}" for name, value in kernel.code.defines.items() if name != "ELEMENT"]
    return compile_program(code, program, defines=["-DELEMENT=bf16", *defines])


def run_model(
    program: Path,
    shape: Shape,
    grid: tuple[int, int],
    threads: int,
    cluster: int | tuple[int, int, int],
    seeds: range,
    limit: float = 300,
) -> str:
    """The first problem under any of `seeds`; "" if C is right under all of them and no rule was broken."""
    lengths = cluster if isinstance(cluster, tuple) else (cluster, 1, 1)
    numbers = (*(shape.m, shape.n, shape.k), *grid, threads, math.prod(lengths), seeds.start, seeds.stop, *lengths)
    done = subprocess.run([program, *map(str, numbers)], capture_output=True, text=True, timeout=limit)
    return "" if done.returncode == 0 else (done.stdout.strip() or f"ended by signal {-done.returncode}")
