"""What the article's printed order of blocks does to a grid, and how many of its blocks an SM holds."""

from __future__ import annotations

from pathlib import Path

from pygments.lexers.c_cpp import CppLexer
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, String

from gemmrepro.core.paths import KERNELS_DIR
from gemmrepro.errors import UserError
from gemmrepro.judge.metrics.calculated import Calculated, Inputs
from gemmrepro.operations import Shape

_LEXERS = {".py": PythonLexer, ".cu": CppLexer, ".cuh": CppLexer}

GROUP = 8
"""The article's swizzle factor."""

SHARED = {"sm_80": 164 * 1024, "sm_90": 228 * 1024}
"""Shared memory of an SM in bytes (CUDA C++ Programming Guide, technical specifications per compute capability)."""
RESERVED = 1024
"""Bytes of it that the system takes for each block (same place, note on compute capability 8.0 and later)."""
REGISTERS, GRANULE, THREADS = 65536, 256, 2048
"""32-bit registers of an SM, how many at a time a warp gets, and threads of an SM (same place)."""


def tile_of(x: int, y: int, rows: int) -> tuple[int, int]:
    """The tile (row, column) of block (x, y), by the printed formula, in a grid with `rows` blocks along x."""
    if rows < GROUP:
        return x, y
    number, groups = x + y * rows, -(-rows // GROUP)
    row = number // GROUP % groups * GROUP + number % GROUP
    return (row, number // GROUP // groups) if row < rows else (x, y)


def dropped(rows: int, columns: int) -> int:
    """Tiles of a grid that no block computes."""
    tiles = {(x, y) for x in range(rows) for y in range(columns)}
    return len(tiles - {tile_of(x, y, rows) for x, y in tiles})


def moved(rows: int, columns: int) -> int:
    """Blocks of a grid whose tile is another than without the formula."""
    return sum(tile_of(x, y, rows) != (x, y) for x in range(rows) for y in range(columns))


def tiles_dropped(given: Inputs) -> Calculated:
    """Tiles of C that no block computes, summed over square grids with the sides of `options.sides`."""
    counts = {side: dropped(side, side) for side in _sides(given)}
    return Calculated(sum(counts.values()), "; ".join(f"{s} x {s}: {n} of {s * s}" for s, n in counts.items()))


def blocks_moved(given: Inputs) -> Calculated:
    """Blocks that compute another tile than without the formula, summed over square grids with those sides."""
    counts = {side: moved(side, side) for side in _sides(given)}
    return Calculated(sum(counts.values()), "; ".join(f"{s} x {s}: {n} of {s * s}" for s, n in counts.items()))


def resident_blocks(given: Inputs) -> Calculated:
    """Blocks of the kernel that an SM of `arch` holds, by shared memory, registers and threads."""
    (kernel,), (code,) = given.kernels, given.codes
    threads = kernel.launch(_shape(given)).block[0]
    warps = -(-threads // 32)
    by_shared = SHARED[given.arch] // (_shared_bytes(given) + RESERVED)
    by_registers = REGISTERS // (warps * -(-32 * code.registers // GRANULE) * GRANULE)
    return Calculated(
        min(by_shared, by_registers, THREADS // threads),
        f"shared memory holds {by_shared} blocks of {_shared_bytes(given) // 1024} KB, registers {by_registers} "
        f"of {threads} threads with {code.registers} each",
    )


def shared_of_blocks(given: Inputs) -> Calculated:
    """Shared memory of a block of the first kernel over that of the second."""
    first, second = (_shared_bytes(given, index) for index in range(2))
    return Calculated(first / second, f"{first} and {second} bytes")


def lines_over_least(given: Inputs) -> Calculated:
    """Lines of 128 bytes of shared memory that a launch moved, over the fewest that its tiles of A and B take.

    By the counter of wavefronts: a copy of 16 bytes into shared memory that meets a conflict is in it, and is in none
    of the counters of conflicts. A tile is written once; each of 2 x 2 warps reads its half of A's and of B's.
    """
    kernel, n = given.kernels[0], given.n or 0
    bm, bn, bk = (kernel.params[axis] for axis in ("bm", "bn", "bk"))
    written, read = 2 * (bm + bn) * bk // 128, 2 * 2 * (bm + bn) * bk // 128
    least = n // bm * (n // bn) * (n // bk) * (written + read)
    lines = given.counter("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    return Calculated(lines / least, f"{lines:,.0f} lines, at least {least:,}")


def lines_of_code(given: Inputs) -> Calculated:
    """Lines of code of the first of `options.sources` over those of the second, without comments and docstrings."""
    first, second = (_lines_of(KERNELS_DIR / "cute" / str(name)) for name in given.options["sources"])
    return Calculated(first / second, f"{first} and {second} lines of code")


def _lines_of(path: Path) -> int:
    """Lines with any code, be it one bracket: in Python the formatter decides where they break, in C++ the author.

    Raises:
        UserError: the file is missing, or of a language that is not counted here.
    """
    if path.suffix not in _LEXERS:
        raise UserError(f"{path.name} is neither CUDA C++ (.cu, .cuh) nor Python; extend _lines_of to count it.")
    if not path.is_file():
        raise UserError(f"{path} is missing; restore it.")
    lines: set[int] = set()
    line = 1
    for kind, text in _LEXERS[path.suffix](stripnl=False).get_tokens(path.read_text()):
        # A directive is code, which the lexer calls a comment.
        directive = kind in Comment.Preproc or kind in Comment.PreprocFile
        if (kind not in Comment or directive) and kind not in String.Doc:
            lines.update(line + place for place, part in enumerate(text.split("\n")) if part.strip())
        line += text.count("\n")
    return len(lines)


def _shared_bytes(given: Inputs, index: int = 0) -> int:
    return given.codes[index].shared_bytes + given.kernels[index].launch(_shape(given)).shared_bytes


def _shape(given: Inputs) -> Shape:
    return Shape.cube(given.n or 2048)


def _sides(given: Inputs) -> list[int]:
    """`options.sides`: a number, or a list of numbers."""
    sides = given.options["sides"]
    return [int(side) for side in (sides if isinstance(sides, list | tuple) else [sides])]
