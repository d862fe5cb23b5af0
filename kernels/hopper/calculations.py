"""What the article's sketch of a wgmma kernel says and does, evaluated. It leaves BM, BN and BK open."""

from __future__ import annotations

import re

from gemmrepro import registry
from gemmrepro.judge.metrics.calculated import Calculated, Inputs

HALF_BYTES = 2
"""Of half_t, the element of the sketch's layouts."""


def overlap_of_tiles(given: Inputs) -> Calculated:
    """Bytes of A's tile that B's tile lies on, if B's begins at `smem + size(sA)` and smem points to char.

    `size` of a CuTe tensor counts elements; options: bm and bk.
    """
    elements = int(given.option("bm") * given.option("bk"))
    needed = elements * HALF_BYTES
    return Calculated(
        needed - elements, f"A's tile has {elements} elements, {needed} bytes; B's begins {elements} bytes on"
    )


def missing_blocks(given: Inputs) -> Calculated:
    """Values of k_tile for which `tCrA(_, _, k_tile)` lies beyond the fragment, whose third mode is one tile's.

    The mode has BK / K of the instruction; k_tile runs to K / BK. Options: bk and k of the instruction; n is K.
    """
    blocks = int(given.option("bk") // given.option("k"))
    tiles = int((given.n or 0) // given.option("bk"))
    return Calculated(max(0, tiles - blocks), f"{tiles} tiles of K, {blocks} blocks in a fragment")


def place_of_sums(given: Inputs) -> Calculated:
    """Where the accumulator's type stands among the three in the name of a CuTe atom, from 1.

    Read from cute.hopper, whose atom and types compile together.
    """
    kernel = registry.kernel("cute.hopper")
    (types,) = set(re.findall(r"SM90_\d+x\d+x\d+_((?:[A-Z]+\d+){3})_SS", kernel.source_path.read_text()))
    sums = kernel.compute.dtype_acc.upper().removeprefix("FP")
    places = [name.removeprefix("F") == sums for name in re.findall(r"[A-Z]+\d+", types)]
    return Calculated(places.index(True) + 1, f"{types} multiplies {kernel.compute.dtype_in}, sums in fp{sums}")


def bank_conflicts(given: Inputs) -> Calculated:
    """Most chunks of 16 bytes in one group of four banks, when the same chunk of eight rows of 128 bytes is read.

    Eight groups of banks hold 128 bytes. Without the swizzle chunk c of row r lies at chunk c, with it at c ^ (r % 8).
    """

    def ways(swizzled: bool) -> int:
        groups = [[c ^ r if swizzled else c for r in range(8)] for c in range(8)]
        return max(max(map(row.count, row)) for row in groups)

    return Calculated(ways(swizzled=True), f"{ways(swizzled=False)} without the swizzle")
