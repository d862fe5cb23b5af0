// What kernels/crt/instructions.cuh, early.cuh, peers.cuh, wgmma_208.cuh and cp_async.cuh promise, for hopper_grid.hpp; and
// words that only R10 and later rungs use.
#pragma once
#include "hopper_grid.hpp"

#define UNSIGNED_SUMS 1
inline float __int_as_float(int bits) { return same_bits<float>(bits); }
inline long long __double_as_longlong(double value) { return same_bits<long long>(value); }
inline int __ffsll(long long bits) { return __builtin_ffsll(bits); }
inline float __double2float_ru(double value) {
    const float near = static_cast<float>(value);
    return near < value ? nextafterf(near, INFINITY) : near;
}
inline int __popc(int bits) { return __builtin_popcount(bits); }
inline int atomicOr(int* bits, int more) {
    const int before = *bits;
    *bits |= more;
    return before;
}
struct uint2 {
    unsigned x, y;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline double2 make_double2(double x, double y) { return {x, y}; }
template <class Value>
Value __ldcs(const Value* from) {
    return *from;
}
template <class Value>
void __stcs(Value* to, const Value& value) {
    *to = value;
}

inline unsigned waited = 0;  // threads that waited for the launch before theirs
inline void wait_for_predecessor() { ++waited; }

struct e5m2 {
    unsigned char bits;
};
struct Magnitudes {
    float of[128];
    Magnitudes() {
        for (int bits = 0; bits < 128; ++bits) {
            const int field = bits >> 2, fraction = bits & 3;
            of[bits] = field ? ldexpf(4 + fraction, field - 17) : ldexpf(fraction, -16);
        }
    }
};
inline const Magnitudes MAGNITUDES;
inline float widen(e5m2 x) {  // R10 makes no negative ones
    return x.bits < 0x7C ? MAGNITUDES.of[x.bits] : NAN;
}
inline void wgmma_208(int (&d)[104], Descriptor a, Descriptor b, bool add) {
    hopper_grid::issue_wgmma<208, unsigned char>(d, a, b, add);
}
inline void wgmma_e5m2(float (&d)[96], Descriptor a, Descriptor b, bool add) {
    hopper_grid::issue_wgmma<192, e5m2>(d, a, b, add);
}

// Asynchronous copies are made as late as the wait, or at once.
inline void copy8(double* to, const double* from, bool wanted) {
    const hopper_grid::Event copy = [=] { *to = wanted ? *from : 0.0; };
    *to = NAN;
    if (hopper_grid::early()) {
        copy();
    } else {
        hopper_grid::running->stores.back().push_back(copy);
    }
}
// What a block of the cluster holds where this one has `own`. Only the second half of a meeting is one.
template <class Value>
Value norm_of_peer(const Value* own, int rank) {
    const hopper_grid::Block& block = *hopper_grid::running->block;
    const auto& peer = hopper_grid::blocks[block.index - block.rank + rank];
    return *reinterpret_cast<const Value*>(peer.shared + hopper_grid::offset_of(own, block));
}
inline void cluster_arrive() {}
inline void cluster_wait() { cluster_sync(); }

inline void copy_commit() { tma_store_commit(); }
template <int OPEN>
void copy_wait() {
    tma_store_wait<OPEN>();
}

// Fragments as the PTX manual has them for m16n8k8 in f64; sums go through FMAs in the order of k.
inline void dmma(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
    static double of_a[1024][4], of_b[1024][2];  // one block at a time
    const unsigned thread = threadIdx.x, warp = thread / 32 * 32, g = thread % 32 / 4, t = thread % 4;
    memcpy(of_a[thread], a, sizeof a), memcpy(of_b[thread], b, sizeof b);
    __syncwarp();
    for (int i = 0; i < 4; ++i) {
        for (unsigned k = 0; k < 8; ++k) {
            const double left = of_a[warp + g * 4 + k % 4][i / 2 + k / 4 * 2];
            const double right = of_b[warp + (2 * t + i % 2) * 4 + k % 4][k / 4];
            c[i] = fma(left, right, c[i]);
        }
    }
    __syncwarp();
}

// Of R16: the column of tiles that column `column` of n lies in, and where in it. Of as many tiles as would all be 208 wide,
// the last ones are 192.
inline std::pair<int, int> in_two_widths(int column, int n) {
    const int count = (n + 207) / 208, narrow = min(count, (count * 208 - n) / 16), wide = (count - narrow) * 208;
    return column < wide ? std::pair(column / 208, column % 208)
                         : std::pair(wide / 208 + (column - wide) / 192, (column - wide) % 192);
}

// What the drivers share: arrays in files, one after the other.
template <class Type>
static std::vector<Type> read(FILE* in, size_t count) {
    std::vector<Type> values(count);
    if (fread(values.data(), sizeof(Type), count, in) != count) exit(2);
    return values;
}
template <class Type>
static void write(FILE* out, const std::vector<Type>& values) {
    fwrite(values.data(), sizeof(Type), values.size(), out);
}
// Memory that nobody has written, as the GPU's: every bit set.
template <class Type>
static std::vector<Type> unwritten(size_t count) {
    std::vector<Type> values(count);
    memset(values.data(), 0xFF, count * sizeof(Type));
    return values;
}
