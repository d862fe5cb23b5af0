// mbarrier: a counter in shared memory on which asynchronous copies report; and what else orders threads and engines.
//
// A barrier is in one phase at a time. The phase ends when (1) as many arrivals came as `barrier_init` named and (2)
// all bytes announced by `barrier_expect` have been written by the copy engine; then the next phase begins by itself.
// Phases are told apart by parity: a wait for parity 0 returns once the first, third, ... phase has ended. On a fresh
// barrier a wait for parity 1 returns at once, "the phase before the first": that is how a ring starts out empty.

#pragma once

using Barrier = unsigned long long;  // 64 bits, opaque, 8-byte aligned

// The 32-bit address that instructions on shared memory take.
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// One thread makes the barrier; `arrivals` end a phase.
__device__ __forceinline__ void barrier_init(Barrier* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// After the last barrier_init: makes the barriers visible to the copy engine and, with cluster_sync, to other blocks.
__device__ __forceinline__ void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrive once, and announce `bytes` that the copy engine will write before the phase may end.
__device__ __forceinline__ void barrier_expect(Barrier* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void barrier_arrive(Barrier* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrive at the barrier that stands at the same place in block `rank` of the cluster.
__device__ __forceinline__ void barrier_arrive_at(Barrier* barrier, int rank) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}" ::"r"(shared_address(barrier)), "r"(rank)
        : "memory");
}

// Wait for the end of the phase of this parity. try_wait suspends the warp for a while in hardware before it gives up.
__device__ __forceinline__ void barrier_wait(Barrier* barrier, int parity) {
    unsigned done;
    do {
        asm volatile(
            "{\n"
            ".reg .pred ended;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
            "selp.u32 %0, 1, 0, ended;\n"
            "}"
            : "=r"(done)
            : "r"(shared_address(barrier)), "r"(parity)
            : "memory");
    } while (!done);
}

// What this thread stored to shared memory (stmatrix too) becomes visible to the copy engine and to the tensor cores; a
// barrier among the threads must follow before one of them sets these to work.
__device__ __forceinline__ void shared_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// All threads of all blocks of the cluster meet, and see each other's shared memory as it was before.
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Which block of its cluster this is.
__device__ __forceinline__ int cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return static_cast<int>(rank);
}
