// What kernels/common/wgmma_tf32.cuh promises, for hopper_grid.hpp; and words that only the family sgemm uses.
#pragma once
#include "certified_grid.hpp"

struct float2 {
    float x, y;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline int __float2int_rn(float value) { return static_cast<int>(lrintf(value)); }
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
    for (int step = 16; step > 0; step /= 2) {
        value = max(value, __shfl_xor_sync(~0u, value, step));
    }
    return value;
}

struct tf32 {
    float value;
};
inline float widen(tf32 x) {  // the tensor core reads no more of its bits
    return __uint_as_float(__float_as_uint(x.value) & ~0x1FFFu);
}
inline void wgmma_tf32(float (&d)[64], Descriptor a, Descriptor b, bool add) {
    hopper_grid::issue_wgmma<128, tf32>(d, a, b, add);
}
