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
#include <setjmp.h>
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
#include <memory>
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

struct alignas(64) Fiber {  // what the scheduler looks at first, in one line of the cache
    Wait wait = Wait::none;
    bool done = false, begun = false;
    unsigned parity = 0;
    BarrierState* barrier = nullptr;
    Block* block = nullptr;
    unsigned thread = 0;
    int group = 0;  // of a named barrier
    unsigned issued = 0, awaited = 0;  // wgmma that it issued, and how many of them it waits for
    bool waited = false;  // for the kernel before on the stream
    std::vector<unsigned> products{0};  // wgmma: how many in each closed group, oldest first, and in the open one
    std::vector<std::vector<Event>> stores{1};  // TMA stores, likewise
    std::vector<Event> words;  // cp.async: its copies that no arrival follows yet
    std::vector<std::pair<unsigned, unsigned>> unfenced;  // shared memory that the copy engine may not see yet
    jmp_buf place;  // where it goes on
};

struct Product {  // a wgmma of a warpgroup, by what it does for each thread that has issued it
    std::vector<Event> parts;
};
struct Products {  // of a warpgroup, in the order of issue; the first `made` have been made
    std::deque<Product> all;
    size_t made = 0;
};

struct Block {
    unsigned index = 0, rank = 0, cluster = 0;
    unsigned char* shared = nullptr;
    std::map<unsigned, BarrierState> barriers;  // by offset in shared memory
    std::map<int, unsigned> statics;            // offset of a __shared__ variable, by the line that declares it
    unsigned next_static = 0;
    Fiber* fibers = nullptr;
    unsigned left_threads = 0;
    bool changed = false;  // whether a thread has come to a meeting, or left, since the last look
    unsigned exchanged[1024];
    std::vector<Products> products;  // by warpgroup

    bool left() const {
        return left_threads == blockDim.x;
    }
};

inline Fiber* running = nullptr;
inline std::vector<Block> blocks;
inline std::vector<Event> copies;  // TMA loads under way
inline std::mt19937 random_engine;
inline int seed = 0, cluster_size = 1;
inline bool early_launch = false;  // whether the kernel before on the stream may still run: loads must wait for it
inline std::string problem;
inline unsigned sleeps = 0;  // of all threads since the program began
inline unsigned dynamic_bytes = 0;  // of a kernel that declares shared memory beside them
inline int kept_bits = 0;  // of a sum of products of e4m3, below its largest term, that a wgmma keeps; 0: all

void report(const std::string& what);
void suspend();
void meet(Wait wait, int group = 0);
void run_copy(size_t which);

inline bool chance(unsigned of) {
    return uint32_t(random_engine()) % of == 0;
}
inline bool early() {
    return seed == 1 || (seed > 2 && chance(3));
}

// Let others go first, now and then.
inline void perhaps_yield() {
    if (seed > 2 && chance(8)) {
        suspend();
    }
}

// Runs `kernel_call`, which calls the kernel with its arguments, for every thread of every block. `problem` is empty if
// all threads came to an end and no rule was broken.
void launch(unsigned grid_x, unsigned grid_y, unsigned threads, unsigned cluster, const Event& kernel_call, int with_seed);

// Blocks, or clusters, that do not wait for one another, one after the other: a grid of many needs no more memory than one.
void launch_in_turn(unsigned grid_x, unsigned grid_y, unsigned threads, const Event& kernel_call, int with_seed,
                    unsigned cluster = 1);

inline unsigned offset_of(const void* pointer, const Block& block) {
    return static_cast<const unsigned char*>(pointer) - block.shared;
}
BarrierState& state_of(const Block& block, unsigned offset);
void settle(BarrierState& state);
// The shared memory of this block that the variable of `size` bytes declared on `line` takes.
void* allotted(int line, unsigned size, unsigned alignment);
template <class Type>
Type& allot(int line, unsigned alignment) {
    return *static_cast<Type*>(allotted(line, sizeof(Type), alignment));
}

// Every source calls it so.
#define shared_bytes hopper_grid::dynamic_shared()
inline unsigned char* dynamic_shared() {
    return running->block->shared;
}

// The 128-byte swizzle of TMA and wgmma adds address bits 7 to 9 to bits 4 to 6 without carry, the 64-byte one of TMA bits 7
// and 8 to bits 4 and 5.
inline unsigned swizzled(unsigned offset, int swizzle) {
    return offset ^ (offset >> 7 & (swizzle == 128 ? 7 : swizzle == 64 ? 3 : 0)) << 4;
}

void start_load(void* to, const TensorMap& map, Barrier* barrier, int column, int row, int mask);
void finish_groups(std::vector<std::vector<Event>>& groups, size_t open);
void issue(const Event& part);  // this thread's part of its next wgmma
void wait_for_products(size_t groups);
// Stores `tiles` tiles of 8 x 8: lane l names the address of row l % 8 of tile l / 8.
void store_tiles(unsigned address, const Word* words, unsigned tiles);

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

// The sum of `sum` and the products of K elements, each cut off `kept_bits` below the largest of them.
template <int K>
float aligned_sum(float sum, const float (&a)[K], const float (&b)[K]) {
    float largest = fabsf(sum);
    for (int k = 0; k < K; ++k) {
        largest = max(largest, fabsf(a[k] * b[k]));
    }
    if (largest == 0) {
        return 0;
    }
    const float unit = ldexpf(1, ilogbf(largest) - kept_bits);
    float whole = truncf(sum / unit);
    for (int k = 0; k < K; ++k) {
        whole += truncf(a[k] * b[k] / unit);
    }
    return whole * unit;
}

// One thread's part of a wgmma of 64 x `columns` by 32 bytes of k. Sums of integers wrap.
template <class Element, class Sum>
void multiply(Sum* d, const unsigned char* shared, Descriptor a, Descriptor b, bool add, unsigned thread, int columns) {
    constexpr int K = 32 / sizeof(Element);
    using Value = decltype(widen(Element{}));
    using Wrapping = std::conditional_t<std::is_same_v<Sum, int>, unsigned, Sum>;
    const int warp = thread / 32 % 4, lane = thread % 32;
    Value of_a[2][K], of_b[K];
    for (int half = 0; half < 2; ++half) {
        read_row<Element>(of_a[half], shared, a, 16 * warp + lane / 4 + 8 * half);
    }
    for (int j = 0; j < columns / 8; ++j) {
        for (int i = 0; i < 2; ++i) {
            read_row<Element>(of_b, shared, b, 8 * j + lane % 4 * 2 + i);
            for (int half = 0; half < 2; ++half) {
                Sum& sum = d[4 * j + 2 * half + i];
                if constexpr (SAME<Element, e4m3>) {
                    if (kept_bits > 0) {
                        sum = aligned_sum(add ? sum : 0, of_a[half], of_b);
                        continue;
                    }
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

// Compiled with the engine.
extern template void multiply<bf16>(float*, const unsigned char*, Descriptor, Descriptor, bool, unsigned, int);
extern template void multiply<fp16>(float*, const unsigned char*, Descriptor, Descriptor, bool, unsigned, int);
extern template void multiply<e4m3>(float*, const unsigned char*, Descriptor, Descriptor, bool, unsigned, int);
extern template void multiply<signed char>(int*, const unsigned char*, Descriptor, Descriptor, bool, unsigned, int);
extern template void multiply<unsigned char>(int*, const unsigned char*, Descriptor, Descriptor, bool, unsigned, int);

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
void barrier_init(Barrier* barrier, int arrivals);
inline void barrier_init_fence() {}
void barrier_expect(Barrier* barrier, int bytes);
void barrier_arrive(Barrier* barrier);
void barrier_arrive_at(Barrier* barrier, int rank);
void barrier_wait(Barrier* barrier, int parity);
inline void shared_fence() {
    hopper_grid::running->unfenced.clear();
}

// common/cp_async_word.cuh: a word is copied at some time before the arrival that follows it, and is NaN until then.
void copy_word(float* to, const float* from, bool wanted);
void barrier_arrive_copied(Barrier* barrier);

// common/bulk.cuh
inline void bulk_load(void* to, const float* from, Barrier* barrier, int bytes) {
    const int words = bytes / static_cast<int>(sizeof(float));
    const TensorMap row(const_cast<float*>(from), 1, words, 1, words, 0);
    hopper_grid::start_load(to, row, barrier, 0, 0, 1 << cluster_rank());
}

// common/tma.cuh
inline void tma_prefetch(const TensorMap&) {}
inline void tma_load(void* to, const TensorMap& map, Barrier* barrier, int column, int row) {
    hopper_grid::start_load(to, map, barrier, column, row, 1 << cluster_rank());
}
inline void tma_load_multicast(void* to, const TensorMap& map, Barrier* barrier, int column, int row, int blocks) {
    hopper_grid::start_load(to, map, barrier, column, row, blocks);
}
void tma_store(const TensorMap& map, const void* from, int column, int row);
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
    issue([=] { multiply<Element>(sums, shared, a, b, add, thread, N); });
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
    hopper_grid::wait_for_products(GROUPS);
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

inline void stmatrix(unsigned address, Word one, Word two, Word three, Word four) {
    const Word words[] = {one, two, three, four};
    hopper_grid::store_tiles(address, words, 4);
}
inline void stmatrix_two(unsigned address, Word one, Word two) {
    const Word words[] = {one, two};
    hopper_grid::store_tiles(address, words, 2);
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
