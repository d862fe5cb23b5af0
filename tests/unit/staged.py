"""Kernels of several launches on the CPU, launch after launch, by their sources under hopper_grid.hpp.

The certified and one-pass rungs of kernels/crt, and the family sgemm.
"""

from dataclasses import dataclass
from pathlib import Path

import hopper_grid
import numpy as np

from gemmrepro.core.paths import KERNELS_DIR
from gemmrepro.registry import Kernel

MODELLED = {"crt/instructions.cuh", "crt/early.cuh", "crt/peers.cuh", "crt/wgmma_208.cuh"}
"""Headers that certified_grid.hpp stands for, as hopper_grid.hpp does for kernels/common."""
SOURCES = {
    **{"R10": "10_certified.cu", "R11": "11_overlapped.cu", "R14": "14_certified_shared.cu"},
    **{"R15": "15_one_pass.cu", "R16": "16_two_widths.cu", "R17": "17_first_wave.cu"},
}
DEFINES = {"R11": ("-DEARLY",), "R14": ("-DSHARED_TILES", "-DLONG=1", "-DEVERY=2")}
DEFINES["R17"] = (*DEFINES["R14"], "-DFIRST_WAVE")
COUNT = 12
"""Moduli of the one-pass rungs: as few as moduli.cuh takes."""


def source_text(level: str | Kernel) -> str:
    """The source of a level of crt, or of a kernel of sgemm, with its headers in place but for those MODELLED."""
    path = KERNELS_DIR / "crt" / SOURCES[level] if isinstance(level, str) else level.source_path
    return hopper_grid.inlined(path, MODELLED, "crt|sgemm")


def _program(driver: str, header: str, source: str, defines: tuple[str, ...]) -> Path:
    text = (hopper_grid.FOLDER / driver).read_text().replace("SOURCE;", hopper_grid.as_model(source))
    return hopper_grid.compile_program(text, header, hopper_grid.EXACT, defines)


def _stored(x: np.ndarray, turned: bool, pad: int) -> np.ndarray:
    return np.pad(x.T if turned else x, ((0, 0), (0, pad)), constant_values=np.nan)


@dataclass(frozen=True)
class Product:
    """C = alpha A B + beta C, A and B stored transposed where asked, rows longer by `padding`."""

    a: np.ndarray
    b: np.ndarray
    alpha: float = 1.0
    beta: float = 0.0
    c: np.ndarray | None = None
    transposed: tuple[bool, bool] = (False, False)
    padding: tuple[int, int, int] = (0, 0, 0)

    def run(self, program: Path, dtype: type, more: tuple[int, ...], left: list) -> list[np.ndarray]:
        """C [m,n], the rest of each row of C, and what else the launches left."""
        (m, k), n = self.a.shape, self.b.shape[1]
        a, b = (_stored(*one) for one in zip((self.a, self.b), self.transposed, self.padding[:2], strict=True))
        c = _stored(np.full((m, n), np.nan) if self.c is None else self.c, False, self.padding[2])
        words = (m, n, k, a.shape[1], b.shape[1], c.shape[1], *map(int, self.transposed), *more)
        given = [x.astype(dtype) for x in (np.array([self.alpha, self.beta]), a, b, c)]
        whole, *rest = hopper_grid.run_on_arrays(program, words, given, [(dtype, c.shape), *left])
        return [whole[:, :n], whole[:, n:], *rest]


@dataclass(frozen=True)
class Decided:
    """What the launches of a certified rung left: C without the rest of its rows, and that rest.

    `plan`: moduli, tiles by residues, tiles in double, ...; `kinds`: 1 for a tile in double; `coarse`: bytes of e5m2.
    """

    c: np.ndarray
    beyond: np.ndarray
    plan: np.ndarray
    kinds: np.ndarray
    inner: np.ndarray
    worst: np.ndarray
    exponents_a: np.ndarray
    exponents_b: np.ndarray
    coarse_a: np.ndarray
    coarse_b: np.ndarray

    @property
    def count(self) -> int:
        return int(self.plan[0])

    @property
    def natives(self) -> int:
        return int(self.plan[2])


class Certified:
    """A certified rung of crt: R10, R11, R14 or R17."""

    def __init__(self, level: str = "R10", source: str | None = None) -> None:
        """Compile the level's source, or a planted one. Raises CalledProcessError."""
        text = source or source_text(level)
        self.program = _program("certified_driver.cpp", "certified_grid.hpp", text, DEFINES.get(level, ()))

    def run(
        self,
        a: np.ndarray,
        b: np.ndarray,
        *product: object,
        loosened: int = 0,
        eager: bool = True,
        seed: int = 0,
        prepared: bool = False,
    ) -> Decided:
        """A `Product`. `prepared`: B is, so inner exponents follow from it alone. Raises Broken."""
        (m, k), n = a.shape, b.shape[1]
        rows, cols, wide = -(-m // 128), -(-n // 192), -(-k // 128) * 128
        left = [
            *((np.int32, (6,)), (np.uint8, (rows, cols)), (np.int32, (wide,)), (np.float32, (rows * cols, 4))),
            *((np.int32, (m,)), (np.int32, (n,)), (np.uint8, (m, wide)), (np.uint8, (n, wide))),
        ]
        words = (loosened, int(eager) + 2 * prepared, seed)
        return Decided(*Product(a, b, *product).run(self.program, np.float64, words, left))


class OnePass:
    """R15 or R16 of crt with 12 moduli."""

    def __init__(self, level: str, source: str | None = None) -> None:
        """Compile the level's source, or a planted one. Raises CalledProcessError."""
        given = (f"-DNUMBERS={COUNT}", *(("-DTWO_WIDTHS",) if level == "R16" else ()))
        self.program = _program("one_pass_driver.cpp", "certified_grid.hpp", source or source_text(level), given)

    def run(self, a: np.ndarray, b: np.ndarray, seed: int = 0) -> list[np.ndarray]:
        """(exponents of A [m] and B [n], residues [COUNT, m, pitch] and [COUNT, n, pitch], C [m,n]). Raises Broken."""
        (m, k), n = a.shape, b.shape[1]
        wide = -(-k // 128) * 128
        residues = [(np.uint8, (COUNT, length, wide)) for length in (m, n)]
        left = [(np.int32, (m,)), (np.int32, (n,)), *residues, (np.float64, (m, n))]
        return hopper_grid.run_on_arrays(self.program, (m, n, k, seed), (a, b), left)


class Sgemm:
    """A kernel of the family sgemm."""

    def __init__(self, kernel: Kernel, source: str | None = None) -> None:
        """Compile the kernel's source, or a planted one. Raises CalledProcessError."""
        defines = tuple(f"-D{name}={value}" for name, value in kernel.code.defines.items())
        self.program = _program("sgemm_driver.cpp", "sgemm_grid.hpp", source or source_text(kernel), defines)

    def run(self, a: np.ndarray, b: np.ndarray, *product: object, seed: int = 0) -> list[np.ndarray]:
        """C [m,n] of a `Product`, the rest of its rows, exponents of rows and of columns. Raises Broken."""
        left = [(np.int32, (a.shape[0],)), (np.int32, (b.shape[1],))]
        return Product(a, b, *product).run(self.program, np.float32, (seed,), left)
