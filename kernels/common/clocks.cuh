// An SM's clock and the GPU's timer, read at one point of a program.

#pragma once

struct Clocks {
    long long cycles;       // of this SM
    long long nanoseconds;  // of the GPU; advances in steps of 32 ns to 1 us
};

__device__ __forceinline__ Clocks read_clocks() {
    Clocks now;
    asm volatile("mov.u64 %0, %%clock64;\nmov.u64 %1, %%globaltimer;" : "=l"(now.cycles), "=l"(now.nanoseconds)::"memory");
    return now;
}
