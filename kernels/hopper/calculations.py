"""What the article's sketch of a wgmma kernel does with its sizes, evaluated. It leaves BM, BN and BK open."""

from __future__ import annotations

from gemmrepro.judge.calculation import Calculated, Inputs

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
