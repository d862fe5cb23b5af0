"""Runs the kernels of the family sgemm on the CPU, launch after launch: their own sources under hopper_grid.hpp."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import hopper_grid
import numpy as np

from gemmrepro.registry import Kernel

MODELLED = "crt/instructions.cuh"
"""The header that certified_grid.hpp stands for, as hopper_grid.hpp does for kernels/common."""

DRIVER = Path(__file__).with_name("sgemm_driver.cpp")


def source_text(kernel: Kernel) -> str:
    """The kernel's source with the headers of crt and sgemm in their places, without what sgemm_grid.hpp stands for."""
    return hopper_grid.inlined(kernel.source_path, {MODELLED}, "crt|sgemm")


@dataclass(frozen=True)
class Outcome:
    """What the launches left: `c` [m,n], the rest of each row of C, and exponents of rows and columns."""

    c: np.ndarray
    beyond: np.ndarray
    exponents_a: np.ndarray
    exponents_b: np.ndarray


class Broken(Exception):
    """A rule of the programming model that a launch broke."""


class Device:
    """The program of one kernel: `run` multiplies with it."""

    def __init__(self, folder: Path, kernel: Kernel, source: str | None = None) -> None:
        """Compile `source`, the kernel's own unless a planted one is given, in `folder`. Raises CalledProcessError."""
        self.folder = folder
        model = hopper_grid.as_model(source or source_text(kernel))
        defines = [f"-D{name}={value}" for name, value in kernel.code.defines.items()]
        text = DRIVER.read_text().replace("SOURCE;", model)
        hopper_grid.compile_program(text, folder / "sgemm", "sgemm_grid.hpp", hopper_grid.EXACT, defines)

    def run(
        self,
        a: np.ndarray,
        b: np.ndarray,
        alpha: float = 1.0,
        beta: float = 0.0,
        c: np.ndarray | None = None,
        by_columns: tuple[bool, bool] = (False, False),
        padding: tuple[int, int, int] = (0, 0, 0),
        seed: int = 0,
    ) -> Outcome:
        """C[m,n] = alpha A[m,k] B[k,n] + beta C, stored by columns where asked, lines longer by `padding`.

        Raises:
            Broken: by a launch.
        """
        (m, k), n = a.shape, b.shape[1]

        def stored(x: np.ndarray, turned: bool, pad: int) -> np.ndarray:
            return np.pad(x.T if turned else x, ((0, 0), (0, pad)), constant_values=np.nan)

        left, right = stored(a, by_columns[0], padding[0]), stored(b, by_columns[1], padding[1])
        out = stored(np.full((m, n), np.nan) if c is None else c, False, padding[2])
        with (self.folder / "in").open("wb") as file:
            for array in (np.array([alpha, beta]), left, right, out):
                file.write(np.ascontiguousarray(array, np.float32).tobytes())
        numbers = (m, n, k, left.shape[1], right.shape[1], out.shape[1], *map(int, by_columns), seed)
        command = [self.folder / "sgemm", *map(str, numbers), self.folder / "in", self.folder / "out"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise Broken(done.stdout.strip() or f"ended by signal {-done.returncode}")
        data = (self.folder / "out").read_bytes()
        whole = np.frombuffer(data[: 4 * out.size], np.float32).reshape(out.shape)
        exponents = np.frombuffer(data[4 * out.size :], np.int32)
        return Outcome(whole[:, :n], whole[:, n:], exponents[:m], exponents[m:])
