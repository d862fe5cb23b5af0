// Runs a Hopper kernel's .cu on the CPU: all blocks at once, each thread a fiber, the copy engine and the tensor cores
// as slow or as fast as the programming model allows.
//
// What compute-sanitizer cannot see, it sees: a tile that TMA overwrites while wgmma still reads it, a phase that ends
// too early, an arrival too few, a block that leaves while its neighbour writes to it. The functions of kernels/common
// are replaced by a model of what PTX promises of them, and of nothing more:
//
//   - a TMA load writes its box at some time before its bytes are counted; until then the box holds NaN;
//   - a wgmma of a warpgroup reads shared memory and writes the sums at some time between the moment all 128 threads have
//     issued it and the moment the first of them has waited for it (one operation, as in CUTLASS's pipelines, where one
//     thread of a warpgroup releases a stage for all);
//   - a TMA store reads shared memory at some time before `wait_group.read`, and sees what threads stored there only
//     after shared_fence;
//   - a launch that may begin early waits, in the thread that loads, for the kernel before it on the stream;
//   - threads run in any order between the points where they wait for one another.
//
// A seed chooses among these times and orders. Three are fixed: 0 is as late as allowed, lowest thread first; 1 as
// early as allowed, highest thread first; 2 as late as allowed, highest thread first. Results are compared by the
// caller; `problem` says what else went wrong.
#pragma once
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cuda_numbers.hpp"

#define __global__
#define __device__
#define __constant__ static const
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

struct Index3 {
    unsigned x = 0, y = 0, z = 0;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}

inline Index3 threadIdx, blockIdx, blockDim, gridDim;

using Barrier = unsigned long long;
using Descriptor = unsigned long long;
using Word = unsigned;

struct bf16 {
    unsigned short bits;
};
struct fp16 {
    unsigned short bits;
};
struct e4m3 {
    unsigned char bits;
};
template <class One, class Other>
constexpr bool SAME = std::is_same_v<One, Other>;

inline float widen(bf16 x) {
    const uint32_t bits = uint32_t(x.bits) << 16;
    float wide;
    memcpy(&wide, &bits, 4);
    return wide;
}
inline short widen(signed char x) {
    return x;
}
inline short widen(unsigned char x) {
    return x;
}
inline bf16 narrow(float x) {  // of NaN and of numbers that bf16 holds exactly, as the caller draws them
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return {static_cast<unsigned short>(bits >> 16)};
}
inline float widen(fp16 x) {
    const int exponent = x.bits >> 10 & 31, fraction = x.bits & 1023;
    const float size = exponent == 31 ? (fraction ? NAN : INFINITY)
                       : exponent     ? ldexpf(1024 + fraction, exponent - 25)
                                      : ldexpf(fraction, -24);
    return x.bits >> 15 ? -size : size;
}
inline float widen(e4m3 x) {
    static const std::vector<float> values = [] {
        std::vector<float> all(256);
        for (int bits = 0; bits < 256; ++bits) {
            const int exponent = bits >> 3 & 15, fraction = bits & 7;
            const float size = exponent ? ldexpf(8 + fraction, exponent - 10) : ldexpf(fraction, -9);
            all[bits] = (bits & 127) == 127 ? NAN : bits >> 7 ? -size : size;
        }
        return all;
    }();
    return values[x.bits];
}
inline fp16 to_half(float x) {  // of finite numbers, to nearest even
    int exponent = 0;
    frexpf(x, &exponent);
    const int unit = max(exponent, -13) - 11;
    const int whole = static_cast<int>(nearbyintf(ldexpf(fabsf(x), -unit)));  // 2048 carries into the exponent
    const int bits = whole + (whole < 1024 ? 0 : (unit + 24) * 1024);
    return {static_cast<unsigned short>((signbit(x) ? 0x8000 : 0) | (bits > 0x7C00 ? 0x7C00 : bits))};
}

// A matrix for TMA, as gemmrepro.registry.TensorMap describes it, with the matrix itself; its elements have `size` bytes.
struct TensorMap {
    unsigned char* data = nullptr;
    int size = 0, rows = 0, columns = 0, box_rows = 0, box_columns = 0, swizzle = 0;
    TensorMap() = default;
    template <class Element>
    TensorMap(Element* matrix, int rows, int columns, int box_rows, int box_columns, int swizzle)
        : data(reinterpret_cast<unsigned char*>(matrix)), size(sizeof(Element)), rows(rows), columns(columns),
          box_rows(box_rows), box_columns(box_columns), swizzle(swizzle) {}
    int bytes() const {
        return box_rows * box_columns * size;
    }
};

namespace hopper_grid {

constexpr int MOST_SHARED = 227 * 1024;
using Event = std::function<void()>;

struct BarrierState {
    int arrivals = 0, pending = 0, bytes = 0;
    unsigned phase = 0;
};

enum class Wait { none, barrier, warp, block, cluster, group, products };

struct Block;

struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    Block* block = nullptr;
    unsigned thread = 0;
    bool done = false;
    Wait wait = Wait::none;
    BarrierState* barrier = nullptr;
    unsigned parity = 0;
    int group = 0;  // of a named barrier
    std::deque<unsigned> products{0};  // wgmma: how many in each closed group, oldest first, and in the open one
    unsigned issued = 0, awaited = 0;  // wgmma that it issued, and how many of them it waits for
    std::deque<std::vector<Event>> stores{1};    // TMA stores, likewise
    std::vector<Event> words;  // cp.async: its copies that no arrival follows yet
    std::vector<std::pair<unsigned, unsigned>> unfenced;  // shared memory that the copy engine may not see yet
    bool waited = false;  // for the kernel before on the stream
};

struct Product {  // a wgmma of a warpgroup, by what it does for each thread that has issued it
    std::vector<Event> parts;
    bool made = false;
};

struct Block {
    unsigned index = 0, rank = 0, cluster = 0;
    unsigned char* shared = nullptr;
    std::map<unsigned, BarrierState> barriers;  // by offset in shared memory
    std::map<int, unsigned> statics;            // offset of a __shared__ variable, by the line that declares it
    unsigned next_static = 0;
    std::vector<Fiber*> fibers;
    unsigned exchanged[1024];
    std::map<unsigned, std::deque<Product>> products;  // by warpgroup, in the order of issue

    bool left() const {
        return std::all_of(fibers.begin(), fibers.end(), [](const Fiber* fiber) { return fiber->done; });
    }
};

inline ucontext_t scheduler;
inline Fiber* running = nullptr;
inline std::function<void()> body;
inline std::vector<Block> blocks;
inline std::vector<Event> copies;  // TMA loads under way
inline std::mt19937 random_engine;
inline int seed = 0, cluster_size = 1;
inline bool early_launch = false;  // whether the kernel before on the stream may still run: loads must wait for it
inline unsigned starved = 0;  // the warpgroup whose products are made last; none if there is no such warpgroup
inline std::string problem;
inline unsigned sleeps = 0;  // of all threads since the program began
inline unsigned dynamic_bytes = 0;  // of a kernel that declares shared memory beside them
inline unsigned grid_width = 1, first_block = 0;  // of the blocks that run: columns of their grid, and the first's number

inline void report(const std::string& what) {
    if (problem.empty()) {
        problem = what + " (block " + std::to_string(running ? running->block->index : 0) + ", thread " +
                  std::to_string(running ? running->thread : 0) + ", seed " + std::to_string(seed) + ")";
    }
}

inline bool chance(int of) {
    return random_engine() % of == 0;
}
inline bool early() {
    return seed == 1 || (seed > 2 && chance(3));
}

inline void suspend() {
    swapcontext(&running->context, &scheduler);
}

// Let others go first, now and then.
inline void perhaps_yield() {
    if (seed > 2 && chance(8)) {
        suspend();
    }
}

inline void run_body() {
    body();
    if (running->products.size() > 1 || running->products.back() > 0) {
        report("a thread left while its wgmma still ran");
    }
    for (const auto& group : running->stores) {
        if (!group.empty()) {
            report("a thread left while its TMA stores still read shared memory");
        }
    }
    running->done = true;
    swapcontext(&running->context, &scheduler);
}

inline bool made(const Fiber& fiber, unsigned count) {
    return count == 0 || fiber.block->products[fiber.thread / 128][count - 1].made;
}

inline bool ready(const Fiber& fiber) {
    return !fiber.done &&
           (fiber.wait == Wait::none || (fiber.wait == Wait::barrier && (fiber.barrier->phase & 1) != fiber.parity) ||
            (fiber.wait == Wait::products && made(fiber, fiber.awaited)));
}

// Lets go whoever waits for others that have all come.
inline void open_meetings() {
    std::map<unsigned, std::vector<Fiber*>> clusters;
    for (Block& block : blocks) {
        std::map<int, std::vector<Fiber*>> groups;
        bool all = true;
        for (size_t warp = 0; warp < block.fibers.size(); warp += 32) {
            bool complete = true;
            for (size_t lane = warp; lane < warp + 32; ++lane) {
                const Fiber& fiber = *block.fibers[lane];
                complete = complete && (fiber.done || fiber.wait == Wait::warp);
            }
            for (size_t lane = warp; lane < warp + 32; ++lane) {
                Fiber& fiber = *block.fibers[lane];
                if (complete && fiber.wait == Wait::warp) {
                    fiber.wait = Wait::none;
                }
                all = all && (fiber.done || fiber.wait == Wait::block);
                if (fiber.wait == Wait::group) {
                    groups[fiber.group].push_back(&fiber);
                }
                clusters[block.cluster].push_back(&fiber);
            }
        }
        for (Fiber* fiber : block.fibers) {
            if (all && fiber->wait == Wait::block) {
                fiber->wait = Wait::none;
            }
        }
        for (auto& [id, members] : groups) {
            for (Fiber* fiber : members) {
                if (members.size() == 128) {
                    fiber->wait = Wait::none;
                }
            }
        }
    }
    for (auto& [cluster, members] : clusters) {
        const bool all = std::all_of(members.begin(), members.end(),
                                     [](const Fiber* fiber) { return fiber->wait == Wait::cluster; });
        for (Fiber* fiber : members) {
            if (all) {
                fiber->wait = Wait::none;
            }
        }
    }
}

inline void run_copy(size_t which) {
    const Event copy = copies[which];
    copies.erase(copies.begin() + which);
    copy();
}

// Makes the next product of a warpgroup. False if it has none that all its threads have issued.
inline bool run_product(std::deque<Product>& products) {
    const auto next = std::find_if(products.begin(), products.end(), [](const Product& it) { return !it.made; });
    if (next == products.end() || next->parts.size() < 128) {
        return false;
    }
    for (const Event& part : next->parts) {
        part();
    }
    next->made = true;
    next->parts.clear();
    return true;
}

// Lets the copy engine or the tensor cores do something: a copy if `copy_first` and there is one; a product of the
// starved warpgroup only if no thread can run. False if there is nothing to do.
inline bool run_engines(bool copy_first, bool idle) {
    if (copy_first && !copies.empty()) {
        run_copy(seed > 2 ? random_engine() % copies.size() : 0);
        return true;
    }
    std::vector<std::deque<Product>*> queues, last;
    for (Block& block : blocks) {
        for (auto& [warpgroup, products] : block.products) {
            (warpgroup == starved ? last : queues).push_back(&products);
        }
    }
    if (seed > 2) {
        std::shuffle(queues.begin(), queues.end(), random_engine);
    }
    const auto run_one = [](const auto& of) {
        return std::any_of(of.begin(), of.end(), [](auto* products) { return run_product(*products); });
    };
    if (run_one(queues)) {
        return true;
    }
    if (!copies.empty()) {
        run_copy(0);
        return true;
    }
    return idle && run_one(last);
}

// Runs `kernel_call`, which calls the kernel with its arguments, for every thread of every block. `problem` is empty if
// all threads came to an end and no rule was broken.
inline void run_blocks(unsigned count, unsigned threads, unsigned cluster, const std::function<void()>& kernel_call,
                       int with_seed) {
    blockDim = {threads, 1, 1}, body = kernel_call;
    seed = with_seed, cluster_size = cluster, problem.clear(), copies.clear(), random_engine.seed(seed);
    static std::vector<unsigned char> memory;
    static std::deque<Fiber> fibers;
    memory.assign(size_t(count + 1) * (MOST_SHARED + 1024) + 1024, 0xFF);
    auto* base = reinterpret_cast<unsigned char*>((reinterpret_cast<uintptr_t>(memory.data()) + 1023) & ~uintptr_t(1023));
    blocks.assign(count, {});
    fibers.clear();
    for (unsigned b = 0; b < count; ++b) {
        blocks[b].index = b, blocks[b].rank = b % cluster, blocks[b].cluster = b / cluster;
        blocks[b].shared = base + size_t(b) * (MOST_SHARED + 1024), blocks[b].next_static = dynamic_bytes;
        for (unsigned t = 0; t < threads; ++t) {
            Fiber& fiber = fibers.emplace_back();
            fiber.block = &blocks[b], fiber.thread = t;
            fiber.stack.resize(1 << 15);
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack.data();
            fiber.context.uc_stack.ss_size = fiber.stack.size();
            makecontext(&fiber.context, run_body, 0);
            blocks[b].fibers.push_back(&fiber);
        }
    }
    std::vector<Fiber*> order;
    for (Fiber& fiber : fibers) {
        order.push_back(&fiber);
    }
    if (seed == 1 || seed == 2) {
        std::reverse(order.begin(), order.end());
    }
    // A warp runs in one pass of so many; some warps are slow for a while, and some clusters for good.
    std::vector<int> slow_warps(order.size() / 32 + 1, 1), slow_clusters(count / cluster, 1);
    const unsigned while_slow = chance(2) ? 32 : 512;
    const int engines = std::array{16, 64, 1024}[random_engine() % 3];  // how seldom they overtake threads
    starved = seed == 2 ? 0 : seed > 2 ? random_engine() % 4 : ~0u;
    for (int& passes : slow_clusters) {
        passes = chance(3) ? 20 : 1;
    }
    for (unsigned pass = 0; problem.empty(); ++pass) {
        bool ran = false, left = false;
        if (seed > 2) {
            for (int& passes : slow_warps) {
                if (pass % while_slow == 0) {
                    passes = std::array{1, 1, 2, 6, 40}[random_engine() % 5];
                }
            }
            // Whole warps change places, and sometimes single threads do.
            std::rotate(order.begin(), order.begin() + 32 * (random_engine() % (order.size() / 32)), order.end());
            if (chance(4)) {
                std::shuffle(order.begin(), order.end(), random_engine);
            }
        }
        for (Fiber* fiber : order) {
            const int passes = slow_warps[(fiber->block->index * threads + fiber->thread) / 32] *
                               slow_clusters[fiber->block->cluster];
            if (ready(*fiber) && (seed <= 2 || chance(passes))) {
                fiber->wait = Wait::none;
                running = fiber;
                threadIdx = {fiber->thread, 0, 0};
                const unsigned number = first_block + fiber->block->index;
                blockIdx = {number % grid_width, number / grid_width, 0};
                swapcontext(&scheduler, &fiber->context);
                ran = true;
                if (!problem.empty()) {
                    return;
                }
            }
            left = left || !fiber->done;
            if (seed > 2 && ran && chance(engines)) {
                run_engines(chance(2), false);
            }
        }
        open_meetings();
        const bool any = std::any_of(order.begin(), order.end(), [](const Fiber* fiber) { return ready(*fiber); });
        if (!left) {
            break;
        }
        if (!ran && !any) {
            if (!run_engines(seed == 0 || (seed > 2 && chance(2)), true)) {
                std::map<std::string, int> where;
                const char* names[] = {"-", "an mbarrier", "the warp", "the block", "the cluster", "a named barrier", "a wgmma"};
                for (const Fiber* fiber : order) {
                    if (!fiber->done) {
                        ++where[names[int(fiber->wait)]];
                    }
                }
                running = nullptr;
                std::string text = "deadlock:";
                for (const auto& [name, number] : where) {
                    text += " " + std::to_string(number) + " threads wait for " + name + ";";
                }
                report(text);
                return;
            }
        }
    }
    if (problem.empty() && !copies.empty()) {
        running = nullptr;
        report("a TMA load was still under way when all blocks had left");
    }
}

inline void launch(unsigned grid_x, unsigned grid_y, unsigned threads, unsigned cluster,
                   const std::function<void()>& kernel_call, int with_seed) {
    gridDim = {grid_x, grid_y, 1}, grid_width = grid_x, first_block = 0;
    run_blocks(grid_x * grid_y, threads, cluster, kernel_call, with_seed);
}

// Blocks, or clusters, that do not wait for one another, one after the other: a grid of many needs no more memory than one.
inline void launch_in_turn(unsigned grid_x, unsigned grid_y, unsigned threads, const std::function<void()>& kernel_call,
                           int with_seed, unsigned cluster = 1) {
    gridDim = {grid_x, grid_y, 1}, grid_width = grid_x;
    for (first_block = 0; first_block < grid_x * grid_y && (first_block == 0 || problem.empty()); first_block += cluster) {
        run_blocks(cluster, threads, cluster, kernel_call, with_seed);
    }
}

inline unsigned offset_of(const void* pointer, const Block& block) {
    return static_cast<const unsigned char*>(pointer) - block.shared;
}

inline BarrierState& state_of(const Block& block, unsigned offset) {
    auto& barriers = const_cast<Block&>(block).barriers;
    if (!barriers.count(offset)) {
        report("a barrier is used that was not initialised");
    }
    return barriers[offset];
}

inline void settle(BarrierState& state) {
    if (state.pending < 0) {
        report("more arrivals than the barrier's count");
    }
    if (state.pending == 0 && state.bytes == 0) {
        ++state.phase;
        state.pending = state.arrivals;
    }
}

// The shared memory of this block that the variable declared on `line` takes.
template <class Type>
Type& allot(int line, unsigned alignment) {
    Block& block = *running->block;
    if (!block.statics.count(line)) {
        block.next_static = (block.next_static + alignment - 1) / alignment * alignment;
        block.statics[line] = block.next_static;
        block.next_static += sizeof(Type);
    }
    return *reinterpret_cast<Type*>(block.shared + block.statics[line]);
}

// Every source calls it so.
#define shared_bytes hopper_grid::dynamic_shared()
inline unsigned char* dynamic_shared() {
    return running->block->shared;
}

inline void meet(Wait wait, int group = 0) {
    running->wait = wait, running->group = group;
    suspend();
}

// The 128-byte swizzle of TMA and wgmma adds address bits 7 to 9 to bits 4 to 6 without carry, the 64-byte one of TMA bits 7
// and 8 to bits 4 and 5.
inline unsigned swizzled(unsigned offset, int swizzle) {
    return offset ^ (offset >> 7 & (swizzle == 128 ? 7 : swizzle == 64 ? 3 : 0)) << 4;
}

// For each 16 bytes of a box whose corner is (row, column): `each` gets where they lie in the matrix, the offset in shared
// memory, and how many of them are inside the matrix.
template <class Each>
void for_chunks(const TensorMap& map, unsigned at, int column, int row, const Each& each) {
    const int step = 16 / map.size;
    if (map.box_columns % step || at % 16) {
        report("a box's row, or its place in shared memory, is no multiple of 16 bytes");
        return;
    }
    for (int r = 0; r < map.box_rows; ++r) {
        for (int c = 0; c < map.box_columns; c += step) {
            const bool inside = row + r >= 0 && row + r < map.rows && column + c >= 0;
            const int count = inside ? max(0, min(step, map.columns - column - c)) : 0;
            unsigned char* const matrix = map.data + (size_t(row + r) * map.columns + column + c) * map.size;
            each(matrix, swizzled(at + (r * map.box_columns + c) * map.size, map.swizzle), count * map.size);
        }
    }
}

inline void load_box(Block& block, unsigned to, const TensorMap& map, int column, int row) {
    for_chunks(map, to, column, row, [&](const unsigned char* matrix, unsigned at, int inside) {
        memset(block.shared + at, 0, 16);
        memcpy(block.shared + at, matrix, inside);
    });
}

inline void start_load(void* to, const TensorMap& map, Barrier* barrier, int column, int row, int mask) {
    const unsigned place = offset_of(to, *running->block), at = offset_of(barrier, *running->block);
    const int bytes = map.bytes();
    const unsigned first = running->block->index - running->block->rank;
    if (early_launch && !running->waited) {
        report("a load does not wait for the kernel before on the stream");
        return;
    }
    for (int rank = 0; rank < cluster_size; ++rank) {
        if (!(mask >> rank & 1)) {
            continue;
        }
        Block& block = blocks[first + rank];
        if (block.left()) {
            report("a TMA load goes to a block that has left");
            return;
        }
        memset(block.shared + place, 0xFF, bytes);
        const Event copy = [=, &block] {
            if (block.left()) {
                report("TMA writes to a block that has left");
                return;
            }
            load_box(block, place, map, column, row);
            BarrierState& state = state_of(block, at);
            state.bytes -= bytes;
            settle(state);
        };
        copies.push_back(copy);
        if (early()) {
            run_copy(copies.size() - 1);
        }
    }
    perhaps_yield();
}

inline void finish_groups(std::deque<std::vector<Event>>& groups, size_t open) {
    for (; groups.size() > open + 1; groups.pop_front()) {
        for (auto& event : groups.front()) {
            event();
        }
    }
}

// 32 bytes of a row of a swizzled tile.
template <class Element, class Value, int K>
void read_row(Value (&values)[K], const unsigned char* shared, Descriptor tile, int row) {
    Element elements[K];
    const unsigned at = static_cast<unsigned>(tile & 0x3FFFF) * 16 + row * 128;
    for (int chunk = 0; chunk < 32; chunk += 16) {
        memcpy(reinterpret_cast<unsigned char*>(elements) + chunk, shared + swizzled(at + chunk, 128), 16);
    }
    for (int k = 0; k < K; ++k) {
        values[k] = widen(elements[k]);
    }
}

// Bits of a sum of products of e4m3 below its largest term that a wgmma keeps; 0: all of them.
#ifndef KEPT_BITS
#define KEPT_BITS 0
#endif

// The sum of `sum` and the products of K elements, each cut off KEPT_BITS below the largest of them.
template <int K>
float aligned_sum(float sum, const float (&a)[K], const float (&b)[K]) {
    float largest = fabsf(sum);
    for (int k = 0; k < K; ++k) {
        largest = max(largest, fabsf(a[k] * b[k]));
    }
    if (largest == 0) {
        return 0;
    }
    const float unit = ldexpf(1, ilogbf(largest) - KEPT_BITS);
    float whole = truncf(sum / unit);
    for (int k = 0; k < K; ++k) {
        whole += truncf(a[k] * b[k] / unit);
    }
    return whole * unit;
}

// One thread's part of a wgmma of 64 x N by 32 bytes of k. Sums of integers wrap.
template <int N, class Element, class Sum>
void multiply(Sum* d, const unsigned char* shared, Descriptor a, Descriptor b, bool add, unsigned thread) {
    constexpr int K = 32 / sizeof(Element);
    using Value = decltype(widen(Element{}));
    using Wrapping = std::conditional_t<std::is_same_v<Sum, int>, unsigned, Sum>;
    const int warp = thread / 32 % 4, lane = thread % 32;
    Value of_a[2][K], of_b[K];
    for (int half = 0; half < 2; ++half) {
        read_row<Element>(of_a[half], shared, a, 16 * warp + lane / 4 + 8 * half);
    }
    for (int j = 0; j < N / 8; ++j) {
        for (int i = 0; i < 2; ++i) {
            read_row<Element>(of_b, shared, b, 8 * j + lane % 4 * 2 + i);
            for (int half = 0; half < 2; ++half) {
                Sum& sum = d[4 * j + 2 * half + i];
                if constexpr (SAME<Element, e4m3> && KEPT_BITS > 0) {
                    sum = aligned_sum(add ? sum : 0, of_a[half], of_b);
                    continue;
                }
                Sum product = 0;
                for (int k = 0; k < K; ++k) {
                    product += of_a[half][k] * of_b[k];
                }
                sum = add ? static_cast<Sum>(Wrapping(sum) + Wrapping(product)) : product;
            }
        }
    }
}

}  // namespace hopper_grid

// Threads of a warp, of a block, of a cluster.
inline void __syncthreads() {
    hopper_grid::meet(hopper_grid::Wait::block);
}
inline void __syncwarp() {
    hopper_grid::meet(hopper_grid::Wait::warp);
}
inline void cluster_sync() {
    hopper_grid::meet(hopper_grid::Wait::cluster);
}
inline void named_barrier(int id, int threads) {
    if (threads != 128) {
        hopper_grid::report("the model knows named barriers of one warpgroup only");
    }
    hopper_grid::meet(hopper_grid::Wait::group, id);
}
inline int cluster_rank() {
    return hopper_grid::running->block->rank;
}
inline int __shfl_sync(unsigned, int value, int lane) {
    auto& shown = hopper_grid::running->block->exchanged;
    shown[threadIdx.x] = value;
    __syncwarp();
    const int other = shown[threadIdx.x / 32 * 32 + lane];
    __syncwarp();
    return other;
}
template <class Value>
Value __shfl_xor_sync(unsigned, Value value, int other_lane) {
    int words[sizeof(Value) / sizeof(int)];
    memcpy(words, &value, sizeof value);
    for (int& word : words) {
        word = __shfl_sync(~0u, word, threadIdx.x % 32 ^ other_lane);
    }
    memcpy(&value, words, sizeof value);
    return value;
}

// Global memory: one address space, and stores are seen at once.
inline unsigned atomicAdd(unsigned* counter, unsigned value) {
    hopper_grid::perhaps_yield();
    const unsigned before = *counter;
    *counter += value;
    return before;
}
inline int atomicMax(int* most, int value) {
    const int before = *most;
    *most = max(before, value);
    return before;
}
inline unsigned atomicInc(unsigned* counter, unsigned most) {
    const unsigned before = *counter;
    *counter = before >= most ? 0 : before + 1;
    return before;
}
inline void __threadfence() {}
inline void __nanosleep(unsigned) {
    ++hopper_grid::sleeps;
    hopper_grid::suspend();
}
template <class Value>
void __stcg(Value* to, const Value& value) {
    *to = value;
}
template <class Value>
Value __ldcg(const Value* from) {
    return *from;
}
inline void release_flag(unsigned* flag, unsigned value) {
    hopper_grid::perhaps_yield();
    *flag = value;
}
inline unsigned acquire_flag(const unsigned* flag) {
    hopper_grid::suspend();
    return *flag;
}

// common/element.cuh
template <class Element>
Word pack(float low, float high) {
    if (SAME<Element, fp16>) {
        return to_half(low).bits | Word(to_half(high).bits) << 16;
    }
    return narrow(low).bits | Word(narrow(high).bits) << 16;
}

// common/mbarrier.cuh
inline unsigned shared_address(const void* pointer) {
    return hopper_grid::offset_of(pointer, *hopper_grid::running->block);
}
inline void barrier_init(Barrier* barrier, int arrivals) {
    hopper_grid::running->block->barriers[shared_address(barrier)] = {arrivals, arrivals, 0, 0};
}
inline void barrier_init_fence() {}
inline void barrier_expect(Barrier* barrier, int bytes) {
    auto& state = hopper_grid::state_of(*hopper_grid::running->block, shared_address(barrier));
    state.bytes += bytes, --state.pending;
    hopper_grid::settle(state);
}
inline void barrier_arrive(Barrier* barrier) {
    hopper_grid::perhaps_yield();
    auto& state = hopper_grid::state_of(*hopper_grid::running->block, shared_address(barrier));
    --state.pending;
    hopper_grid::settle(state);
}
inline void barrier_arrive_at(Barrier* barrier, int rank) {
    hopper_grid::perhaps_yield();
    const hopper_grid::Block& own = *hopper_grid::running->block;
    hopper_grid::Block& block = hopper_grid::blocks[own.index - own.rank + rank];
    if (block.left()) {
        hopper_grid::report("an arrival at a block that has left");
        return;
    }
    auto& state = hopper_grid::state_of(block, shared_address(barrier));
    --state.pending;
    hopper_grid::settle(state);
}
inline void barrier_wait(Barrier* barrier, int parity) {
    auto& state = hopper_grid::state_of(*hopper_grid::running->block, shared_address(barrier));
    hopper_grid::perhaps_yield();
    if ((state.phase & 1) == unsigned(parity)) {
        hopper_grid::running->barrier = &state, hopper_grid::running->parity = parity;
        hopper_grid::meet(hopper_grid::Wait::barrier);
    }
}
inline void shared_fence() {
    hopper_grid::running->unfenced.clear();
}

// common/cp_async_word.cuh: a word is copied at some time before the arrival that follows it, and is NaN until then.
inline void copy_word(float* to, const float* from, bool wanted) {
    *to = NAN;
    hopper_grid::running->words.push_back([=] { *to = wanted ? *from : 0; });
}
inline void barrier_arrive_copied(Barrier* barrier) {
    using namespace hopper_grid;
    const unsigned at = shared_address(barrier);
    copies.push_back([at, block = running->block, words = std::move(running->words)] {
        for (const Event& word : words) {
            word();
        }
        BarrierState& state = state_of(*block, at);
        --state.pending;
        settle(state);
    });
    running->words.clear();
    if (early()) {
        run_copy(copies.size() - 1);
    }
    perhaps_yield();
}

// common/tma.cuh
inline void tma_prefetch(const TensorMap&) {}
inline void tma_load(void* to, const TensorMap& map, Barrier* barrier, int column, int row) {
    hopper_grid::start_load(to, map, barrier, column, row, 1 << cluster_rank());
}
inline void tma_load_multicast(void* to, const TensorMap& map, Barrier* barrier, int column, int row, int blocks) {
    hopper_grid::start_load(to, map, barrier, column, row, blocks);
}
inline void tma_store(const TensorMap& map, const void* from, int column, int row) {
    using namespace hopper_grid;
    Block& block = *running->block;
    const unsigned at = shared_address(from), end = at + map.bytes();
    for (const Fiber* fiber : block.fibers) {
        for (const auto& [begin, stop] : fiber->unfenced) {
            if (begin < end && stop > at) {
                report("the copy engine stores what no shared_fence made visible");
            }
        }
    }
    const Event store = [=, &block] {
        for_chunks(map, at, column, row, [&](unsigned char* matrix, unsigned from_shared, int inside) {
            memcpy(matrix, block.shared + from_shared, inside);
        });
    };
    if (early()) {
        store();
    } else {
        running->stores.back().push_back(store);
    }
}
inline void tma_store_commit() {
    hopper_grid::running->stores.push_back({});
}
template <int OPEN>
void tma_store_wait_read() {
    hopper_grid::finish_groups(hopper_grid::running->stores, OPEN);
}
template <int OPEN>
void tma_store_wait() {
    hopper_grid::finish_groups(hopper_grid::running->stores, OPEN);
}

// common/wgmma.cuh, wgmma_widths.cuh, wgmma_int8.cuh and wgmma_e4m3.cuh, and hopper/wgmma_200.cuh
constexpr int NEXT_K16 = 32 >> 4, NEXT_K32 = 32 >> 4;
inline Descriptor describe(const void* tile) {
    if (shared_address(tile) % 1024) {
        hopper_grid::report("a swizzled tile does not begin at a multiple of 1024 bytes");
    }
    return (shared_address(tile) & 0x3FFFF) >> 4;
}
inline void wgmma_fence() {}
namespace hopper_grid {
template <int N, class Element, class Sum>
void issue_wgmma(Sum* sums, Descriptor a, Descriptor b, bool add) {
    const unsigned thread = threadIdx.x;
    const unsigned char* shared = running->block->shared;
    ++running->products.back();
    auto& products = running->block->products[thread / 128];
    products.resize(max<size_t>(products.size(), ++running->issued));
    auto& parts = products[running->issued - 1].parts;
    parts.push_back([=] { multiply<N, Element>(sums, shared, a, b, add, thread); });
    if (seed == 1) {
        run_product(products);
    }
}
}  // namespace hopper_grid

template <int N, class Element>
void wgmma(float (&d)[N / 2], Descriptor a, Descriptor b, bool add) {
    hopper_grid::issue_wgmma<N, Element>(d, a, b, add);
}
template <int N, class Element>
void wgmma_of_width(float (&d)[N / 2], Descriptor a, Descriptor b, bool add) {
    hopper_grid::issue_wgmma<N, Element>(d, a, b, add);
}
template <int N, class Element>
void wgmma_of_form(float (&d)[N / 2], Descriptor a, Descriptor b, bool add) {
    hopper_grid::issue_wgmma<N, Element>(d, a, b, add);
}
template <int N>
void wgmma_any(float (&d)[N / 2], Descriptor a, Descriptor b, bool add) {
    hopper_grid::issue_wgmma<N, bf16>(d, a, b, add);
}
template <int N, class Element>
void wgmma_int8(int (&d)[N / 2], Descriptor a, Descriptor b, bool add) {
    hopper_grid::issue_wgmma<N, Element>(d, a, b, add);
}
template <int N>
void wgmma_e4m3(float (&d)[N / 2], Descriptor a, Descriptor b, bool add) {
    hopper_grid::issue_wgmma<N, e4m3>(d, a, b, add);
}
inline void wgmma_commit() {
    hopper_grid::running->products.push_back(0);
    __syncwarp();
}
template <int GROUPS>
void wgmma_wait() {
    using namespace hopper_grid;
    auto& groups = running->products;
    for (; groups.size() > GROUPS + 1; groups.pop_front()) {
        running->awaited += groups.front();
    }
    if (!made(*running, running->awaited)) {
        meet(Wait::products);
    }
    perhaps_yield();
}
template <class Sum, int SUMS>
void wgmma_finish(Sum (&)[SUMS]) {
    wgmma_wait<0>();
}
template <int GROUPS, int SUMS>
void wgmma_arrived(float (&)[SUMS]) {
    wgmma_wait<GROUPS>();
}
template <int REGISTERS>
void registers_give() {}
template <int REGISTERS>
void registers_claim() {}

namespace hopper_grid {
// Stores `tiles` tiles of 8 x 8: lane l names the address of row l % 8 of tile l / 8.
template <int TILES>
void store_tiles(unsigned address, const Word (&words)[TILES]) {
    Block& block = *running->block;
    block.exchanged[threadIdx.x] = address;
    __syncwarp();
    const unsigned warp = threadIdx.x / 32 * 32, lane = threadIdx.x % 32;
    for (int tile = 0; tile < TILES; ++tile) {
        const unsigned at = block.exchanged[warp + tile * 8 + lane / 4] + lane % 4 * 4;
        memcpy(block.shared + at, &words[tile], 4);
        running->unfenced.push_back({at, at + 4});
    }
    __syncwarp();
}
}  // namespace hopper_grid

inline void stmatrix(unsigned address, Word one, Word two, Word three, Word four) {
    hopper_grid::store_tiles<4>(address, {one, two, three, four});
}
inline void stmatrix_two(unsigned address, Word one, Word two) {
    hopper_grid::store_tiles<2>(address, {one, two});
}

inline int __ffs(int bits) {
    return __builtin_ffs(bits);
}

// hopper/cluster.cuh
struct Lengths {
    int x, y, z;
};
namespace hopper_grid {
inline Lengths lengths{1, 1, 1};  // of a cluster of several dimensions
}
inline Lengths cluster_lengths() {
    return hopper_grid::lengths;
}
inline Lengths cluster_place() {
    const int x = hopper_grid::lengths.x, y = hopper_grid::lengths.y, rank = cluster_rank();
    return {rank % x, rank / x % y, rank / (x * y)};
}
inline void cluster_meet() {
    cluster_sync();
}
inline bool elect_one() {
    return threadIdx.x % 32 == 0;
}
inline int cluster_number() {
    return hopper_grid::running->block->index / hopper_grid::cluster_size;
}
inline int cluster_count() {
    return hopper_grid::blocks.size() / hopper_grid::cluster_size;
}
inline void store_at(float4* to, int rank, float4 four) {
    hopper_grid::perhaps_yield();
    const hopper_grid::Block& own = *hopper_grid::running->block;
    hopper_grid::Block& block = hopper_grid::blocks[own.index - own.rank + rank];
    if (block.left()) {
        hopper_grid::report("a store to a block that has left");
        return;
    }
    memcpy(block.shared + shared_address(to), &four, sizeof four);
}
inline void stmatrix_turned(unsigned address, Word one, Word two, Word three, Word four) {
    using namespace hopper_grid;
    // Column c of a tile, which eight threads hold, becomes the row whose address lane c names.
    const Word words[4] = {one, two, three, four};
    Block& block = *running->block;
    block.exchanged[threadIdx.x] = address;
    __syncwarp();
    const unsigned warp = threadIdx.x / 32 * 32, lane = threadIdx.x % 32;
    for (int tile = 0; tile < 4; ++tile) {
        for (int i = 0; i < 2; ++i) {
            const unsigned at = block.exchanged[warp + tile * 8 + lane % 4 * 2 + i] + lane / 4 * 2;
            const unsigned short bits = words[tile] >> 16 * i;
            memcpy(block.shared + at, &bits, 2);
            running->unfenced.push_back({at, at + 2});
        }
    }
    __syncwarp();
}
