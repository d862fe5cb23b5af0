"""Compiles programs that run .cu sources on the CPU (cpu_grid.hpp)."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

HEADER = Path(__file__).with_name("cpu_grid.hpp")
COMMAND = ("g++", "-std=c++17", "-O1", "-w")


def precompile(folder: Path) -> Path:
    """Compile the header once, which takes longer than any kernel; returns the folder, for `compile_program`."""
    subprocess.run([*COMMAND, "-x", "c++-header", HEADER, "-o", folder / f"{HEADER.name}.gch"], check=True)
    return folder


def compile_program(source: Path, program: Path, defines: Mapping[str, str], precompiled: Path) -> None:
    """Compile `source`, which begins by including cpu_grid.hpp. Raises CalledProcessError."""
    macros = [f"-D{name}={value}" for name, value in defines.items()]
    folders = ["-I", precompiled, "-I", HEADER.parent]
    subprocess.run([*COMMAND, *folders, *macros, "-o", program, source], check=True)
