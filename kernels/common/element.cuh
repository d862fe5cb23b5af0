// The two 16-bit element types of the tensor core kernels, as tags: kernels move their bits and never compute on them.

#pragma once

using Word = unsigned int;  // 32 bits: a register

struct bf16 {
    unsigned short bits;  // sign, 8 bits of exponent, 7 of fraction: fp32 cut short
};

struct fp16 {
    unsigned short bits;  // sign, 5 bits of exponent, 10 of fraction
};

template <class One, class Other>
constexpr bool SAME = false;
template <class One>
constexpr bool SAME<One, One> = true;

// Round two sums to nearest even and put them side by side: `low` is the element at the lower address.
template <class Element>
__device__ __forceinline__ Word pack(float low, float high) {
    Word both;
    if constexpr (SAME<Element, bf16>) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    } else {
        static_assert(SAME<Element, fp16>, "an element is bf16 or fp16");
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    }
    return both;
}
