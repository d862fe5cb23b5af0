"""The smallest case: told that two blocks share a multiprocessor, the compiler lets no wgmma overlap the next step's.

The loop over K of a tile product in bf16, for sm_90 (tileiras 13.4.92). Left alone, or with num_worker_warps=8, it
unrolls two steps and ends each with WARPGROUP.DEPBAR.LE gsb0, 0x1: a step's products run while those of the next are
issued. With the hint occupancy=2 it ends each with gsb0, 0x0, so the tensor core of the block idles until the next
step's operands were waited for; the other block fills that in part.

tests/unit/test_cutile.py compiles it both ways and reads the machine code.
"""

import cuda.tile as ct


@ct.kernel
def occupancy(a, b, c, STEPS: ct.Constant[int]):
    # a: [m, k]   b: [k, n]   c: [m, n]; one tile of C
    sums = ct.zeros((128, 128), ct.float32)
    for step in range(STEPS):
        sums = ct.mma(ct.load(a, (0, step), (128, 64)), ct.load(b, (step, 0), (64, 128)), sums)
    ct.store(c, (0, 0), ct.astype(sums, c.dtype))
