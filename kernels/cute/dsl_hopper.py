"""CuTe 5 in the Python DSL: the kernel of 5_hopper.cu, said in Python.

New:        the language. Tile, ring, clusters, order of tiles, registers and epilogue are those of 5_hopper.cu: a warp
            loads by TMA, two warpgroups multiply by wgmma, blocks stay on the GPU, two of them share each tile of B,
            and a finished tile is stored piece by piece behind the next one's first steps.
Parameters: 128 x 256 x 64 a block, wgmma m64n256k16, 4 stages (192 KB), groups of 8 rows, clusters of 2; registers 40
            for the producer, 232 for the consumers.
Published:  none; the article's Python kernels end with mma.sync.
Expected:   0.99 of step 5 in C++ at 4096 and 8192, 0.98 at least: wgmma names its operands by descriptors, so that
            little is left for a compiler to do in the loop but a stage's address, which the DSL may compute more often.
Takes:      any m; n and k that are multiples of 8.
"""

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Boolean, Float32, Int32, Int64
from cutlass.cute.nvgpu import cpasync, warp, warpgroup
from cutlass.memory import SmemAllocator

# The block's tile of C is BM x BN; it walks K in steps of BK.
BM = 128
BN = 256
BK = 64
STAGES = 4
GROUP = 8  # rows of tiles that are walked together
CLUSTER = 2  # blocks, one above the other, that share tiles of B
SHARE = BN // CLUSTER  # rows of the tile of B that a block loads for all
CONSUMERS = BM // 64  # warpgroups, of 64 rows each; the producer follows them
PIECES = BN // 64  # C goes out in pieces of 64 columns
BUFFERS = 2  # pieces that wait for the copy engine
PRODUCER_REGISTERS = 40
CONSUMER_REGISTERS = 232
STAGE_BYTES = (BM + BN) * BK * 2
EVICT_NORMAL = 1 << 60  # the L2's usual policy as the engine is told it; the DSL's default is a zero

# What the copy engine does with the tensor map of each operand.
COPIES = {
    "a": cpasync.CopyBulkTensorTileG2SOp(),
    "b": cpasync.CopyBulkTensorTileG2SMulticastOp(),
    "c": cpasync.CopyBulkTensorTileS2GOp(),
}


def tensor_core(columns: int) -> cute.TiledMma:
    # Two warpgroups, one below the other, of 64 x columns each; operands K-major in shared memory.
    k_major = warpgroup.OperandMajorMode.K
    operation = warpgroup.MmaF16BF16Op(
        BFloat16, Float32, (64, columns, 16), warpgroup.OperandSource.SMEM, k_major, k_major
    )
    return cute.make_tiled_mma(operation, (CONSUMERS, 1, 1))


@cute.jit
def coordinates(rows: Int32, columns: Int32):
    # (rows, columns), of which each element is its own place, told as the copy engine wants it: column first.
    places = cute.make_identity_tensor((columns, rows))
    return cute.make_tensor(places.iterator, cute.select(places.layout, [1, 0]))


@cute.jit
def tile_at(t: Int32, rows: Int32, cols: Int32):
    # The t-th tile of rows x cols, in tiles of a cluster: groups of GROUP rows, in a group column by column.
    group, within = t // (GROUP * cols), t % (GROUP * cols)
    height = cutlass.min(GROUP, rows - group * GROUP)
    return group * GROUP + within % height, within // height


@cute.jit
def next_stage(stage: Int32, parity: Int32):
    last = stage == STAGES - 1
    return (0 if last else stage + 1), (parity ^ 1 if last else parity)


@cute.jit
def release(empty: cute.Pointer, stage: Int32, thread: Int32):
    if thread % 128 < CLUSTER:
        cute.arch.mbarrier_arrive(empty + stage, thread % 128)


@cute.jit
def multiply(
    rA: cute.Tensor,
    rB: cute.Tensor,
    sums: cute.Tensor,
    full: cute.Pointer,
    empty: cute.Pointer,
    stage: Int32,
    parity: Int32,
    before: Int32,
    thread: Int32,
    begins: cutlass.Constexpr,
):
    # One step of K; the step before it is then done, and its stage released.
    mma = tensor_core(BN)
    cute.arch.mbarrier_wait(full + stage, parity)
    warpgroup.fence()
    for s in cutlass.range_constexpr(cute.size(rA, mode=[2])):
        mma.set(warpgroup.Field.ACCUMULATE, not begins or s > 0)
        cute.gemm(mma, sums, rA[None, None, s, stage], rB[None, None, s, stage], sums)
    warpgroup.commit_group()
    warpgroup.wait_group(1)
    if cutlass.const_expr(not begins):
        release(empty, before, thread)
    following, next_parity = next_stage(stage, parity)
    return following, next_parity, stage


@cute.jit
def store(
    map_c: cute.CopyAtom,
    write: cute.TiledCopy,
    pieces: cute.Tensor,
    toS: cute.Tensor,
    fromS: cute.Tensor,
    intoC: cute.Tensor,
    row: Int32,
    col: Int32,
    own_warp: Int32,
    piece: cutlass.Constexpr,
):
    # A warp's 16 x 64 of a piece: rounded sums into shared memory, and on from there by the copy engine.
    buffer = piece % BUFFERS
    cute.arch.cp_async_bulk_wait_group(BUFFERS - 1, read=True)
    cute.arch.sync_warp()
    cute.copy(write, write.retile(pieces[None, None, None, piece]), toS[None, None, None, buffer])
    cute.arch.fence_proxy("async.shared", space="cta")
    cute.arch.sync_warp()
    with cute.arch.elect_one():  # a load elects its thread by itself, a store does not
        cute.copy(map_c, fromS[None, own_warp, buffer], intoC[None, row, col + piece], cache_policy=Int64(EVICT_NORMAL))
        cute.arch.cp_async_bulk_commit_group()


@cute.jit
def produce(
    map_a: cute.CopyAtom,
    map_b: cute.CopyAtom,
    fromA: cute.Tensor,
    fromB: cute.Tensor,
    intoA: cute.Tensor,
    intoB: cute.Tensor,
    full: cute.Pointer,
    empty: cute.Pointer,
    rows: Int32,
    cols: Int32,
    steps: Int32,
):
    # One warp: all tiles of A and this block's shares of those of B, into the ring.
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    stage, parity = Int32(0), Int32(0)  # where in the ring, and how often round it
    for t in range(block // CLUSTER, rows * cols, blocks // CLUSTER):
        row, col = tile_at(t, rows, cols)
        for p in range(steps):
            cute.arch.mbarrier_wait(empty + stage, parity ^ 1)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full + stage, STAGE_BYTES)
            cute.copy(
                map_a,
                fromA[None, row * CLUSTER + rank, p],
                intoA[None, stage],
                tma_bar_ptr=full + stage,
                cache_policy=Int64(EVICT_NORMAL),
            )
            cute.copy(
                map_b,
                fromB[None, col * CLUSTER + rank, p],
                intoB[None, rank, stage],
                tma_bar_ptr=full + stage,
                mcast_mask=cutlass.Int16((1 << CLUSTER) - 1),
                cache_policy=Int64(EVICT_NORMAL),
            )
            stage, parity = next_stage(stage, parity)


@cute.jit
def consume(
    map_c: cute.CopyAtom,
    sA: cute.Tensor,
    sB: cute.Tensor,
    sC: cute.Tensor,
    fromS: cute.Tensor,
    intoC: cute.Tensor,
    full: cute.Pointer,
    empty: cute.Pointer,
    rows: Int32,
    cols: Int32,
    steps: Int32,
    thread: Int32,
    own_warp: Int32,
):
    # Two warpgroups: the products of the ring's tiles, rounded and stored.
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    mma = tensor_core(BN)
    part = mma.get_slice(own_warp // 4 * 128)
    rA = mma.make_fragment_A(part.partition_A(sA))  # descriptors: (1, 1, BK / 16, STAGES)
    rB = mma.make_fragment_B(part.partition_B(sB))
    sums = cute.make_rmem_tensor(mma.partition_shape_C((BM, BN)), Float32)  # ((2, 2, BN / 8), 1, 1)
    kept = cute.make_rmem_tensor(sums.shape, BFloat16)  # the last tile, rounded
    pieces = cute.make_tensor(kept.iterator, cute.make_layout(((2, 2, 8), 1, 1, PIECES)))
    stmatrix = cute.make_copy_atom(warp.StMatrix8x8x16bOp(num_matrices=4), BFloat16)
    write = cute.make_tiled_copy_C(stmatrix, tensor_core(64)).get_slice(thread)
    toS = write.partition_D(sC)  # (COPY, 1, 4, BUFFERS)
    row, col = Int32(0), Int32(0)  # where this warp's part of the kept tile begins in C, in strips and pieces
    stage, parity, before = Int32(0), Int32(0), Int32(0)  # where in the ring, how often round it, the step before
    first = Boolean(True)

    for t in range(block // CLUSTER, rows * cols, blocks // CLUSTER):
        for piece in cutlass.range_constexpr(PIECES):
            if piece < steps:
                stage, parity, before = multiply(rA, rB, sums, full, empty, stage, parity, before, thread, piece == 0)
            if not first:
                store(map_c, write, pieces, toS, fromS, intoC, row, col, own_warp, piece)
        # The divisions in here are done while the tensor cores work, not between two tiles.
        down, right = tile_at(t, rows, cols)
        row, col = (down * CLUSTER + rank) * (BM // 16) + own_warp, right * PIECES
        for _ in range(PIECES, steps):
            stage, parity, before = multiply(rA, rB, sums, full, empty, stage, parity, before, thread, False)
        warpgroup.wait_group(0)
        release(empty, before, thread)
        kept.store(sums.load().to(BFloat16))
        first = Boolean(False)
    if not first:  # a cluster without a tile has nothing to store
        for piece in cutlass.range_constexpr(PIECES):
            store(map_c, write, pieces, toS, fromS, intoC, row, col, own_warp, piece)
    cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.kernel
def dsl_hopper(map_a: cute.CopyAtom, map_b: cute.CopyAtom, map_c: cute.CopyAtom, m: Int32, n: Int32, k: Int32):
    # A: [m, k]   B: [n, k]   C: [m, n]   grid: any number of clusters   block: 384 threads
    thread, _, _ = cute.arch.thread_idx()
    own_warp = cute.arch.make_warp_uniform(thread // 32)
    rows, cols, steps = cute.ceil_div(m, CLUSTER * BM), cute.ceil_div(n, BN), cute.ceil_div(k, BK)

    # Eight rows of 64 elements under the 128-byte swizzle: the image that TMA writes and wgmma reads.
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, BFloat16)
    layoutA = cute.tile_to_shape(atom, (BM, BK, STAGES), (0, 1, 2))
    layoutB = cute.tile_to_shape(atom, (BN, BK, STAGES), (0, 1, 2))
    layoutC = cute.tile_to_shape(atom, (BM, 64, BUFFERS), (0, 1, 2))
    shares = cute.tile_to_shape(atom, (SHARE, BK, CLUSTER, STAGES), (0, 1, 2, 3))  # of B, the same bytes
    strips = cute.tile_to_shape(atom, (16, 64, BM // 16, BUFFERS), (0, 1, 2, 3))  # of C, the same bytes
    shared = SmemAllocator()
    sA = shared.allocate_tensor(BFloat16, layoutA.outer, 1024, layoutA.inner)  # (BM, BK, STAGES)
    sB = shared.allocate_tensor(BFloat16, layoutB.outer, 1024, layoutB.inner)  # (BN, BK, STAGES)
    sC = shared.allocate_tensor(BFloat16, layoutC.outer, 1024, layoutC.inner)  # (BM, 64, BUFFERS)
    full = shared.allocate_array(Int64, STAGES)
    empty = shared.allocate_array(Int64, STAGES)

    # What the copy engine moves: COPY is a tile of A, a block's share of a tile of B, a warp's part of a piece of C.
    one = cute.make_layout(1)
    gA = cute.local_tile(coordinates(m, k), (BM, BK), (None, None))  # (BM, BK, tiles, steps)
    gB = cute.local_tile(coordinates(n, k), (SHARE, BK), (None, None))  # (SHARE, BK, shares, steps)
    gC = cute.local_tile(coordinates(m, n), (16, 64), (None, None))  # (16, 64, strips, pieces)
    sharesB = cute.make_tensor(sB.iterator, shares.outer)  # (SHARE, BK, CLUSTER, STAGES)
    stripsC = cute.make_tensor(sC.iterator, strips.outer)  # (16, 64, warps, BUFFERS)
    intoA, fromA = cpasync.tma_partition(map_a, 0, one, cute.group_modes(sA, 0, 2), cute.group_modes(gA, 0, 2))
    intoB, fromB = cpasync.tma_partition(map_b, 0, one, cute.group_modes(sharesB, 0, 2), cute.group_modes(gB, 0, 2))
    fromS, intoC = cpasync.tma_partition(map_c, 0, one, cute.group_modes(stripsC, 0, 2), cute.group_modes(gC, 0, 2))

    if thread == 0:
        for s in cutlass.range_constexpr(STAGES):
            cute.arch.mbarrier_init(full + s, 1)
            cute.arch.mbarrier_init(empty + s, CLUSTER * CONSUMERS)
        cute.arch.mbarrier_init_fence()
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()  # nobody's engine writes here before the barriers are ready
    if own_warp >= 4 * CONSUMERS:
        cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
        if own_warp == 4 * CONSUMERS:
            produce(map_a, map_b, fromA, fromB, intoA, intoB, full, empty, rows, cols, steps)
    else:
        cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
        consume(map_c, sA, sB, sC, fromS, intoC, full, empty, rows, cols, steps, thread, own_warp)
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()  # nobody leaves while a neighbour may still write to it
