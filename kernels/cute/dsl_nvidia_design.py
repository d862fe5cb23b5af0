"""The design of NVIDIA's own example of a tensor-core GEMM for Ampere in the Python DSL: the peer of the port.

Written anew from that example's description, not copied, so that the article's comparison can be made where both
kernels are built by one compiler and timed in turn. It differs from dsl_three_stages.py in

Tile:       128 x 128 x 32 where that has 64, so 48 KB for three stages, and a row of a tile is half as long: the
            swizzle XORs 2 bits, not 3. As many warps, 2 x 2.
Pipeline:   of the tile that is two ahead, A is asked for before a multiplication and B behind it.
Order:      a block's neighbour in x is the next of eight columns of tiles (four, two or one where C is narrow), in y
            the next such band; the grid is as large as the bands, so some blocks may find nothing to do.
Epilogue:   sums go through shared memory, which the stages no longer need, so that C is stored in rows of 16 bytes.
Published:  142 TFLOP/s (A100, n = 2048), 0.95 of the article's kernel.
Takes:      any m; n and k that are multiples of 8.
"""

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Boolean, Float32, Int32
from cutlass.cute.nvgpu import CopyUniversalOp, cpasync, warp
from cutlass.memory import SmemAllocator

# The block's tile of C is BM x BN; it walks K in steps of BK.
BM = 128
BN = 128
BK = 32
STAGES = 3


@cute.jit
def load(copy: cute.TiledCopy, source: cute.Tensor, target: cute.Tensor, rows: Int32, tile: Int32, stage: Int32):
    # source: (COPY, ROWS, 1, tiles)   target: (COPY, ROWS, 1, STAGES)   Rows of the tile from `rows` on become zeros.
    inside = cute.make_rmem_tensor((1, cute.size(target, mode=[1]), 1), Boolean)
    for i in cutlass.range_constexpr(cute.size(inside)):
        inside[i] = 32 * i < rows
    cute.copy(copy, source[None, None, None, tile], target[None, None, None, stage], pred=inside)


@cute.kernel
def dsl_nvidia_design(a: cute.Pointer, b: cute.Pointer, c: cute.Pointer, m: Int32, n: Int32, k: Int32):
    # a: [m, k]   b: [n, k]   c: [m, n]   grid: (rows of tiles x band, bands)   block: 128 threads
    thread, _, _ = cute.arch.thread_idx()
    block_x, block_y, _ = cute.arch.block_idx()
    n, k = cute.assume(n, 8), cute.assume(k, 8)  # so that every row begins at a multiple of 16 bytes

    cols = cute.ceil_div(n, BN)
    band = 8 if cols > 5 else 4 if cols > 2 else 2 if cols > 1 else 1
    row, col = block_x // band, block_y * band + block_x % band
    if col < cols:
        A = cute.make_tensor(a, cute.make_layout((m, k), stride=(k, 1)))  # (m, k)
        B = cute.make_tensor(b, cute.make_layout((n, k), stride=(k, 1)))  # (n, k)
        C = cute.make_tensor(c, cute.make_layout((m, n), stride=(n, 1)))  # (m, n)
        gA = cute.local_tile(A, (BM, BK), (row, None))  # (BM, BK, tiles)
        gB = cute.local_tile(B, (BN, BK), (col, None))  # (BN, BK, tiles)
        gC = cute.local_tile(C, (BM, BN), (row, col))  # (BM, BN)

        # Eight rows of 32 elements (A, B), of 64 (C), 16-byte chunks XORed with the row. C lies where A and B lay.
        atom = cute.make_composed_layout(cute.make_swizzle(2, 3, 3), 0, cute.make_layout((8, BK), stride=(BK, 1)))
        atomC = cute.make_composed_layout(cute.make_swizzle(3, 3, 3), 0, cute.make_layout((8, 64), stride=(64, 1)))
        layoutA = cute.tile_to_shape(atom, (BM, BK, STAGES), (0, 1, 2))
        layoutB = cute.tile_to_shape(atom, (BN, BK, STAGES), (0, 1, 2))
        layoutC = cute.tile_to_shape(atomC, (BM, BN), (0, 1))
        sizeA, sizeB, sizeC = cute.cosize(layoutA), cute.cosize(layoutB), cute.cosize(layoutC)  # elements
        shared = cute.recast_ptr(SmemAllocator().allocate(2 * max(sizeA + sizeB, sizeC), 1024), dtype=BFloat16)
        sA = cute.make_tensor(shared, layoutA)  # (BM, BK, STAGES)
        sB = cute.make_tensor(shared + sizeA, layoutB)  # (BN, BK, STAGES)
        sC = cute.make_tensor(shared, layoutC)  # (BM, BN)

        # What this thread copies: COPY is the 8 elements of a chunk, ROWS the chunks, one every 32 rows.
        from_global = cute.make_tiled_copy_tv(
            cute.make_copy_atom(cpasync.CopyG2SOp(cpasync.LoadCacheMode.GLOBAL), BFloat16, num_bits_per_copy=128),
            cute.make_layout((32, 4), stride=(4, 1)),
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

        # What this thread multiplies. 32 columns at a time, so that one ldmatrix.x4 brings B for two instructions.
        mma = cute.make_tiled_mma(
            warp.MmaF16BF16Op(BFloat16, Float32, (16, 8, 16)), (2, 2, 1), permutation_mnk=(32, 32, 16)
        ).get_slice(thread)
        rA = mma.make_fragment_A(mma.partition_A(sA[None, None, 0]))  # (MMA, 4, K_BLOCKS): 16 x 16 of A
        rB = mma.make_fragment_B(mma.partition_B(sB[None, None, 0]))  # (MMA, 8, K_BLOCKS): 8 x 16 of B
        sums = mma.make_fragment_C(mma.partition_C(gC))  # (MMA, 4, 8): 16 x 8 of C
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
            ahead = tile + STAGES - 1  # beyond the last tile: zeros
            inside = ahead * BK + place[1] < k
            for i in cutlass.range_constexpr(blocks):
                if cutlass.const_expr(i == blocks - 1):  # the next tile must be there, and all be done with this one
                    reading = reading + 1 if reading + 1 < STAGES else 0
                    cute.arch.cp_async_wait_group(STAGES - 2)
                    cute.arch.sync_threads()
                following = (i + 1) % blocks
                cute.copy(readA, fromA[None, None, following, reading], intoA[None, None, following])
                cute.copy(readB, fromB[None, None, following, reading], intoB[None, None, following])
                if cutlass.const_expr(i == 0):
                    load(from_global, copyA, toA, rowsA if inside else 0, ahead, writing)
                cute.gemm(mma, sums, rA[None, None, i], rB[None, None, i], sums)
                if cutlass.const_expr(i == 0):
                    load(from_global, copyB, toB, rowsB if inside else 0, ahead, writing)
                    cute.arch.cp_async_commit_group()
                    writing = writing + 1 if writing + 1 < STAGES else 0

        # Each thread rounds its sums into shared memory, and stores 8 elements at a time from there.
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()
        rounded = cute.make_fragment_like(sums, BFloat16)
        rounded.store(sums.load().to(BFloat16))
        cute.autovec_copy(rounded, mma.partition_C(sC))
        cute.arch.sync_threads()
        to_global = cute.make_tiled_copy_tv(
            cute.make_copy_atom(CopyUniversalOp(), BFloat16, num_bits_per_copy=128),
            cute.make_layout((8, 16), stride=(16, 1)),
            cute.make_layout((1, 8)),
        ).get_slice(thread)
        fromC, toC = to_global.partition_S(sC), to_global.partition_D(gC)  # (COPY, ROWS, 1)
        chunks = cute.make_fragment_like(fromC)
        cute.copy(to_global, fromC, chunks)
        spot = to_global.partition_S(cute.make_identity_tensor((BM, BN)))  # (row, column)
        inside = cute.make_rmem_tensor((1, cute.size(toC, mode=[1]), 1), Boolean)
        for i in cutlass.range_constexpr(cute.size(inside)):
            inside[0, i, 0] = cute.elem_less(spot[0, i, 0], (m - row * BM, n - col * BN))
        cute.copy(to_global, chunks, toC, pred=inside)
