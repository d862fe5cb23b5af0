// Level H16: any shape.
//
// New:        H14 is fast where its tiles fit the problem and rows lie 128 bytes apart. Here one template gives tiles
//             of many widths, and the launch decides what else a shape needs:
//               clusters   of up to eight blocks, in which rows and columns of blocks share their tiles of A and of B:
//                          each loads its share and multicasts it. Requests cost most where rows begin at odd multiples
//                          of 16 bytes, and fewer of them pay most there.
//               parts      blocks of a cluster that share one tile and divide K. Each hands the sums of the others'
//                          columns over through their shared memory, adds those of its own in the order of the parts,
//                          whatever the order in which they came, and stores them. No workspace, and the same bits
//                          every time.
//               exchange   forms whose names end in _x compute C' = B A': rows of B take the 64 rows of a wgmma and
//                          rows of A its columns, which come in finer steps. Sums are transposed as they are staged.
//             A block's two consumers have a tile each and take turns (alternating, as level H13), or share one (joint,
//             as level H9), by rows or, of 64 rows, by columns. The last tile of a block is staged where its ring was.
//             The producer's thread is elected, which spares it a loop around every copy.
// Parameters: by form.
// Expected:   cuBLAS's speed in the geometric mean: sharing tiles halves what rows at odd multiples of 16 bytes cost.
// Takes:      as level H14, and C itself; `best_plan` in family.py chooses form and cluster.

#include "common/tma.cuh"
#include "hopper/cluster.cuh"
#include "hopper/wgmma_any.cuh"

using Element = bf16;

constexpr int BK = 64;         // a consumer walks K in steps of BK
constexpr int CONSUMERS = 2;   // warpgroups; the producer follows them
constexpr int PATIENCE = 100;  // how often a block looks for the others before it goes on without them
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int PRODUCER_REGISTERS = 56, CONSUMER_REGISTERS = 224;
static_assert(PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS == 3 * 168, "claimed is what was given back");
static_assert(BK * sizeof(Element) == 128, "a row of a tile is one swizzled row");

// A tile has BM rows, which are one operand's, and BN columns, which are the other's: A's rows and B's, or, EXCHANGED,
// the other way round. UNIT steps of K are one group of wgmma. ALTERNATING: each consumer has tiles of its own. A
// finished tile that it KEEPS is stored while the next is multiplied. The producers of all blocks meet before every
// EVERY-th tile, or never (0).
template <int BM_, int BN_, int STAGES_, int UNIT_, bool ALTERNATING_, bool EXCHANGED_, int GROUP_, bool KEEPS_,
          int EVERY_>
struct Form {
    static constexpr int BM = BM_, BN = BN_, STAGES = STAGES_, UNIT = UNIT_, EVERY = EVERY_;
    static constexpr int GROUP = GROUP_;  // rows of tiles that are walked together
    static constexpr bool ALTERNATING = ALTERNATING_, EXCHANGED = EXCHANGED_, KEEPS = KEEPS_;
    static constexpr bool BY_ROWS = BM >= 128;  // how the consumers share a joint tile
    static constexpr int ROWS = ALTERNATING || !BY_ROWS ? BM : BM / CONSUMERS;  // of a consumer
    static constexpr int COLS = ALTERNATING || BY_ROWS ? BN : BN / CONSUMERS;
    static constexpr int HALVES = ROWS / 64;  // what one wgmma multiplies
    static constexpr int PIECE = COLS < 64 ? COLS : 64;  // columns that are staged together
    static constexpr int PARTS = (COLS + PIECE - 1) / PIECE, PIECES = HALVES * PARTS;
    static constexpr int BUFFERS = KEEPS ? 2 : 1;
    static constexpr int GROUPS = HALVES * COLS / 8;  // of four sums, in each thread
    static_assert(HALVES * PARTS * 4 * 16 * 64 <= (ALTERNATING ? STAGES * BM * BK : STAGES * HALVES * 4096),
                  "the last tile is staged where the ring was");
    // Sums of all parts of K but one, by thread, find room where the ring was.
    static constexpr bool DIVIDES = !ALTERNATING && !KEEPS && (GROUPS + 7) * 256 * 16 <= STAGES * (BM + BN) * BK * 2;
    static_assert(PIECE == 64 || PIECE == 32, "pieces of whole swizzled rows");
    static_assert(STAGES > 2 * UNIT, "a group is loaded behind two others");
    static_assert(!KEEPS || (!EXCHANGED && UNIT == 1), "what is kept is stored between steps");
    static_assert(PIECES % BUFFERS == 0, "a tile begins with the buffer used longest ago");
};

template <class F>
struct Shared {
    Element rows[F::STAGES][F::BM * BK];
    Element cols[F::STAGES][F::BN * BK];
    Element C[4 * CONSUMERS][F::BUFFERS][16 * 64];  // of each warp; exchanged, of the four warps of a consumer together
    Barrier full[F::STAGES], empty[F::STAGES];
    Barrier turn[CONSUMERS];  // of each consumer with tiles of its own: it may begin its next
};

struct Tile {
    int row, col;  // counted in tiles of a cluster
};

// What all warps of a block know of the problem and of their cluster: `lengths.x` rows of `lengths.y` blocks, whose
// tiles lie side by side, `lengths.z` times.
template <class F>
struct Walk {
    Lengths lengths;
    int x, y, z, rank;      // of this block in its cluster
    int rows, cols, tiles;  // in tiles of a cluster
    int cluster, clusters;
    int from, to;  // steps of a tile that this block multiplies, whole groups of them

    __device__ __forceinline__ Walk(int m, int n, int k) : lengths(cluster_lengths()), rank(cluster_rank()) {
        const Lengths place = cluster_place();
        x = place.x, y = place.y, z = place.z;
        const int high = F::EXCHANGED ? n : m, wide = F::EXCHANGED ? m : n;
        // Powers of two, spelled so that no division delays the first load.
        rows = ((high + F::BM - 1) / F::BM + lengths.x - 1) >> __ffs(lengths.x) - 1;
        cols = ((wide + F::BN - 1) / F::BN + lengths.y - 1) >> __ffs(lengths.y) - 1;
        tiles = rows * cols, cluster = cluster_number(), clusters = cluster_count();
        from = 0, to = (k + F::UNIT * BK - 1) / (F::UNIT * BK);
        if (F::DIVIDES && lengths.z > 1) {
            const int groups = to;
            from = z * groups / lengths.z, to = (z + 1) * groups / lengths.z;
        }
        from *= F::UNIT, to *= F::UNIT;
    }

    // The t-th tile of this block: groups of GROUP rows, in a group column by column.
    __device__ __forceinline__ Tile at(int t) const {
        const int group = t / (F::GROUP * cols), within = t % (F::GROUP * cols);
        const int height = min(F::GROUP, rows - group * F::GROUP);
        return {((group * F::GROUP + within % height) * lengths.x + x) * F::BM,
                (within / height * lengths.y + y) * F::BN};
    }

    // Blocks whose loads this block's stages take, itself among them: those of its row and of its column.
    __device__ __forceinline__ int peers() const {
        return lengths.x + lengths.y - 1;
    }
    __device__ __forceinline__ int peer(int i) const {
        const int row = i < lengths.x ? i : x, skipped = i - lengths.x;
        const int col = i < lengths.x ? y : skipped + (skipped >= y ? 1 : 0);
        return row + lengths.x * (col + lengths.y * z);
    }
};

// What the producers of a launch count in global memory: zero before a launch and after it.
struct Meeting {
    unsigned met;   // producers that came to a meeting since the launch began
    unsigned done;  // producers that have loaded all their tiles
};

// Wait until `expected` producers came to this meeting and those before it, or until patience is at its end.
__device__ __forceinline__ void meet(Meeting* meeting, unsigned expected) {
    atomicAdd(&meeting->met, 1);
#pragma unroll 1
    for (int look = 0; look < PATIENCE && *static_cast<volatile unsigned*>(&meeting->met) < expected; ++look) {
        __nanosleep(20);
    }
}

// The next kernel on the stream may be launched as soon as multiprocessors are free.
__device__ __forceinline__ void let_next_begin() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Wait until the kernel before on the stream has ended, and see what it wrote. Every block's producer does, and whatever
// the block stores follows from what the producer loads.
__device__ __forceinline__ void wait_for_previous() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// The four warps of a consumer meet.
__device__ __forceinline__ void consumer_sync(int consumer) {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + consumer) : "memory");
}

// All blocks of the cluster meet, or all threads of the only one.
template <class F>
__device__ __forceinline__ void sync(const Walk<F>& walk) {
    if (walk.lengths.x * walk.lengths.y * walk.lengths.z > 1) {
        cluster_meet();
    } else {
        __syncthreads();
    }
}

template <class F>
__device__ __forceinline__ void set_up(Shared<F>& shared, const Walk<F>& walk) {
    let_next_begin();
    if (threadIdx.x == 0) {
        for (int s = 0; s < F::STAGES; ++s) {
            barrier_init(&shared.full[s], 1);
            barrier_init(&shared.empty[s], walk.peers() * (F::ALTERNATING ? 1 : CONSUMERS));
        }
        for (int c = 0; c < CONSUMERS; ++c) {
            barrier_init(&shared.turn[c], 4);  // the other consumer's warps
        }
        barrier_init_fence();
    }
    sync(walk);  // nobody's engine writes here before the barriers are ready
}

// The producer's thread: loads the steps of this block's tiles, in order, into the ring.
template <class F>
__device__ __forceinline__ void produce(Shared<F>& shared, const TensorMap& map_rows, const TensorMap& map_cols,
                                        Meeting* meeting, const Walk<F>& walk) {
    int stage = 0, parity = 0;  // where in the ring, and how often round it
    tma_prefetch(map_rows);
    tma_prefetch(map_cols);
    const int first = walk.lengths.x * walk.lengths.y * walk.z;  // rank of the first block of this part
    int row_of_blocks = 0;
    for (int y = 0; y < walk.lengths.y; ++y) {
        row_of_blocks |= 1 << (first + walk.x + walk.lengths.x * y);
    }
    const int column_of_blocks = ((1 << walk.lengths.x) - 1) << (first + walk.lengths.x * walk.y);
    const int height = F::BM / walk.lengths.y, width = F::BN / walk.lengths.x;  // of the shares that this block loads
    Tile tile = walk.at(walk.cluster);
    wait_for_previous();
    for (int t = walk.cluster; t < walk.tiles; t += walk.clusters) {
        if constexpr (F::EVERY > 0) {
            const int wave = t / walk.clusters;  // how many tiles this block has loaded
            if (wave > 0 && wave % F::EVERY == 0 && (wave + 1) * walk.clusters <= walk.tiles) {
                meet(meeting, wave / F::EVERY * gridDim.x * gridDim.y);  // every block has one more
            }
        }
        for (int p = walk.from; p < walk.to; ++p) {
            Barrier* const full = &shared.full[stage];
            barrier_wait(&shared.empty[stage], parity ^ 1);
            barrier_expect(full, sizeof(shared.rows[0]) + sizeof(shared.cols[0]));
            Element* const rows = &shared.rows[stage][walk.y * height * BK];
            Element* const cols = &shared.cols[stage][walk.x * width * BK];
            if (walk.lengths.y > 1) {
                tma_load_multicast(rows, map_rows, full, p * BK, tile.row + walk.y * height, row_of_blocks);
            } else {
                tma_load(rows, map_rows, full, p * BK, tile.row);
            }
            if (walk.lengths.x > 1) {
                tma_load_multicast(cols, map_cols, full, p * BK, tile.col + walk.x * width, column_of_blocks);
            } else {
                tma_load(cols, map_cols, full, p * BK, tile.col);
            }
            if (++stage == F::STAGES) {
                stage = 0, parity ^= 1;
            }
        }
        tile = walk.at(t + walk.clusters);
    }
    if constexpr (F::EVERY > 0) {
        const unsigned blocks = gridDim.x * gridDim.y;
        __threadfence();
        if (atomicInc(&meeting->done, blocks - 1) == blocks - 1) {
            meeting->met = 0;  // everyone is done (and atomicInc has just set `done` back to 0)
        }
    }
}

// Write 16 x PIECE of a warp, the sums `word(0)`, `word(1)`, ... two to a word, to `staged`, and store it from there.
template <int PIECE, class Words>
__device__ __forceinline__ void store(const TensorMap& map_c, Element* staged, int col, int row, const Words& word) {
    const int lane = threadIdx.x % 32;
    // Lane l names row l % 16 of the piece, and the left or the right of two neighbouring 16-byte chunks.
    const unsigned to = shared_address(staged) + lane % 16 * (PIECE * sizeof(Element));
    const int turned = PIECE == 64 ? lane % 8 : lane / 2 % 4;
#pragma unroll
    for (int chunk = 0; chunk < PIECE / 8; chunk += 2) {
        stmatrix(to + ((chunk + lane / 16) ^ turned) * 16, word(chunk * 2), word(chunk * 2 + 1), word(chunk * 2 + 2),
                 word(chunk * 2 + 3));
    }
    shared_fence();
    __syncwarp();
    if (elect_one()) {
        tma_store(map_c, staged, col, row);
        tma_store_commit();
    }
}

// Store a consumer's tile from its sums; `row` and `col` of the tile's first. The `last` is staged where the ring was,
// in memory that no other consumer reads, and need not wait for pieces before it.
template <class F>
__device__ __forceinline__ void store_tile(Shared<F>& shared, const TensorMap& map_c, int warpgroup, bool last, int row,
                                           int col, const float (&sums)[F::HALVES][F::COLS / 2]) {
    constexpr int PIECE = F::PIECE, FOUR = 4 * 16 * 64;  // elements that a warpgroup stages together
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    if (last) {
        consumer_sync(warpgroup);  // all four warps are done with the ring
    }
#pragma unroll
    for (int piece = 0; piece < F::PIECES; ++piece) {
        const int half = piece / F::PARTS, left = min(piece % F::PARTS * PIECE, F::COLS - PIECE);  // may overlap
        const float* const d = &sums[half][left / 2];
        Element* staged = shared.C[4 * warpgroup][0];
        if (last) {
            constexpr int EACH = F::ROWS / 64;  // pieces that find room where a stage had a consumer's rows
            staged = F::ALTERNATING ? shared.rows[0] + piece * FOUR
                     : F::BY_ROWS   ? &shared.rows[piece / EACH][warpgroup * F::ROWS * BK + piece % EACH * FOUR]
                                    : &shared.cols[piece][warpgroup * F::COLS * BK];
        }
        if constexpr (!F::EXCHANGED) {
            if (!last) {
                if (elect_one()) {
                    tma_store_wait_read<0>();
                }
                __syncwarp();
            }
            store<PIECE>(map_c, staged + warp * 16 * PIECE, col + left, row + half * 64 + warp * 16,
                         [&](int i) { return pack<Element>(d[2 * i], d[2 * i + 1]); });
        } else {
            // PIECE rows of C, 64 columns each, of which every warp writes 16: two chunks of 16 bytes.
            if (!last) {
                if (warp == 0 && elect_one()) {
                    tma_store_wait_read<0>();
                }
                consumer_sync(warpgroup);
            }
            const unsigned to = shared_address(staged) + (lane / 16 * 8 + lane % 8) * 128;
            const int chunk = (2 * warp + lane / 8 % 2) ^ lane % 8;
#pragma unroll
            for (int i = 0; i < PIECE / 8; i += 2) {  // eight columns of the tile, and the next eight
                const float* const e = d + 4 * i;
                stmatrix_turned(to + i * 8 * 128 + chunk * 16, pack<Element>(e[0], e[1]), pack<Element>(e[2], e[3]),
                                pack<Element>(e[4], e[5]), pack<Element>(e[6], e[7]));
            }
            shared_fence();
            consumer_sync(warpgroup);
            if (warp == 0 && elect_one()) {
                tma_store(map_c, staged, row + half * 64, col + left);
                tma_store_commit();
            }
        }
    }
}

// Exchange sums with the other parts of K, and store the columns that fall to this one. All threads of the block come
// here; those of the producer have no sums.
template <class F>
__device__ __forceinline__ void add_and_store(Shared<F>& shared, const Walk<F>& walk, Element* C, int m, int n, int row,
                                              int col, float (&sums)[F::HALVES][F::COLS / 2]) {
    constexpr int COLS = F::COLS, GROUPS = F::GROUPS;
    const int parts = walk.lengths.z, each = (GROUPS + parts - 1) / parts;  // groups of sums that fall to one part
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, blocks = walk.lengths.x * walk.lengths.y;
    float4* const given = reinterpret_cast<float4*>(shared.rows[0]);  // [part][group][thread], where the ring was
    cluster_meet();  // every block is done with its ring
    int owner = 0, slot = 0;
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
        const float* const d = &sums[g / (COLS / 8)][g % (COLS / 8) * 4];
        if (owner != walk.z) {
            store_at(&given[(walk.z * each + slot) * 256 + threadIdx.x], walk.rank + (owner - walk.z) * blocks,
                     make_float4(d[0], d[1], d[2], d[3]));
        }
        if (++slot == each) {
            slot = 0, ++owner;
        }
    }
    cluster_sync();
    owner = 0, slot = 0;
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
        if (owner == walk.z) {
            const float* const d = &sums[g / (COLS / 8)][g % (COLS / 8) * 4];
            float4 sum = make_float4(0, 0, 0, 0);
            for (int part = 0; part < parts; ++part) {
                const float4 more = part == walk.z ? make_float4(d[0], d[1], d[2], d[3])
                                                   : given[(part * each + slot) * 256 + threadIdx.x];
                sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
            }
            const int r = row + g / (COLS / 8) * 64 + warp * 16 + lane / 4;
            const int c = col + g % (COLS / 8) * 8 + lane % 4 * 2;
            const Word upper = pack<Element>(sum.x, sum.y), lower = pack<Element>(sum.z, sum.w);
            if constexpr (F::EXCHANGED) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int of_c = c + i % 2, column = r + i / 2 * 8;
                    if (of_c < m && column < n) {
                        C[size_t(of_c) * n + column].bits =
                            static_cast<unsigned short>((i < 2 ? upper : lower) >> (i % 2 * 16));
                    }
                }
            } else if (c < n) {  // two columns, since n is a multiple of eight
                if (r < m) {
                    *reinterpret_cast<Word*>(&C[size_t(r) * n + c]) = upper;
                }
                if (r + 8 < m) {
                    *reinterpret_cast<Word*>(&C[size_t(r + 8) * n + c]) = lower;
                }
            }
        }
        if (++slot == each) {
            slot = 0, ++owner;
        }
    }
}

constexpr int NEXT_HALF = 64 * BK * sizeof(Element) >> 4;  // added to a descriptor: the next 64 rows

// A consumer's way through the ring.
template <class F>
struct Ring {
    int stage = 0, parity = 0;  // where in it, and how often round it
    int before[F::UNIT] = {};   // the stages of the group before

    // Let those load again whose loads the stages of the group before take.
    __device__ __forceinline__ void release(Shared<F>& shared, const Walk<F>& walk) const {
        const int i = threadIdx.x % 128;
        if (i < walk.peers()) {
#pragma unroll
            for (int u = 0; u < F::UNIT; ++u) {
                if (walk.peers() > 1) {
                    barrier_arrive_at(&shared.empty[before[u]], walk.peer(i));
                } else {
                    barrier_arrive(&shared.empty[before[u]]);
                }
            }
        }
    }

    // Multiply a group of steps while the one before may still run; release that one's stages. `part`: which of two
    // consumers that share a tile.
    __device__ __forceinline__ void multiply(Shared<F>& shared, const Walk<F>& walk, int part, bool first,
                                             float (&sums)[F::HALVES][F::COLS / 2]) {
        const int skipped = F::ALTERNATING ? 0 : part;
        int at[F::UNIT];
#pragma unroll
        for (int u = 0; u < F::UNIT; ++u) {
            at[u] = stage;
            barrier_wait(&shared.full[stage], parity);
            if (++stage == F::STAGES) {
                stage = 0, parity ^= 1;
            }
        }
        wgmma_fence();
#pragma unroll
        for (int u = 0; u < F::UNIT; ++u) {
            const Descriptor a = describe(&shared.rows[at[u]][F::BY_ROWS ? skipped * F::ROWS * BK : 0]);
            const Descriptor b = describe(&shared.cols[at[u]][F::BY_ROWS ? 0 : skipped * F::COLS * BK]);
#pragma unroll
            for (int s = 0; s < BK / 16; ++s) {
#pragma unroll
                for (int half = 0; half < F::HALVES; ++half) {
                    wgmma_any<F::COLS>(sums[half], a + half * NEXT_HALF + s * NEXT_K16, b + s * NEXT_K16,
                                       !first || u > 0 || s > 0);
                }
            }
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (!first) {
            release(shared, walk);
        }
#pragma unroll
        for (int u = 0; u < F::UNIT; ++u) {
            before[u] = at[u];
        }
    }
};

// Consumers with a tile each: one multiplies while the other stores.
template <class F>
__device__ __forceinline__ void alternate(Shared<F>& shared, const TensorMap& map_c, const Walk<F>& walk,
                                          int warpgroup) {
    const int steps = walk.to - walk.from;
    int first = warpgroup * steps;  // the step of this block with which the next tile begins
    int begun = warpgroup ^ 1;      // parity of `turn`: the first consumer need not wait for its first
    for (int t = walk.cluster + warpgroup * walk.clusters; t < walk.tiles; t += CONSUMERS * walk.clusters) {
        float sums[F::HALVES][F::COLS / 2] = {};
        Ring<F> ring{first % F::STAGES, first / F::STAGES % 2};
        barrier_wait(&shared.turn[warpgroup], begun);
        for (int p = 0; p < steps; p += F::UNIT) {
            ring.multiply(shared, walk, warpgroup, p == 0, sums);
        }
        if (threadIdx.x % 32 == 0) {
            barrier_arrive(&shared.turn[warpgroup ^ 1]);
        }
#pragma unroll
        for (int half = 0; half < F::HALVES; ++half) {
            wgmma_finish(sums[half]);
        }
        ring.release(shared, walk);
        const Tile tile = walk.at(t);
        // Nothing is loaded any more, and the other consumer has left every stage.
        const bool last = t + walk.clusters >= walk.tiles && (t == walk.cluster || steps >= F::STAGES);
        store_tile<F>(shared, map_c, warpgroup, last, tile.row, tile.col, sums);
        first += CONSUMERS * steps, begun ^= 1;
    }
}

// Consumers that share each tile.
template <class F>
__device__ __forceinline__ void join(Shared<F>& shared, const TensorMap& map_c, Element* C, int m, int n,
                                     const Walk<F>& walk, int warpgroup) {
    constexpr int PIECES = F::PIECES, COLS = F::COLS;
    const int warp = threadIdx.x / 32, steps = walk.to - walk.from;
    const int below = F::BY_ROWS ? warpgroup * F::ROWS : 0, beside = F::BY_ROWS ? 0 : warpgroup * COLS;
    float sums[F::HALVES][COLS / 2] = {};
    Ring<F> ring;
    Word kept[F::KEEPS ? F::HALVES : 1][COLS / 4] = {};  // the tile before, rounded
    int row = 0, col = 0;                                // and where this warp's part of it begins in C
    bool keeps = false;                                  // whether a tile waits to be stored
    const auto store_piece = [&](int piece) {
        if (elect_one()) {
            tma_store_wait_read<F::BUFFERS - 1>();
        }
        __syncwarp();
        const int half = piece / F::PARTS, part = piece % F::PARTS;
        store<F::PIECE>(map_c, shared.C[warp][piece % F::BUFFERS], col + part * F::PIECE, row + half * 64,
                        [&](int i) { return kept[half][part * F::PIECE / 4 + i]; });
    };
    for (int t = walk.cluster; t < walk.tiles; t += walk.clusters) {
        int done = 0;
        if constexpr (F::KEEPS) {
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece) {
                if (piece < steps) {
                    ring.multiply(shared, walk, warpgroup, piece == 0, sums);
                }
                if (keeps) {
                    store_piece(piece);
                }
            }
            done = PIECES;
        }
        for (int p = done; p < steps; p += F::UNIT) {
            ring.multiply(shared, walk, warpgroup, p == 0, sums);
        }
#pragma unroll
        for (int half = 0; half < F::HALVES; ++half) {
            wgmma_finish(sums[half]);
        }
        ring.release(shared, walk);

        const Tile tile = walk.at(t);
        if constexpr (F::KEEPS) {
            row = tile.row + below + warp % 4 * 16, col = tile.col;
#pragma unroll
            for (int half = 0; half < F::HALVES; ++half) {
#pragma unroll
                for (int i = 0; i < COLS / 4; ++i) {
                    kept[half][i] = pack<Element>(sums[half][2 * i], sums[half][2 * i + 1]);
                }
            }
            keeps = true;
        } else {
            if constexpr (F::DIVIDES) {
                if (walk.lengths.z > 1) {
                    add_and_store<F>(shared, walk, C, m, n, tile.row + below, tile.col + beside, sums);
                    continue;
                }
            }
            store_tile<F>(shared, map_c, warpgroup, t + walk.clusters >= walk.tiles, tile.row + below,
                          tile.col + beside, sums);
        }
    }
    if constexpr (F::KEEPS) {
        if (keeps) {  // a cluster beyond the tiles has nothing to store
#pragma unroll
            for (int piece = 0; piece < PIECES; ++piece) {
                store_piece(piece);
            }
        }
    }
}

template <class F>
__device__ __forceinline__ void any_shape(const TensorMap& map_a, const TensorMap& map_b, const TensorMap& map_c,
                                          Element* C, Meeting* meeting, int m, int n, int k) {
    // A: [m, k]   B: [n, k]   C: [m, n]   block: THREADS   meeting: one, of this launch
    // grid: any number of clusters along x; with parts, as many as C has tiles of a cluster
    static_assert(sizeof(Shared<F>) <= 227 * 1024, "a block's shared memory");
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared<F>& shared = *reinterpret_cast<Shared<F>*>(shared_bytes);

    const Walk<F> walk(m, n, k);
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    set_up(shared, walk);
    if (warpgroup == CONSUMERS) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x / 32 == 4 * CONSUMERS && elect_one()) {
            produce(shared, F::EXCHANGED ? map_b : map_a, F::EXCHANGED ? map_a : map_b, meeting, walk);
        }
        if (F::DIVIDES && walk.lengths.z > 1) {  // as `add_and_store`
            __syncwarp();
            cluster_meet();
            cluster_sync();
        }
    } else {
        registers_claim<CONSUMER_REGISTERS>();
        if constexpr (F::ALTERNATING) {
            alternate<F>(shared, map_c, walk, warpgroup);
        } else {
            join<F>(shared, map_c, C, m, n, walk, warpgroup);
        }
        if (elect_one()) {
            tma_store_wait_read<0>();
        }
    }
    if (walk.peers() > 1) {
        __syncwarp();
        cluster_meet();  // nobody leaves while a neighbour may still write to it
    }
}

#define OPERANDS                                                                               \
    const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,          \
        const __grid_constant__ TensorMap map_c, Element* c, Meeting* meeting, int m, int n, int k

extern "C" __global__ void __launch_bounds__(THREADS, 1) joint_64x64(OPERANDS) {
    any_shape<Form<64, 64, 12, 2, false, false, 8, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) joint_128x32_x(OPERANDS) {
    any_shape<Form<128, 32, 10, 2, false, true, 8, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) joint_128x64(OPERANDS) {
    any_shape<Form<128, 64, 8, 2, false, false, 8, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) joint_128x96(OPERANDS) {
    any_shape<Form<128, 96, 7, 2, false, false, 8, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) joint_128x128(OPERANDS) {
    any_shape<Form<128, 128, 6, 2, false, false, 8, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) joint_128x192(OPERANDS) {
    any_shape<Form<128, 192, 5, 1, false, false, 8, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) joint_128x256(OPERANDS) {
    any_shape<Form<128, 256, 4, 1, false, false, 8, true, 4>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) joint_256x192(OPERANDS) {
    any_shape<Form<256, 192, 3, 1, false, false, 8, false, 4>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) alternating_64x72(OPERANDS) {
    any_shape<Form<64, 72, 12, 2, true, false, 8, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) alternating_64x96(OPERANDS) {
    any_shape<Form<64, 96, 10, 2, true, false, 8, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) alternating_64x96_x(OPERANDS) {
    any_shape<Form<64, 96, 10, 2, true, true, 8, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) alternating_64x128(OPERANDS) {
    any_shape<Form<64, 128, 8, 2, true, false, 8, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) alternating_64x144_x(OPERANDS) {
    any_shape<Form<64, 144, 8, 2, true, true, 8, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) alternating_64x168(OPERANDS) {
    any_shape<Form<64, 168, 7, 1, true, false, 8, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) alternating_64x168_x(OPERANDS) {
    any_shape<Form<64, 168, 7, 1, true, true, 8, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) alternating_64x192_x(OPERANDS) {
    any_shape<Form<64, 192, 6, 1, true, true, 8, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) alternating_128x112_x(OPERANDS) {
    any_shape<Form<128, 112, 7, 2, true, true, 8, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) alternating_128x128(OPERANDS) {
    any_shape<Form<128, 128, 6, 2, true, false, 8, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) alternating_128x144_x(OPERANDS) {
    any_shape<Form<128, 144, 6, 1, true, true, 12, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) alternating_128x160(OPERANDS) {
    any_shape<Form<128, 160, 5, 1, true, false, 12, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) alternating_128x160_x(OPERANDS) {
    any_shape<Form<128, 160, 5, 1, true, true, 12, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) alternating_128x176_x(OPERANDS) {
    any_shape<Form<128, 176, 5, 1, true, true, 12, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) alternating_128x192(OPERANDS) {
    any_shape<Form<128, 192, 5, 1, true, false, 16, false, 0>>(map_a, map_b, map_c, c, meeting, m, n, k);
}
