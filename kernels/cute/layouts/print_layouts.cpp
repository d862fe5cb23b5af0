// Prints where the elements of a tile lie in shared memory, as CuTe evaluates the article's layout. layouts.csv beside it
// is its output:
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

int main() {
    std::printf("layout,thread,value,row,column\n");
    for (int row = 0; row < 16; ++row) {
        for (int column = 0; column < 64; ++column) {
            std::printf("tile,,%d,%d,%d\n", int(TileA{}(row, column)), row, column);  // value: the offset
        }
    }
}
