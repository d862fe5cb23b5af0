// What the PTX of a kernel says, in the words of hopper_grid.hpp (ptx_grid.py).
#pragma once
#include "hopper_grid.hpp"
static Barrier* barrier_at(unsigned address) {
    return reinterpret_cast<Barrier*>(hopper_grid::running->block->shared + address);
}
static void* place(unsigned address) {
    return hopper_grid::running->block->shared + address;
}
static bool elected() {
    __syncwarp();
    return threadIdx.x % 32 == 0;
}
// An operand of wgmma as the model describes it: K-major in the 128-byte swizzle, eight rows every 1024 bytes.
static Descriptor described(unsigned long long bits) {
    if (bits >> 62 != 1 || (bits >> 32 & 0x3FFF) != 64) {
        hopper_grid::report("a descriptor of another layout");
    }
    return bits & 0x3FFF;
}
static unsigned pair(unsigned high, unsigned low) {
    float wide[2];
    memcpy(&wide[0], &low, 4), memcpy(&wide[1], &high, 4);
    return narrow(wide[0]).bits | unsigned(narrow(wide[1]).bits) << 16;
}
constexpr unsigned long long EVICT_NORMAL = 1ull << 60;
static void policy(unsigned long long bits) {
    if (bits != EVICT_NORMAL) {
        hopper_grid::report("another cache policy");
    }
}
static void one_arrival(unsigned count) {
    if (count != 1) {
        hopper_grid::report("more than one arrival at a time");
    }
}
