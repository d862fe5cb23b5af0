"""The smallest case: ct.mma on fp64 multiplies and adds in two instructions, which the same compiler fuses elsewhere.

One product of 32 x 16 by 16 x 32 for any architecture (tileiras 13.4.92): DMUL and DADD, no DFMA, no DMMA. The same
product as sixteen outer products (FUSED = 1) is DFMA alone.

tests/unit/test_cutile.py compiles it both ways and reads the machine code.
"""

import cuda.tile as ct


@ct.kernel
def fused(a, b, c, FUSED: ct.Constant[int]):
    # a: [m, k]   b: [k, n]   c: [m, n]; one tile of C
    ta, tb = ct.load(a, (0, 0), (32, 16)), ct.load(b, (0, 0), (16, 32))
    sums = ct.zeros((32, 32), ct.float64)
    if FUSED == 1:
        for p in ct.static_iter(range(16)):
            sums = ct.extract(ta, (0, p), (32, 1)) * ct.extract(tb, (p, 0), (1, 32)) + sums
    else:
        sums = ct.mma(ta, tb, sums)
    ct.store(c, (0, 0), sums)
