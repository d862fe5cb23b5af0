"""cuTile 0: vector addition, the first program: z = x + y, a block a tile of 16 elements.

New:        a program says what happens to a *tile*. Threads, shared memory and synchronisation are the compiler's; what
            is left of the launch is the grid: how many tiles.
Parameters: TILE = 16, as the article has it: a block does so little that its launch is most of its time.
Published:  no figure.
Expected:   one vector load of x and of y, one store of z, in one warp or four; far below the bandwidth of the memory.
Takes:      any n: elements outside an array load as zeros and are not stored.
"""

import cuda.tile as ct


@ct.kernel
def vector_add(x, y, z, TILE: ct.Constant[int]):
    # x, y, z: [n]   grid: ceil(n / TILE) tiles
    tile = ct.bid(0)
    tx = ct.load(x, (tile,), (TILE,), padding_mode=ct.PaddingMode.ZERO)  # (TILE)
    ty = ct.load(y, (tile,), (TILE,), padding_mode=ct.PaddingMode.ZERO)  # (TILE)
    ct.store(z, (tile,), tx + ty)
