// Prints the layouts that the article draws, as CuTe evaluates them: which thread holds which element of a tile as which
// of its values, and where the elements of a tile lie in shared memory. layouts.csv beside it is its output:
//
//     nvcc -x cu -std=c++17 --expt-relaxed-constexpr -isystem <include folder of nvidia-cutlass 4.2.0.0> \
//         -o print_layouts kernels/cute/layouts/print_layouts.cpp && ./print_layouts > kernels/cute/layouts/layouts.csv

#include <cstdio>
#include <cute/tensor.hpp>

using namespace cute;

using Element = bfloat16_t;
using Atom =
    decltype(composition(Swizzle<3, 3, 3>{}, Layout<Shape<_8, Shape<_8, _8>>, Stride<_8, Stride<_1, _64>>>{}));
using TileA = decltype(tile_to_shape(Atom{}, Shape<_128, _64>{}));
using Mma = TiledMMA<MMA_Atom<SM80_16x8x16_F32BF16BF16F32_TN>, Layout<Shape<_2, _2, _1>>, Tile<_32, _32, _16>>;
using FromShared = Copy_Atom<SM75_U32x4_LDSM_N, Element>;

// A layout from (thread, value) to the place in a column-major matrix of `rows` rows.
template <class Layout>
void held(const char* name, Layout layout, int rows) {
    for (int thread = 0; thread < size<0>(layout); ++thread) {
        for (int value = 0; value < size<1>(layout); ++value) {
            const int place = layout(thread, value);
            std::printf("%s,%d,%d,%d,%d\n", name, thread, value, place % rows, place / rows);
        }
    }
}

int main() {
    std::printf("layout,thread,value,row,column\n");
    const auto from_shared = make_tiled_copy_A(FromShared{}, Mma{});
    held("ldmatrix: source", from_shared.get_layoutS_TV(), 32);
    held("ldmatrix: destination", from_shared.get_layoutD_TV(), 32);
    held("mma: A", Mma{}.get_layoutA_TV(), 32);
    held("mma: B", Mma{}.get_layoutB_TV(), 32);
    held("mma: C", Mma{}.get_layoutC_TV(), 32);
    for (int row = 0; row < 16; ++row) {
        for (int column = 0; column < 64; ++column) {
            std::printf("tile,,%d,%d,%d\n", int(TileA{}(row, column)), row, column);  // value: the offset
        }
    }
}
