// TMA, the copy engine for tiles: one thread names a tile by the coordinates of its corner, and the engine moves it.
//
// A map, made on the host, describes a matrix in global memory, the tile's box, and the swizzle of its image in
// shared memory. Loads fill what lies outside the matrix with zeros; stores leave it out. Coordinates count
// elements: `column` along the contiguous dimension, `row` along the other.

#pragma once

#include "common/mbarrier.cuh"

struct alignas(64) TensorMap {
    unsigned char opaque[128];  // the driver's CUtensorMap
};

// Fetch the map itself ahead of its first use.
__device__ __forceinline__ void tma_prefetch(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Load a tile; its bytes are counted on `barrier`.
__device__ __forceinline__ void tma_load(void* to, const TensorMap& map, Barrier* barrier, int column, int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
            shared_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier))
        : "memory");
}

// Load a tile once for every block of the cluster whose bit stands in `blocks`. It lands in each at the same place, and
// its bytes are counted there, on the barrier at the same place.
__device__ __forceinline__ void tma_load_multicast(
    void* to, const TensorMap& map, Barrier* barrier, int column, int row, int blocks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(shared_address(barrier)), "h"(static_cast<short>(blocks))
        : "memory");
}

// Store a tile; it joins this thread's current group of stores.
__device__ __forceinline__ void tma_store(const TensorMap& map, const void* from, int column, int row) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(column),
                 "r"(row), "r"(shared_address(from))
                 : "memory");
}

// Close the current group of stores.
__device__ __forceinline__ void tma_store_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Wait until at most OPEN groups of this thread's stores still have to read shared memory.
template <int OPEN>
__device__ __forceinline__ void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(OPEN) : "memory");
}

// Wait until at most OPEN groups of this thread's stores are incomplete in global memory.
template <int OPEN>
__device__ __forceinline__ void tma_store_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(OPEN) : "memory");
}
