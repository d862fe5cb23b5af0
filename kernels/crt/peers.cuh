// What the blocks of a cluster read in one another's shared memory.

#pragma once

#include "common/mbarrier.cuh"
#include "crt/scaling.cuh"

// The norm that block `rank` of the cluster has where this block has `own`. It must have been written before a meeting.
__device__ __forceinline__ Norm norm_of_peer(const Norm* own, int rank) {
    Norm norm;
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %2, %3;\n"
        "ld.shared::cluster.f64 %0, [remote];\n"
        "ld.shared::cluster.s32 %1, [remote + 8];\n"
        "}"
        : "=d"(norm.squares), "=r"(norm.biased)
        : "r"(shared_address(own)), "r"(rank)
        : "memory");
    return norm;
}

// cluster_sync in two halves, for work of the block's own between them.
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
