// Runs a device-only .cu on the CPU: one block at a time, each thread a fiber with a stack of its own.
//
// __syncthreads suspends a fiber until all the block's threads that still run have reached it. Between two barriers a
// thread runs to its end alone, lowest index first (or highest, if `reversed`): a legal order on a GPU, and the one in
// which a missing barrier shows at once, since a thread then reads what the next one has not written yet.
#pragma once
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <cstdint>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static

struct Index {
    unsigned x = 0, y = 0, z = 0;
};
struct alignas(16) float4 {
    float x = 0, y = 0, z = 0, w = 0;
};

inline Index threadIdx, blockIdx, blockDim, gridDim;

namespace cpu_grid {

struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool done = false;
};

inline ucontext_t scheduler;
inline Fiber* running = nullptr;
inline void (*body)() = nullptr;

inline void run_body() {
    body();
    running->done = true;
    swapcontext(&running->context, &scheduler);
}

// Runs `kernel_call`, which calls the kernel with its arguments, for every thread of every block.
inline void launch(Index grid, Index block, void (*kernel_call)(), bool reversed) {
    const unsigned threads = block.x * block.y * block.z;
    gridDim = grid, blockDim = block, body = kernel_call;
    std::vector<Fiber> fibers(threads);
    for (Fiber& fiber : fibers) {
        fiber.stack.resize(1 << 16);
    }
    for (unsigned b = 0; b < grid.x * grid.y * grid.z; ++b) {
        blockIdx = {b % grid.x, b / grid.x % grid.y, b / (grid.x * grid.y)};
        for (Fiber& fiber : fibers) {
            fiber.done = false;
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack.data();
            fiber.context.uc_stack.ss_size = fiber.stack.size();
            makecontext(&fiber.context, run_body, 0);
        }
        for (bool left = true; left;) {
            left = false;
            for (unsigned i = 0; i < threads; ++i) {
                const unsigned t = reversed ? threads - 1 - i : i;
                if (!fibers[t].done) {
                    threadIdx = {t % block.x, t / block.x % block.y, t / (block.x * block.y)};
                    running = &fibers[t];
                    swapcontext(&scheduler, &fibers[t].context);
                    left = left || !fibers[t].done;
                }
            }
        }
    }
}

}  // namespace cpu_grid

inline void __syncthreads() {
    swapcontext(&cpu_grid::running->context, &cpu_grid::scheduler);
}
