"""Runs the certified rungs of kernels/crt on the CPU, launch after launch, by their sources under hopper_grid.hpp."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import hopper_grid
import numpy as np

from gemmrepro.core.paths import KERNELS_DIR

MODELLED = {"crt/instructions.cuh", "crt/early.cuh", "crt/peers.cuh", "crt/wgmma_208.cuh"}
"""Headers that certified_grid.hpp stands for, as hopper_grid.hpp does for kernels/common."""

SOURCES = {
    "R10": "10_certified.cu",
    "R11": "11_overlapped.cu",
    "R14": "14_certified_shared.cu",
    "R15": "15_one_pass.cu",
    "R16": "16_two_widths.cu",
    "R17": "17_first_wave.cu",
}

DRIVER = Path(__file__).with_name("certified_driver.cpp")


def source_text(level: str = "R10") -> str:
    """A level's source with its headers in their places, without what certified_grid.hpp stands for."""
    return hopper_grid.inlined(KERNELS_DIR / "crt" / SOURCES[level], MODELLED)


@dataclass(frozen=True)
class Outcome:
    """What the launches left.

    Attributes:
        c: [m,n], the rest of each row of C left out; `beyond`: that rest.
        count, tiles, natives, flat: the plan.
        kinds: [tile rows, tile columns], 1 in double.
        inner: inner exponents [pitch]; worst: [tiles, 4].
        exponents_a, exponents_b: of rows and columns; coarse_a, coarse_b: bytes of e5m2.
    """

    c: np.ndarray
    beyond: np.ndarray
    count: int
    tiles: int
    natives: int
    flat: bool
    kinds: np.ndarray
    inner: np.ndarray
    worst: np.ndarray
    exponents_a: np.ndarray
    exponents_b: np.ndarray
    coarse_a: np.ndarray
    coarse_b: np.ndarray


class Device:
    """The program: `run` multiplies with it."""

    def __init__(self, folder: Path, source: str | None = None, level: str = "R10") -> None:
        """Compile `source`, the level's own unless a planted one is given, in `folder`. Raises CalledProcessError."""
        self.folder = folder
        model = hopper_grid.as_model(source or source_text(level))
        shared = ("-DSHARED_TILES", "-DLONG=1", "-DEVERY=2")
        given = {"R11": ("-DEARLY",), "R14": shared, "R17": (*shared, "-DFIRST_WAVE")}.get(level, ())
        text = DRIVER.read_text().replace("SOURCE;", model)
        hopper_grid.compile_program(text, folder / "certified", "certified_grid.hpp", hopper_grid.EXACT, given)

    def run(
        self,
        a: np.ndarray,
        b: np.ndarray,
        alpha: float = 1.0,
        beta: float = 0.0,
        c: np.ndarray | None = None,
        transposed: tuple[bool, bool] = (False, False),
        padding: tuple[int, int, int] = (0, 0, 0),
        loosened: int = 0,
        eager: bool = True,
        seed: int = 0,
        prepared: bool = False,
    ) -> Outcome:
        """C[m,n] = alpha A[m,k] B[k,n] + beta C, stored transposed where asked, rows longer by `padding`.

        `prepared`: B is, so inner exponents follow from it alone.
        """
        (m, k), n = a.shape, b.shape[1]

        def stored(x: np.ndarray, turned: bool, pad: int) -> np.ndarray:
            x = x.T if turned else x
            return np.pad(x, ((0, 0), (0, pad)), constant_values=np.nan)

        left, right = stored(a, transposed[0], padding[0]), stored(b, transposed[1], padding[1])
        out = stored(np.full((m, n), np.nan) if c is None else c, False, padding[2])
        with (self.folder / "in").open("wb") as file:
            for array in (np.array([alpha, beta]), left, right, out):
                file.write(np.ascontiguousarray(array, np.float64).tobytes())
        numbers = (
            m,
            n,
            k,
            left.shape[1],
            right.shape[1],
            out.shape[1],
            *map(int, transposed),
            loosened,
            int(eager) + 2 * prepared,
            seed,
        )
        command = [self.folder / "certified", *map(str, numbers), self.folder / "in", self.folder / "out"]
        subprocess.run(command, check=True)
        rows, cols, wide = -(-m // 128), -(-n // 192), -(-k // 16) * 16
        parts = (
            *((np.float64, out.shape), (np.int32, (6,)), (np.uint8, (rows, cols)), (np.int32, (wide,))),
            *((np.float32, (rows * cols, 4)), (np.int32, (m,)), (np.int32, (n,))),
            *((np.uint8, (m, wide)), (np.uint8, (n, wide))),
        )
        data, found = (self.folder / "out").read_bytes(), []
        for kind, shape in parts:
            size = int(np.prod(shape)) * np.dtype(kind).itemsize
            found.append(np.frombuffer(data[:size], kind).reshape(shape))
            data = data[size:]
        whole, plan, *rest = found
        return Outcome(whole[:, :n], whole[:, n:], *map(int, plan[:3]), bool(plan[3]), *rest)
