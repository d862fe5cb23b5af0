"""Bytes that products of residues read from DRAM if their blocks have drifted apart, by a model of the L2.

    python tests/campaigns/drift.py --size 16384 --halves      products of blocks of half the edge: R9, R12
    python tests/campaigns/drift.py --size 16384               whole ones: R7

132 blocks walk the tiles of crt/in_turn.cuh, each late by its own share of W steps of K. What they load, and the
residues that they store, passes through a memory that forgets what was not asked for longest: the L2, whole (62.9 MB),
or a half of it, as processors of both sides read every panel and each side may keep it.
"""

from __future__ import annotations

import argparse
import random
from collections import OrderedDict
from collections.abc import Iterator

BLOCKS, BM, BN, BK, GROUP = 132, 128, 192, 128, 16
MODULI, SEVEN = 15, 7
STORED_LATE = 3
"""Steps from the last load of a tile to its residues."""

Event = tuple[float, tuple[object, ...], int]
"""When, what, and bytes; what is stored has no step."""


def events(edge: int, products: int, late: list[float]) -> Iterator[Event]:
    """Loads and stores of `products` products of edge x edge x edge, in no order."""
    rows, cols, steps = -(-edge // BM), -(-edge // BN), edge // BK
    for block in range(BLOCKS):
        for number, t in enumerate(range(block, products * rows * cols, BLOCKS)):
            product, rest = divmod(t, rows * cols)
            group, within = divmod(rest, GROUP * cols)
            col, row = divmod(within, min(GROUP, rows - group * GROUP))
            for p in range(steps):
                at = number * steps + p + late[block]
                yield at, (product, "A", group * GROUP + row, p), BM * BK
                yield at, (product, "B", col, p), BN * BK
            yield (number + 1) * steps + STORED_LATE + late[block], (t,), BM * BN


def bytes_read(edge: int, products: int, window: float, capacity: float) -> float:
    """Of one product, on average."""
    draw = random.Random(1)
    held: OrderedDict[tuple[object, ...], int] = OrderedDict()
    inside = read = 0
    for _, what, size in sorted(events(edge, products, [draw.random() * window for _ in range(BLOCKS)])):
        if what in held:
            held.move_to_end(what)
            continue
        read += size if len(what) > 1 else 0
        held[what] = size
        inside += size
        while inside > capacity:
            inside -= held.popitem(last=False)[1]
    return read / products


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=16384)
    parser.add_argument("--halves", action="store_true")
    parser.add_argument("--products", type=int, default=3, help="that are walked; bytes are those of all moduli")
    parser.add_argument("--windows", type=float, nargs="+", default=[0, 16, 32, 64, 96, 128, 192, 256])
    parser.add_argument("--megabytes", type=float, nargs="+", default=[62.9, 31.4])
    given = parser.parse_args()
    edge, products = (given.size // 2, SEVEN * MODULI) if given.halves else (given.size, MODULI)
    print("GB of all products; steps apart:", *(f"{window:g}" for window in given.windows), sep="\t")
    for megabytes in given.megabytes:
        read = [products * bytes_read(edge, given.products, window, megabytes * 1e6) for window in given.windows]
        print(f"L2 of {megabytes:g} MB", *(f"{one / 1e9:.1f}" for one in read), sep="\t", flush=True)


if __name__ == "__main__":
    main()
