// Bulk copies: the copy engine moves a run of bytes from global to shared memory, asked for by one thread.

#pragma once

#include "common/mbarrier.cuh"

// Start copying `bytes`, which are counted on `barrier`. Both addresses and `bytes` are multiples of 16.
__device__ __forceinline__ void bulk_load(void* to, const void* from, Barrier* barrier, int bytes) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}
