// Reads of shared memory that stay where the source has them.
//
// ptxas moves a read down to some forty instructions before its first use, which is the latency of a read that waits for
// no other. Where several warps read at the same time it is longer, and the early read that the source asks for is
// lost. It does not move a volatile one past other volatile accesses.

#pragma once

// Four floats of shared memory into four registers of an array.
__device__ __forceinline__ void read4_pinned(float* registers, const float* shared) {
    asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(registers[0]), "=f"(registers[1]), "=f"(registers[2]), "=f"(registers[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))));
}
