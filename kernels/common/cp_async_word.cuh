// cp.async for single words: copies of 4 bytes from global to shared memory that arrive at an mbarrier. TMA and bulk
// copies ask for multiples of 16 bytes, which a row of any length does not have.

#pragma once

#include "common/mbarrier.cuh"

// Start copying a word. Where `wanted` is false nothing is read, and it becomes zero.
__device__ __forceinline__ void copy_word(float* to, const float* from, bool wanted) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(wanted ? 4 : 0)
                 : "memory");
}

// Arrive once all copies that this thread has started are complete. It is one of the arrivals of `barrier_init`.
__device__ __forceinline__ void barrier_arrive_copied(Barrier* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
