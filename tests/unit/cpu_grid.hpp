// Runs a device-only .cu on the CPU: one block at a time, each thread a fiber with a stack of its own.
//
// __syncthreads suspends a fiber until all the block's threads that still run have reached it. Between two barriers a
// thread runs alone, lowest index first (or highest, if `reversed`), unless it waits for a copy: a legal order on a GPU,
// and the one in which a missing barrier shows at once, since a thread then reads what the next one has not written yet.
//
// Asynchronous copies are made as late as a GPU may make them, when they are waited for; or, if `reversed`, as early, at
// once. So a missing wait shows in one order, and a slot that is filled while it is still read in the other.
//
// Lanes that exchange values wait for one another, before those that wait at the block's barrier go on.
#pragma once
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __grid_constant__

struct Index {
    unsigned x = 0, y = 0, z = 0;
};
struct alignas(16) float4 {
    float x = 0, y = 0, z = 0, w = 0;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
using int2 = uint2;
using int4 = uint4;

template <class Number>
Number min(Number one, Number other) {
    return other < one ? other : one;
}

template <class Number>
Number max(Number one, Number other) {
    return one < other ? other : one;
}

inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}

inline Index threadIdx, blockIdx, blockDim, gridDim;

namespace cpu_grid {

struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool done = false, at_barrier = false, at_exchange = false;
    std::deque<std::vector<std::function<void()>>> copies;  // cp.async: closed groups, oldest first, and the open one
};

inline ucontext_t scheduler;
inline Fiber* running = nullptr;
inline void (*body)() = nullptr;
inline bool early = false;  // asynchronous copies are made at once

inline void suspend() {
    swapcontext(&running->context, &scheduler);
}

inline void run_body() {
    body();
    running->done = true;
    swapcontext(&running->context, &scheduler);
}

// Runs `kernel_call`, which calls the kernel with its arguments, for every thread of every block.
inline void launch(Index grid, Index block, void (*kernel_call)(), bool reversed) {
    const unsigned threads = block.x * block.y * block.z;
    gridDim = grid, blockDim = block, body = kernel_call, early = reversed;
    std::vector<Fiber> fibers(threads);
    for (Fiber& fiber : fibers) {
        fiber.stack.resize(1 << 16);
    }
    for (unsigned b = 0; b < grid.x * grid.y * grid.z; ++b) {
        blockIdx = {b % grid.x, b / grid.x % grid.y, b / (grid.x * grid.y)};
        for (Fiber& fiber : fibers) {
            fiber.done = fiber.at_barrier = fiber.at_exchange = false;
            fiber.copies.assign(1, {});
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack.data();
            fiber.context.uc_stack.ss_size = fiber.stack.size();
            makecontext(&fiber.context, run_body, 0);
        }
        for (bool left = true; left;) {
            left = false;
            bool ran = false;
            for (unsigned i = 0; i < threads; ++i) {
                const unsigned t = reversed ? threads - 1 - i : i;
                if (!fibers[t].done && !fibers[t].at_barrier && !fibers[t].at_exchange) {
                    threadIdx = {t % block.x, t / block.x % block.y, t / (block.x * block.y)};
                    running = &fibers[t];
                    swapcontext(&scheduler, &fibers[t].context);
                    ran = true;
                }
                left = left || !fibers[t].done;
            }
            if (!ran) {  // all wait: lanes for lanes, or else all at the barrier, which opens
                bool exchanging = false;
                for (Fiber& fiber : fibers) {
                    exchanging = exchanging || fiber.at_exchange;
                }
                for (Fiber& fiber : fibers) {
                    fiber.at_exchange = false;
                    fiber.at_barrier = fiber.at_barrier && exchanging;
                }
            }
        }
    }
}

}  // namespace cpu_grid

inline void __syncthreads() {
    cpu_grid::running->at_barrier = true;
    cpu_grid::suspend();
}

inline unsigned long long atomicCAS(unsigned long long* place, unsigned long long expected, unsigned long long value) {
    const unsigned long long before = *place;
    *place = before == expected ? value : before;
    return before;
}

// common/grid.cuh, of a graph that is repeated: the number does not change
inline unsigned long long grid_id() {
    return 7;
}

[[noreturn]] inline void __trap() {
    abort();
}

// Between blocks, of which one runs at a time.
inline void __threadfence() {}

inline unsigned atomicAdd(unsigned* counter, unsigned value) {
    const unsigned before = *counter;
    *counter += value;
    return before;
}

inline unsigned atomicInc(unsigned* counter, unsigned most) {
    const unsigned before = *counter;
    *counter = before >= most ? 0 : before + 1;
    return before;
}

inline unsigned atomicExch(unsigned* place, unsigned value) {
    const unsigned before = *place;
    *place = value;
    return before;
}

inline unsigned __umulhi(unsigned one, unsigned other) {
    return uint64_t(one) * other >> 32;
}

inline int __clz(int bits) {
    return bits ? __builtin_clz(bits) : 32;
}

template <class Value>
Value __ldcg(const Value* from) {
    return *from;
}

namespace cpu_grid {
inline double exchanged[1024];  // what each thread of a block shows to its warp

inline void exchange(double value) {
    exchanged[threadIdx.x] = value;
    running->at_exchange = true;
    const Index own = threadIdx;
    suspend();
    threadIdx = own;
}
}  // namespace cpu_grid

inline float __shfl_down_sync(unsigned, float value, unsigned away) {
    cpu_grid::exchange(value);
    const unsigned lane = threadIdx.x % 32;
    const float other = lane + away < 32 ? float(cpu_grid::exchanged[threadIdx.x + away]) : value;
    cpu_grid::exchange(value);  // nobody shows the next value before all have read this one
    return other;
}

inline unsigned __shfl_up_sync(unsigned, unsigned value, unsigned away) {
    cpu_grid::exchange(value);
    const unsigned other = threadIdx.x % 32 >= away ? unsigned(cpu_grid::exchanged[threadIdx.x - away]) : value;
    cpu_grid::exchange(value);
    return other;
}

inline unsigned __reduce_add_sync(unsigned, unsigned value) {
    cpu_grid::exchange(value);
    unsigned sum = 0;
    for (unsigned lane = 0; lane < 32; ++lane) {
        sum += unsigned(cpu_grid::exchanged[threadIdx.x / 32 * 32 + lane]);
    }
    cpu_grid::exchange(value);
    return sum;
}

// <cuda_pipeline.h>: cp.async
inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes) {
    auto copy = [=] { memcpy(to, from, bytes); };
    if (cpu_grid::early) {
        copy();
    } else {
        cpu_grid::running->copies.back().push_back(copy);
    }
}

inline void __pipeline_commit() {
    cpu_grid::running->copies.push_back({});
}

inline void __pipeline_wait_prior(size_t open) {
    auto& groups = cpu_grid::running->copies;  // the last is not closed yet
    for (; groups.size() > open + 1; groups.pop_front()) {
        for (auto& copy : groups.front()) {
            copy();
        }
    }
}

// common/mbarrier.cuh and common/tma.cuh, for barriers with one arrival a phase and fp32 tiles without a swizzle
using Barrier = unsigned long long;

struct TensorMap {
    const float* data = nullptr;
    int rows = 0, columns = 0, box_rows = 0, box_columns = 0;
};

namespace cpu_grid {
struct Phases {
    unsigned long long started = 0, ended = 0;
    std::vector<std::function<void()>> copies;
};
inline std::map<Barrier*, Phases> phases;
}  // namespace cpu_grid

inline void barrier_init(Barrier* barrier, int) {
    cpu_grid::phases[barrier] = {};
}

inline void barrier_init_fence() {}

inline void barrier_expect(Barrier* barrier, int) {
    ++cpu_grid::phases.at(barrier).started;
}

inline void tma_load(void* to, const TensorMap& map, Barrier* barrier, int column, int row) {
    auto copy = [=] {
        for (int r = 0; r < map.box_rows; ++r) {
            for (int c = 0; c < map.box_columns; ++c) {
                const bool inside = row + r < map.rows && column + c < map.columns;
                static_cast<float*>(to)[r * map.box_columns + c] =
                    inside ? map.data[size_t(row + r) * map.columns + column + c] : 0.0f;
            }
        }
    };
    if (cpu_grid::early) {
        copy();
    } else {
        cpu_grid::phases.at(barrier).copies.push_back(copy);
    }
}

// Returns once the phase of this parity has ended: a phase ends when a thread that waits for it makes its copies.
inline void barrier_wait(Barrier* barrier, int parity) {
    cpu_grid::Phases& phase = cpu_grid::phases.at(barrier);
    while ((phase.ended & 1) == unsigned(parity)) {
        if (phase.ended < phase.started) {
            for (auto& copy : phase.copies) {
                copy();
            }
            phase.copies.clear();
            ++phase.ended;
        } else {
            cpu_grid::suspend();
        }
    }
}

// common/pinned.cuh
inline void read4_pinned(float* registers, const float* shared) {
    memcpy(registers, shared, 16);
}
