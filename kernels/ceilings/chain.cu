// Latency of registers: a chain of dependent multiply-adds.
//
// Idea:       each integer multiply-add takes the result of the one before from a register, so that cycles over steps
//             is the time from reading a register to the next instruction's reading of the result. The multiplier and
//             the increment are arguments: constants, the compiler would fold steps together.
// Parameters: 256 steps per iteration of the loop, so that its own instructions do not count.
// Expected:   4 cycles: IMAD's latency. Less no chain of instructions can show; what costs one cycle is issuing one.
// Takes:      k a multiple of 256. One block of one warp.

#include "common/clocks.cuh"

constexpr int UNROLL = 256;

extern "C" __global__ void __launch_bounds__(32) chain(int n, int k, unsigned multiplier, unsigned increment, int* result) {
    // x of step 0: n   result: [x of step k, cycles, nanoseconds]
    unsigned x = n;
    const Clocks start = read_clocks();
#pragma unroll 1
    for (int i = 0; i < k; i += UNROLL) {
#pragma unroll
        for (int step = 0; step < UNROLL; ++step) {
            x = x * multiplier + increment;
        }
    }
    if (x == increment) {  // never: a branch on x, so that the clock is read after the last step
        return;
    }
    const Clocks end = read_clocks();
    if (threadIdx.x == 0) {
        result[0] = x;
        result[1] = end.cycles - start.cycles;
        result[2] = end.nanoseconds - start.nanoseconds;
    }
}
