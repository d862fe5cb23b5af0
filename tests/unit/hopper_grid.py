"""Runs Hopper's .cu sources on the CPU under hopper_grid.hpp: any order of threads, copies and products."""

import atexit
import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path

import numpy as np

from gemmrepro.core.paths import KERNELS_DIR

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


@cache
def _compiled(text: str, header: str, flags: tuple[str, ...], defines: tuple[str, ...]) -> Path:
    program = Path(tempfile.mkdtemp(dir=_models())) / "program"
    source = program.with_suffix(".cpp")
    source.write_text(f'#include "{header}"\n{text}')
    command = (COMMON[0], "-I", _precompiled(header, flags), *COMMON[1:], *flags, *defines)
    subprocess.run([*command, "-o", program, source, _models() / "engine.o"], check=True)
    return program


def compile_program(
    text: str, header: str = "hopper_grid.hpp", flags: tuple[str, ...] = FAST, defines: Iterable[str] = ()
) -> Path:
    """The program of C++ on top of `header`, linked with the engine; compiled once. Raises CalledProcessError."""
    return _compiled(text, header, flags, tuple(defines))


def run_program(program: Path, *words: object) -> tuple[str, str]:
    """What the model found wrong, "" if nothing; and what the program printed."""
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=300)
    said = (done.stdout + done.stderr).strip()
    return "" if done.returncode == 0 else (said or f"ended by signal {-done.returncode}"), done.stdout


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


def as_model(source: str) -> str:
    """A kernel's source with CUDA's declarations and instructions as the model has them.
    Raises AssertionError if it has an instruction that the model does not know."""
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


class Broken(Exception):
    """A rule of the programming model that a launch broke."""


def run_on_arrays(
    program: Path, words: Iterable[object], given: Iterable[np.ndarray], left: Iterable[tuple[type, tuple[int, ...]]]
) -> list[np.ndarray]:
    """The arrays that a program leaves for the arrays `given`, of these types and lengths.

    Raises:
        Broken: by a launch, or by its end.
    """
    source, result = program.with_name("in"), program.with_name("out")
    source.write_bytes(b"".join(np.ascontiguousarray(array).tobytes() for array in given))
    if problem := run_program(program, *words, source, result)[0]:
        raise Broken(problem)
    data, found, at = result.read_bytes(), [], 0
    for kind, lengths in left:
        found.append(np.frombuffer(data, kind, math.prod(lengths), at).reshape(lengths))
        at += found[-1].nbytes
    return found
