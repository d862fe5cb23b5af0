// cp.async: copies from global to shared memory that need no registers and no thread to wait, in groups.

#pragma once

// Start copying 16 bytes, past the L1. Where `wanted` is false nothing is read, and the 16 bytes become zeros.
__device__ __forceinline__ void copy16(unsigned to_offset, const void* from, bool wanted) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to_offset), "l"(from), "r"(wanted ? 16 : 0)
                 : "memory");
}

// Close this thread's current group of copies.
__device__ __forceinline__ void copy_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Wait until at most OPEN of this thread's groups, the youngest ones, are still on their way.
template <int OPEN>
__device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(OPEN) : "memory");
}
