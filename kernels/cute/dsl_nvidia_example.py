"""NVIDIA's example of a tensor-core GEMM for Ampere in the Python DSL, in its own form: the peer of the port.

Written anew with that example's tile, layouts, order of instructions, predicates and branches (CUTLASS 4,
examples/python/CuTeDSL/ampere/tensorop_gemm.py). It differs from dsl_nvidia_design.py, the project's form, in

Loads:      whether a row is inside is worked out once and kept in a table of predicates. A tile is asked for only if
            there is one left: a branch around the copy, where the project's form asks for zeros.
K:          the first tile is the partial one: A and B are shifted back by what K lacks, and its columns before the
            first are left out by a branch. Shared memory is cleared first, since nothing is written there.
Epilogue:   the swizzle of C's tile XORs bits four apart over rows of 128; a branch guards the columns of C.
Published:  142 TFLOP/s (A100, n = 2048), 0.95 of the article's kernel. There in fp16, here in bf16 as the article's.
Expected:   0.85 of cute.three_stages, as by hand in this form, where dsl_nvidia_design has 0.955 (4096, warm).
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
def inside(coordinates: cute.Tensor, most: Int32):
    # coordinates: (COPY, ROWS, 1, tiles) of (row, column)   Which of this thread's rows are below `most`: (1, ROWS, 1).
    rows = cute.size(coordinates, mode=[1])
    table = cute.make_rmem_tensor(cute.make_layout((1, rows, 1), stride=(rows, 1, 0)), Boolean)
    for i in cutlass.range_constexpr(rows):
        table[0, i, 0] = cute.elem_less(coordinates[0, i, 0, 0][0], most)
    return table


@cute.jit
def ask(copy: cute.TiledCopy, source: cute.Tensor, target: cute.Tensor, table: cute.Tensor, wanted: Boolean):
    # source, target: (COPY, ROWS, 1)   The branch around the copy of a tile.
    if wanted:
        cute.copy(copy, source, target, pred=table)


@cute.jit
def store(source: cute.Tensor, target: cute.Tensor, where: cute.Tensor, copy: cute.TiledCopy, m: Int32, n: Int32):
    # source, target, where: (COPY, ROWS, 1) of shared memory, of C, of (row, column) in C
    chunks = cute.make_fragment_like(source)
    cute.arch.sync_threads()
    cute.autovec_copy(source, chunks)
    rows = cute.size(target, mode=[1])
    table = cute.make_rmem_tensor(cute.make_layout((1, rows, 1), stride=(rows, 1, 0)), Boolean)
    for i in cutlass.range_constexpr(rows):
        table[0, i, 0] = cute.elem_less(where[0, i, 0][0], m)
    for j in cutlass.range_constexpr(cute.size(target, mode=[2])):
        if cute.elem_less(where[0, 0, j][1], n):
            cute.copy(copy, chunks[None, None, j], target[None, None, j], pred=table[None, None, j])


@cute.kernel
def dsl_nvidia_example(a: cute.Pointer, b: cute.Pointer, c: cute.Pointer, m: Int32, n: Int32, k: Int32):
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
        tiles = cute.ceil_div(k, BK)
        lacking = k - BK * tiles  # what K lacks of whole tiles, negative: the first tile begins there
        gA = cute.domain_offset((0, lacking, 0), cute.local_tile(A, (BM, BK), (row, None)))  # (BM, BK, tiles)
        gB = cute.domain_offset((0, lacking, 0), cute.local_tile(B, (BN, BK), (col, None)))  # (BN, BK, tiles)
        gA = cute.make_tensor(gA.iterator.align(16), gA.layout)
        gB = cute.make_tensor(gB.iterator.align(16), gB.layout)
        gC = cute.local_tile(C, (BM, BN), (row, col))  # (BM, BN)
        placeA = cute.local_tile(cute.make_identity_tensor((m, k)), (BM, BK), (row, None))  # and what is where
        placeB = cute.local_tile(cute.make_identity_tensor((n, k)), (BN, BK), (col, None))
        placeA = cute.domain_offset((0, lacking, 0), placeA)
        placeB = cute.domain_offset((0, lacking, 0), placeB)

        # Eight rows of 32 elements (A, B), of 128 (C), 16-byte chunks XORed with the row. C lies where A lay.
        atom = cute.make_composed_layout(cute.make_swizzle(2, 3, 3), 0, cute.make_layout((8, BK), stride=(BK, 1)))
        atomC = cute.make_composed_layout(cute.make_swizzle(3, 3, 4), 0, cute.make_layout((8, BN), stride=(BN, 1)))
        layoutA = cute.tile_to_shape(atom, (BM, BK, STAGES), (0, 1, 2))
        layoutB = cute.tile_to_shape(atom, (BN, BK, STAGES), (0, 1, 2))
        layoutC = cute.tile_to_shape(atomC, (BM, BN), (0, 1))
        shared = SmemAllocator()
        sA = shared.allocate_tensor(BFloat16, layoutA, 16)  # (BM, BK, STAGES)
        sB = shared.allocate_tensor(BFloat16, layoutB, 16)  # (BN, BK, STAGES)
        sC = cute.make_tensor(cute.recast_ptr(sA.iterator, dtype=BFloat16), layoutC)  # (BM, BN), over A's and B's

        # What this thread copies: COPY is the 8 elements of a chunk, ROWS the chunks, one every 32 rows.
        copy = cute.make_tiled_copy_tv(
            cute.make_copy_atom(cpasync.CopyG2SOp(cpasync.LoadCacheMode.GLOBAL), BFloat16, num_bits_per_copy=128),
            cute.make_layout((32, 4), stride=(4, 1)),
            cute.make_layout((1, 8)),
        )
        from_global = copy.get_slice(thread)
        copyA, toA = from_global.partition_S(gA), from_global.partition_D(sA)  # (COPY, ROWS, 1, tiles or STAGES)
        copyB, toB = from_global.partition_S(gB), from_global.partition_D(sB)
        whereA, whereB = from_global.partition_S(placeA), from_global.partition_S(placeB)
        insideA, insideB = inside(whereA, m), inside(whereB, n)

        toA.fill(0.0)
        toB.fill(0.0)
        cute.arch.sync_threads()
        asked = Int32(0)  # tiles of which copies were issued, or would be
        begins = whereA[0, 0, 0, 0][1] >= 0  # of A's columns and B's alike
        ask(copy, copyA[None, None, None, asked], toA[None, None, None, 0], insideA, begins)
        ask(copy, copyB[None, None, None, asked], toB[None, None, None, 0], insideB, begins)
        asked = asked + 1
        cute.arch.cp_async_commit_group()
        for stage in range(1, STAGES - 1):
            if stage == tiles:
                insideA.fill(0)
                insideB.fill(0)
            cute.copy(copy, copyA[None, None, None, asked], toA[None, None, None, stage], pred=insideA)
            cute.copy(copy, copyB[None, None, None, asked], toB[None, None, None, stage], pred=insideB)
            asked = asked + 1
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

        reading, writing = Int32(0), Int32(STAGES - 1)  # stages
        cute.arch.cp_async_wait_group(STAGES - 2)
        cute.arch.sync_threads()
        cute.copy(readA, fromA[None, None, 0, reading], intoA[None, None, 0])
        cute.copy(readB, fromB[None, None, 0, reading], intoB[None, None, 0])
        source = reading  # the stage that fragments are read from
        for tile in range(tiles):
            for i in cutlass.range_constexpr(blocks):
                if cutlass.const_expr(i == blocks - 1):
                    source = reading
                    cute.arch.cp_async_wait_group(STAGES - 2)
                    cute.arch.sync_threads()
                ahead = (i + 1) % blocks
                cute.copy(readA, fromA[None, None, ahead, source], intoA[None, None, ahead])
                cute.copy(readB, fromB[None, None, ahead, source], intoB[None, None, ahead])
                if cutlass.const_expr(i == 0):
                    more = tile + STAGES - 1 < tiles
                    ask(copy, copyA[None, None, None, asked], toA[None, None, None, writing], insideA, more)
                cute.gemm(mma, sums, rA[None, None, i], rB[None, None, i], sums)
                if cutlass.const_expr(i == 0):
                    ask(copy, copyB[None, None, None, asked], toB[None, None, None, writing], insideB, more)
                    asked = asked + 1
                    cute.arch.cp_async_commit_group()
                    writing = reading
                    reading = reading + 1
                    if reading == STAGES:
                        reading = Int32(0)

        # Each thread rounds its sums into shared memory, and stores 8 elements at a time from there.
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()
        rounded = cute.make_fragment_like(sums, BFloat16)
        rounded.store(sums.load().to(BFloat16))
        cute.autovec_copy(rounded, mma.partition_C(sC))
        to_global = cute.make_tiled_copy_tv(
            cute.make_copy_atom(CopyUniversalOp(), BFloat16, num_bits_per_copy=128),
            cute.make_layout((8, 16), stride=(16, 1)),
            cute.make_layout((1, 8)),
        )
        mine = to_global.get_slice(thread)
        fromC, toC = mine.partition_S(sC), mine.partition_D(gC)  # (COPY, ROWS, 1)
        whereC = mine.partition_S(
            cute.local_tile(cute.make_identity_tensor((cute.ceil_div(m, BM) * BM, cols * BN)), (BM, BN), (row, col))
        )
        store(fromC, toC, whereC, to_global, m, n)
