// CuTe 0: a matrix copied tile by tile.
//
// New:        CuTe's smallest program: a layout says which thread has which 16 bytes of a tile, and the copy follows
//             from it.
// Parameters: tiles of 128 x 64 elements, the article's; 256 threads, 4 pieces of 16 bytes each: all loads of a tile
//             are started before the first store.
// Published:  1.48 TB/s (A100; no size given).
// Expected:   what the driver's device-to-device copy reaches; in the L2, where the matrices fit, more than DRAM's.
// Takes:      any m; n a multiple of 8.

#include <cute/tensor.hpp>

using namespace cute;

using Element = bfloat16_t;
constexpr int BM = 128, BN = 64;
constexpr int THREADS = 256;

// 32 rows of 8 threads, each of them 8 elements: 16 bytes.
using Vector = Copy_Atom<UniversalCopy<uint128_t>, Element>;
using Spread =
    decltype(make_tiled_copy(Vector{}, Layout<Shape<_32, _8>, Stride<_8, _1>>{}, Layout<Shape<_1, _8>>{}));

extern "C" __global__ void __launch_bounds__(THREADS)
copy_tiles(const Element* a, Element* c, int m, int n) {
    // a, c: [m, n]   grid: (columns, rows) of tiles   block: THREADS
    const int row = blockIdx.y, col = blockIdx.x;
    const Tensor A = make_tensor(make_gmem_ptr(a), make_shape(m, n), make_stride(n, _1{}));
    const Tensor C = make_tensor(make_gmem_ptr(c), make_shape(m, n), make_stride(n, _1{}));
    const auto spread = Spread{}.get_slice(threadIdx.x);
    const Tensor gA = local_tile(A, Shape<Int<BM>, Int<BN>>{}, make_coord(row, col));  // (BM, BN)
    const Tensor gC = local_tile(C, Shape<Int<BM>, Int<BN>>{}, make_coord(row, col));
    const Tensor from = spread.partition_S(gA);  // (8, ROWS, 1)
    Tensor to = spread.partition_D(gC);
    const Tensor place = spread.partition_S(make_identity_tensor(Shape<Int<BM>, Int<BN>>{}));  // (row, column)
    Tensor inside = make_tensor<bool>(make_shape(size<1>(to), _1{}));
    CUTE_UNROLL
    for (int i = 0; i < size<1>(to); ++i) {
        inside(i, 0) = row * BM + get<0>(place(0, i, 0)) < m && col * BN + get<1>(place(0, i, 0)) < n;
    }
    Tensor pieces = make_tensor<Element>(shape(to));
    copy_if(Vector{}, inside, from, pieces);
    copy_if(Vector{}, inside, pieces, to);
}
