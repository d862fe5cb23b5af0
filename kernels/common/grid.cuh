// Which launch this is.

#pragma once

// The same for all blocks of a launch; another for each launch, unless a CUDA graph repeats it.
__device__ __forceinline__ unsigned long long grid_id() {
    unsigned long long id;
    asm("mov.u64 %0, %%gridid;" : "=l"(id));
    return id;
}
