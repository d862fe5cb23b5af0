"""cuTile 8: C = A B in 8-bit floats with sums that go to fp32 every STEPS tiles along K, not every 128 elements.

New:        without use_fast_acc the compiler starts the tensor core's sums anew every 128 of K, however long the K
            step: four QGMMA, a wait that leaves the tensor core idle, 64 additions a thread. Here the sums stay in the
            tensor core for STEPS tiles (use_fast_acc), and the source adds them up itself.
Parameters: 128 x 128 x 128 with eight worker warps, STEPS = 4: an interval of 512. LATENCY = 5: with fewer stages, and
            with blocks that stay, the compiler waits for every single QGMMA.
Error:      a sum of the tensor core loses at most 2^-13 of its largest term with every 32 products: 16 such losses in
            an interval and one rounding to fp32, where an interval of 128 has 4 and use_fast_acc throughout k / 32.
Published:  no figure.
Expected:   0.92 of cuBLAS with its default sums at 4096 and 8192, where C2 has 0.81 and 0.82.
Takes:      any m; n of whole 16 bytes; k in multiples of STEPS tiles.
"""

import cuda.tile as ct

Constant = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def promoted(a, b, c, BM: Constant, BN: Constant, BK: Constant, GROUP: Constant, STEPS: Constant, LATENCY: Constant):
    # a: [m, k]   b: [n, k]   c: [m, n]   grid: tiles of C
    rows, cols = ct.cdiv(c.shape[0], BM), ct.cdiv(c.shape[1], BN)
    group, within = ct.bid(0) // (GROUP * cols), ct.bid(0) % (GROUP * cols)
    height = min(GROUP, rows - group * GROUP)  # the last group may be lower
    row, col = group * GROUP + within % height, within // height

    sums = ct.zeros((BM, BN), ct.float32)  # (BM, BN)
    for first in range(0, ct.cdiv(a.shape[1], BK), STEPS):
        part = ct.zeros((BM, BN), ct.float32)  # (BM, BN), of the tensor core
        for step in range(STEPS):
            ta = ct.load(a, (row, first + step), (BM, BK), padding_mode=ZERO, latency=LATENCY)  # (BM, BK)
            tb = ct.load(b, (first + step, col), (BK, BN), order="F", padding_mode=ZERO, latency=LATENCY)  # (BK, BN)
            part = ct.mma(ta, tb, part, use_fast_acc=True)
        sums = sums + part
    ct.store(c, (row, col), ct.astype(sums, c.dtype))
