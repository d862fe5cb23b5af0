// A cluster of blocks in up to three dimensions: where a block stands in it, and stores to a neighbour's shared memory.

#pragma once

#include "common/mbarrier.cuh"

struct Lengths {
    int x, y, z;
};

// How many blocks a cluster has in each dimension. Blocks are ranked x first, z last.
__device__ __forceinline__ Lengths cluster_lengths() {
    Lengths lengths;
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(lengths.x));
    asm("mov.u32 %0, %%cluster_nctaid.y;" : "=r"(lengths.y));
    asm("mov.u32 %0, %%cluster_nctaid.z;" : "=r"(lengths.z));
    return lengths;
}

// Where this block stands in its cluster.
__device__ __forceinline__ Lengths cluster_place() {
    Lengths place;
    asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(place.x));
    asm("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(place.y));
    asm("mov.u32 %0, %%cluster_ctaid.z;" : "=r"(place.z));
    return place;
}

// As cluster_sync, but says nothing of what was stored before, and spares the wait for stores on their way.
__device__ __forceinline__ void cluster_meet() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// The number of this block's cluster, and of all clusters, in a grid that has several along x alone.
__device__ __forceinline__ int cluster_number() {
    int number;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(number));
    return number;
}

__device__ __forceinline__ int cluster_count() {
    int count;
    asm("mov.u32 %0, %%nclusterid.x;" : "=r"(count));
    return count;
}

// True in one thread of the warp, always the same. The assembler then knows that one thread alone goes on, and keeps
// the operands of copies in uniform registers; where a comparison names the thread it adds a loop around each copy.
__device__ __forceinline__ bool elect_one() {
    unsigned elected;
    asm volatile(
        "{\n"
        ".reg .pred leads;\n"
        "elect.sync _|leads, 0xFFFFFFFF;\n"
        "selp.u32 %0, 1, 0, leads;\n"
        "}"
        : "=r"(elected));
    return elected != 0;
}

// Store 16 bytes to the place in block `rank` where `to` stands in this one. The other sees them after cluster_sync.
__device__ __forceinline__ void store_at(float4* to, int rank, float4 four) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "st.shared::cluster.v4.f32 [remote], {%2, %3, %4, %5};\n"
        "}" ::"r"(shared_address(to)), "r"(rank), "f"(four.x), "f"(four.y), "f"(four.z), "f"(four.w)
        : "memory");
}

// As stmatrix in common/wgmma.cuh, each tile transposed: lane l names the address of column l % 8 of tile l / 8.
__device__ __forceinline__ void stmatrix_turned(unsigned address, unsigned one, unsigned two, unsigned three,
                                                unsigned four) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(one),
                 "r"(two), "r"(three), "r"(four)
                 : "memory");
}
