"""CuTe 4 in the Python DSL, 1: the instructions of a k-block in the order in which C++'s gemm walks them.

New:        each instruction is issued by itself, down one column of the k-block's 4 x 8 and up the next. The DSL's
            gemm walks row by row and begins each row at its first column, where an instruction shares neither A nor B
            with the one before it.
Parameters: as before.
Published:  nothing; the article finds both languages equally fast with each one's own order.
Expected:   the time of step 4 in C++ with turning rows.
Takes:      as before.
"""

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Boolean, Float32, Int32
from cutlass.cute.nvgpu import CopyUniversalOp, cpasync, warp
from cutlass.memory import SmemAllocator

# The block's tile of C is BM x BN; it walks K in steps of BK.
BM = 128
BN = 128
BK = 64
STAGES = 3
GROUP = 8  # rows of tiles that are walked together


@cute.jit
def load(copy: cute.TiledCopy, source: cute.Tensor, target: cute.Tensor, rows: Int32, tile: Int32, stage: Int32):
    # source: (COPY, ROWS, 1, tiles)   target: (COPY, ROWS, 1, STAGES)   Rows of the tile from `rows` on become zeros.
    inside = cute.make_rmem_tensor((1, cute.size(target, mode=[1]), 1), Boolean)
    for i in cutlass.range_constexpr(cute.size(inside)):
        inside[i] = 16 * i < rows
    cute.copy(copy, source[None, None, None, tile], target[None, None, None, stage], pred=inside)


@cute.kernel
def dsl_serpentine(a: cute.Pointer, b: cute.Pointer, c: cute.Pointer, m: Int32, n: Int32, k: Int32):
    # a: [m, k]   b: [n, k]   c: [m, n]   grid: tiles   block: 128 threads
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    n, k = cute.assume(n, 8), cute.assume(k, 8)  # so that every row begins at a multiple of 16 bytes

    rows, cols = cute.ceil_div(m, BM), cute.ceil_div(n, BN)
    group, within = block // (GROUP * cols), block % (GROUP * cols)
    height = cutlass.min(GROUP, rows - group * GROUP)
    row, col = group * GROUP + within % height, within // height

    A = cute.make_tensor(a, cute.make_layout((m, k), stride=(k, 1)))  # (m, k)
    B = cute.make_tensor(b, cute.make_layout((n, k), stride=(k, 1)))  # (n, k)
    C = cute.make_tensor(c, cute.make_layout((m, n), stride=(n, 1)))  # (m, n)
    gA = cute.local_tile(A, (BM, BK), (row, None))  # (BM, BK, tiles)
    gB = cute.local_tile(B, (BN, BK), (col, None))  # (BN, BK, tiles)
    gC = cute.local_tile(C, (BM, BN), (row, col))  # (BM, BN)

    # Eight rows of 64 elements, swizzled: 3 bits of the row into the 3 bits above the 8 elements of a chunk.
    atom = cute.make_composed_layout(cute.make_swizzle(3, 3, 3), 0, cute.make_layout((8, BK), stride=(BK, 1)))
    layoutA = cute.tile_to_shape(atom, (BM, BK, STAGES), (0, 1, 2))
    layoutB = cute.tile_to_shape(atom, (BN, BK, STAGES), (0, 1, 2))
    shared = SmemAllocator()
    sA = shared.allocate_tensor(BFloat16, layoutA, 1024)  # (BM, BK, STAGES)
    sB = shared.allocate_tensor(BFloat16, layoutB, 1024)  # (BN, BK, STAGES)

    # What this thread copies: COPY is the 8 elements of a chunk, ROWS the chunks, one every 16 rows.
    from_global = cute.make_tiled_copy_tv(
        cute.make_copy_atom(cpasync.CopyG2SOp(cpasync.LoadCacheMode.GLOBAL), BFloat16, num_bits_per_copy=128),
        cute.make_layout((16, 8), stride=(8, 1)),
        cute.make_layout((1, 8)),
    ).get_slice(thread)
    copyA, toA = from_global.partition_S(gA), from_global.partition_D(sA)  # (COPY, ROWS, 1, tiles or STAGES)
    copyB, toB = from_global.partition_S(gB), from_global.partition_D(sB)
    place = from_global.partition_S(cute.make_identity_tensor((BM, BK)))[0]  # (row, column) of its first element
    rowsA, rowsB = m - row * BM - place[0], n - col * BN - place[0]  # how many rows there are from it on
    for tile in cutlass.range_constexpr(STAGES - 1):
        inside = tile * BK + place[1] < k
        load(from_global, copyA, toA, rowsA if inside else 0, tile, tile)
        load(from_global, copyB, toB, rowsB if inside else 0, tile, tile)
        cute.arch.cp_async_commit_group()

    # What this thread multiplies. 32 columns at a time, so that one ldmatrix.x4 brings a warp B for two instructions.
    mma = cute.make_tiled_mma(
        warp.MmaF16BF16Op(BFloat16, Float32, (16, 8, 16)), (2, 2, 1), permutation_mnk=(32, 32, 16)
    ).get_slice(thread)
    rA = mma.make_fragment_A(mma.partition_A(sA[None, None, 0]))  # (MMA, 4, K_BLOCKS): 16 x 16 of A
    rB = mma.make_fragment_B(mma.partition_B(sB[None, None, 0]))  # (MMA, 8, K_BLOCKS): 8 x 16 of B
    out = mma.partition_C(gC)  # (MMA, 4, 8): 16 x 8 of C
    sums = mma.make_fragment_C(out)
    sums.fill(0.0)
    ldmatrix = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(num_matrices=4), BFloat16)
    readA = cute.make_tiled_copy_A(ldmatrix, mma).get_slice(thread)
    readB = cute.make_tiled_copy_B(ldmatrix, mma).get_slice(thread)
    fromA, intoA = readA.partition_S(sA), readA.retile(rA)  # (COPY, 4, K_BLOCKS, STAGES), (COPY, 4, K_BLOCKS)
    fromB, intoB = readB.partition_S(sB), readB.retile(rB)
    blocks = cute.size(rA, mode=[2])

    cute.arch.cp_async_wait_group(STAGES - 2)
    cute.arch.sync_threads()
    cute.copy(readA, fromA[None, None, 0, 0], intoA[None, None, 0])
    cute.copy(readB, fromB[None, None, 0, 0], intoB[None, None, 0])
    reading, writing = Int32(0), Int32(STAGES - 1)  # stages
    for tile in range(cute.ceil_div(k, BK)):
        for i in cutlass.range_constexpr(blocks):
            if cutlass.const_expr(i == blocks - 1):  # the next tile must be there, and everybody be done with this one
                reading = reading + 1 if reading + 1 < STAGES else 0
                cute.arch.cp_async_wait_group(STAGES - 2)
                cute.arch.sync_threads()
            following = (i + 1) % blocks
            cute.copy(readA, fromA[None, None, following, reading], intoA[None, None, following])
            cute.copy(readB, fromB[None, None, following, reading], intoB[None, None, following])
            if cutlass.const_expr(i == 0):
                ahead = tile + STAGES - 1  # beyond the last tile: zeros
                inside = ahead * BK + place[1] < k
                load(from_global, copyA, toA, rowsA if inside else 0, ahead, writing)
                load(from_global, copyB, toB, rowsB if inside else 0, ahead, writing)
                cute.arch.cp_async_commit_group()
                writing = writing + 1 if writing + 1 < STAGES else 0
            for y in cutlass.range_constexpr(cute.size(sums, mode=[2])):
                for step in cutlass.range_constexpr(cute.size(sums, mode=[1])):
                    x = cute.size(sums, mode=[1]) - 1 - step if y % 2 else step
                    cute.mma_atom_call(mma, sums[None, x, y], rA[None, x, i], rB[None, y, i], sums[None, x, y])

    # Each thread rounds its sums and stores them where they belong, two neighbours at a time.
    rounded = cute.make_fragment_like(sums, BFloat16)
    rounded.store(sums.load().to(BFloat16))
    spot = mma.partition_C(cute.make_identity_tensor((BM, BN)))  # (row, column)
    inside = cute.make_rmem_tensor((2, *rounded.shape[1:]), Boolean)
    for i in cutlass.range_constexpr(cute.size(inside)):
        inside[i] = cute.elem_less(spot[2 * i], (m - row * BM, n - col * BN))
    pairs = cute.make_copy_atom(CopyUniversalOp(), BFloat16, num_bits_per_copy=32)
    cute.copy(pairs, rounded, out, pred=inside)
