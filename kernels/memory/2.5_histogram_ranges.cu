// Histogram v5: ids sorted by ranges of bins first, so that millions of bins are counted in shared memory too.
//
// New:        the bins are cut into RANGES ranges, each of which fits into shared memory. (1) sort_ranges takes a tile
//             of ids into registers, sorts it by range in shared memory and leaves it where tiles have their places: 16
//             bits an id, its bin within the range, and the place of each range within the tile. No tile waits for
//             another, and none can overflow, however uneven the ids are. (2) histogram_ranges counts a range: a block
//             takes its segments of all tiles, or of some tiles where a range has more than its share of the ids, since
//             blocks are dealt out by how many ids a range has. A range that one block counts is stored, others are
//             added up.
// Parameters: 512 threads hold 32 ids each, a tile of 16384. 264 ranges are two blocks for each of 132 multiprocessors,
//             and 5M bins are 74 KB of counters each. With SLOTS = 8 counters a range of a tile no more than four lanes
//             of a warp meet at one, whatever the ids.
// Floor:      ids read, 2 bytes an id written and read, counts cleared and written: 8 * n + 8 * bins bytes.
// Expected:   v1 makes one atomic an id in the L2 cache, 100 a ns: 2.7 ms for 2^28 ids in 5M bins, and 39 ms for skewed
//             ones, which meet in few lines. Here 2.2 GB are 0.53 ms at the rate of a copy; see NOTES.md for the rest.
// Takes:      any n, ids from a 16-byte boundary; bins up to 264 * 24576 - 1, 96 KB of counters. Ids outside [0, bins)
//             are counted in the last place, which is the last range's last counter.

#ifndef PARAMETERS
#define PARAMETERS THREADS = 512, LOADS = 8, SLOTS = 8, RANGES = 264
#endif
constexpr int PARAMETERS;
constexpr int WARPS = THREADS / 32;
constexpr int TILE = THREADS * LOADS * 4;
constexpr int UNIT = 8;                                // 16-bit ids in 16 bytes; a segment is a whole number of units
constexpr int TILE_UNITS = TILE / UNIT + RANGES;       // room for the segments of a tile, each filled up
constexpr int COUNT_LOADS = 3;                         // of a lane, in flight
constexpr int LEAST_LANES = 4;                         // that count a segment together
static_assert(RANGES < THREADS, "a range is a thread's, and one more for what is no id");
static_assert(TILE_UNITS < 1 << 16, "place and length of a segment share a word");
static_assert(SLOTS % 4 == 0, "slots are read four at a time");

// Bins a range, the same for every range but the last. At least 2, so that a factor to divide by fits into 32 bits.
__device__ __forceinline__ unsigned range_length(int bins) {
    return max((bins + RANGES) / RANGES, 2);
}

// Divides numbers below 2^31 by `divisor` >= 2: with 2^shift < divisor <= 2^(shift + 1), the factor's excess is below
// divisor / 2^(32 + shift) of it, and does not reach the next whole quotient.
struct Quotient {
    unsigned factor, shift;

    __device__ __forceinline__ explicit Quotient(unsigned divisor) {
        shift = 31 - __clz(divisor - 1);
        factor = ((1ull << (32 + shift)) + divisor - 1) / divisor;
    }

    __device__ __forceinline__ unsigned operator()(unsigned number) const {
        return __umulhi(number, factor) >> shift;
    }
};

// Sixteen bytes, loaded once: L1 need not keep them.
__device__ __forceinline__ uint4 load_once(const uint4* from) {
    uint4 words;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(from));
    return words;
}

// The sum of `value` over the threads of the block before this one. sums: [WARPS]; a barrier must pass between calls.
__device__ __forceinline__ unsigned sum_before(unsigned value, unsigned* sums) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned sum = value;
#pragma unroll
    for (int away = 1; away < 32; away *= 2) {
        const unsigned other = __shfl_up_sync(~0u, sum, away);
        sum += lane >= away ? other : 0;
    }
    if (lane == 31) {
        sums[warp] = sum;
    }
    __syncthreads();
    unsigned before = sum - value;
#pragma unroll
    for (int other = 0; other < WARPS; ++other) {
        before += other < warp ? sums[other] : 0;
    }
    return before;
}

extern "C" __global__ void __launch_bounds__(THREADS)
clear_ranges(int bins, unsigned* counts, unsigned* totals) {  // counts: [bins + 1]; totals: [RANGES]
    const int bin = blockIdx.x * THREADS + threadIdx.x;
    if (bin <= bins) {
        counts[bin] = 0;
    }
    if (bin < RANGES) {
        totals[bin] = 0;
    }
}

// ids: [n]; sorted: [tiles, TILE_UNITS]; segments: [RANGES, tiles], each first unit * 2^16 + units; totals:
// [RANGES], of units, all 0
extern "C" __global__ void __launch_bounds__(THREADS, 2)
sort_ranges(const int* ids, long long n, int bins, uint4* sorted, unsigned* segments, unsigned* totals) {
    __shared__ uint4 stage[TILE_UNITS];
    __shared__ uint4 slots[(RANGES + 1) * SLOTS / 4];  // counts, then places; behind the last range's those of no id
    __shared__ unsigned sums[WARPS];
    __shared__ unsigned units_used;
    unsigned short* const staged = reinterpret_cast<unsigned short*>(stage);
    unsigned* const slot = reinterpret_cast<unsigned*>(slots) + threadIdx.x % SLOTS;
    const int tiles = (n + TILE - 1) / TILE;
    const unsigned outside = bins, length = range_length(bins);
    const unsigned nothing = RANGES * length;  // in place of an id behind the last
    const Quotient range_of(length);
    const unsigned own = threadIdx.x;  // the range that is this thread's
    unsigned total = 0;

    uint4 four[LOADS];
    // Each of the thread's ids, and where it stands behind the thread's first.
    const auto each = [&](auto&& use) {
#pragma unroll
        for (int u = 0; u < LOADS; ++u) {
            const int place = 4 * THREADS * u;
            use(four[u].x, place), use(four[u].y, place + 1), use(four[u].z, place + 2), use(four[u].w, place + 3);
        }
    };
    // How many ids of a tile there are from the thread's first on; none or fewer than none behind the last.
    const auto left = [&](int tile) {
        return (int)min(n - (long long)tile * TILE, (long long)TILE) - 4 * (int)threadIdx.x;
    };
    const auto load = [&](int tile) {
        const int* const from = ids + (long long)tile * TILE + 4 * threadIdx.x;
        if ((tile + 1LL) * TILE <= n) {
#pragma unroll
            for (int u = 0; u < LOADS; ++u) {
                four[u] = load_once(reinterpret_cast<const uint4*>(from) + u * THREADS);
            }
        } else if (tile < tiles) {
            const int there = left(tile);
            each([&](unsigned& id, int place) { id = place < there ? from[place] : 0; });
        }
    };

    load(blockIdx.x);
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        for (int i = threadIdx.x; i < (RANGES + 1) * SLOTS / 4; i += THREADS) {
            slots[i] = {0, 0, 0, 0};
        }
        __syncthreads();  // the tile before has left the stage, too
        each([&](unsigned& id, int) { id = min(id, outside); });
        if ((tile + 1LL) * TILE > n) {
            const int there = left(tile);
            each([&](unsigned& id, int place) { id = place < there ? id : nothing; });
        }
        each([&](unsigned& id, int) { atomicAdd(slot + range_of(id) * SLOTS, 1u); });
        __syncthreads();

        unsigned found = 0;
        if (own <= RANGES) {
#pragma unroll
            for (int s = 0; s < SLOTS / 4; ++s) {
                const uint4 many = slots[own * SLOTS / 4 + s];
                found += many.x + many.y + many.z + many.w;
            }
        }
        const unsigned units = (found + UNIT - 1) / UNIT;
        const unsigned first = sum_before(units, sums);
        if (own <= RANGES) {
            unsigned place = first * UNIT;
#pragma unroll
            for (int s = 0; s < SLOTS / 4; ++s) {
                const uint4 many = slots[own * SLOTS / 4 + s];
                const unsigned second = place + many.x, third = second + many.y, fourth = third + many.z;
                slots[own * SLOTS / 4 + s] = {place, second, third, fourth};
                place = fourth + many.w;
            }
            if (own < RANGES) {
                for (; place < (first + units) * UNIT; ++place) {
                    staged[place] = length;  // fills up the last unit: a counter that is no bin's
                }
                segments[own * tiles + tile] = first << 16 | units;
                total += units;
            } else {
                units_used = first;
            }
        }
        __syncthreads();

#pragma unroll
        for (int u = 0; u < LOADS; ++u) {
            unsigned id[4] = {four[u].x, four[u].y, four[u].z, four[u].w}, place[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                asm volatile("" : "+r"(id[i]));  // its range is found anew: all 32 kept would fill the registers
                const unsigned range = range_of(id[i]);
                place[i] = atomicAdd(slot + range * SLOTS, 1u);
                id[i] -= range * length;
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                staged[place[i]] = id[i];
            }
        }
        load(tile + gridDim.x);  // on its way while this tile is written
        __syncthreads();
        for (unsigned unit = threadIdx.x; unit < units_used; unit += THREADS) {
            sorted[(long long)tile * TILE_UNITS + unit] = stage[unit];
        }
    }
    if (own < RANGES && total) {
        atomicAdd(&totals[own], total);
    }
}

// Arrays as in sort_ranges; counts: [bins + 1], all 0
extern "C" __global__ void __launch_bounds__(THREADS, 2)
histogram_ranges(
    const uint4* sorted, const unsigned* segments, const unsigned* totals, long long n, int bins, unsigned* counts
) {
    extern __shared__ unsigned own[];  // [range + 1]
    __shared__ unsigned sums[2][WARPS];
    __shared__ unsigned all_units, all_items;
    __shared__ unsigned chosen_range, chosen_part, chosen_parts, chosen_lanes;
    const int tiles = (n + TILE - 1) / TILE;
    const unsigned length = range_length(bins);

    // As many blocks for a range as its share of the ids asks for. Thread r answers for range r.
    const unsigned total = threadIdx.x < RANGES ? totals[threadIdx.x] : 0;
    const unsigned total_before = sum_before(total, sums[0]);
    if (threadIdx.x == THREADS - 1) {
        all_units = total_before;
    }
    __syncthreads();
    // An eighth more than a block's share is a block's still: ranges of equal shares shall not be cut.
    const unsigned share = ((unsigned long long)total * gridDim.x + all_units - all_units / 8 - 1) / all_units;
    const unsigned parts = total ? min(max(share, 1u), (unsigned)tiles) : 0;
    const unsigned before = sum_before(parts, sums[1]);
    if (threadIdx.x == THREADS - 1) {
        all_items = before;
    }
    __syncthreads();

    for (unsigned item = blockIdx.x; item < all_items; item += gridDim.x) {
        if (before <= item && item < before + parts) {
            unsigned lanes = LEAST_LANES;
            while (lanes < THREADS && (unsigned long long)COUNT_LOADS * lanes * tiles < total) {
                lanes *= 2;
            }
            chosen_range = threadIdx.x, chosen_part = item - before, chosen_parts = parts, chosen_lanes = lanes;
        }
        for (unsigned bin = threadIdx.x; bin <= length; bin += THREADS) {
            own[bin] = 0;
        }
        __syncthreads();
        const unsigned range = chosen_range, part = chosen_part, many = chosen_parts, lanes = chosen_lanes;

        const auto count = [&](unsigned two) {
            atomicAdd(&own[two & 0xffff], 1u);
            atomicAdd(&own[two >> 16], 1u);
        };
        const unsigned lane = threadIdx.x & (lanes - 1), step = THREADS / lanes;
        const unsigned end = (unsigned long long)tiles * (part + 1) / many;
        unsigned tile = (unsigned long long)tiles * part / many + threadIdx.x / lanes;
        unsigned next = tile < end ? segments[range * tiles + tile] : 0;
        while (tile < end) {
            const uint4* const segment = sorted + (long long)tile * TILE_UNITS + (next >> 16);
            const unsigned units = next & 0xffff;
            tile += step;
            next = tile < end ? segments[range * tiles + tile] : 0;  // on its way while this segment is counted
            for (unsigned unit = lane; unit < units; unit += COUNT_LOADS * lanes) {
                uint4 eight[COUNT_LOADS];
#pragma unroll
                for (int u = 0; u < COUNT_LOADS; ++u) {
                    if (unit + u * lanes < units) {
                        eight[u] = load_once(segment + unit + u * lanes);
                    }
                }
#pragma unroll
                for (int u = 0; u < COUNT_LOADS; ++u) {
                    if (unit + u * lanes < units) {
                        count(eight[u].x), count(eight[u].y), count(eight[u].z), count(eight[u].w);
                    }
                }
            }
        }
        __syncthreads();

        // Blocks that share a range add from different places on: they would meet in the same lines of the cache.
        const unsigned turn = (unsigned long long)length * part / many;
        for (unsigned i = threadIdx.x; i < length; i += THREADS) {
            const unsigned bin = i + turn < length ? i + turn : i + turn - length;
            if (range * length + bin > (unsigned)bins) {
                continue;
            }
            unsigned* const place = &counts[range * length + bin];
            if (many == 1) {
                *place = own[bin];
            } else if (own[bin]) {
                atomicAdd(place, own[bin]);
            }
        }
        __syncthreads();  // before the counters are cleared again
    }
}
