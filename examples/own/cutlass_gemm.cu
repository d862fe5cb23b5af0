// C = A B, row-major bf16 with fp32 sums, as CUTLASS's device-level GEMM for mma.sync, of compute capability 8.0 or later.
#include <cutlass/gemm/device/gemm.h>

using Element = cutlass::bfloat16_t;
using Row = cutlass::layout::RowMajor;
using Gemm = cutlass::gemm::device::Gemm<
    Element, Row, Element, Row, Element, Row, float, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
    cutlass::gemm::GemmShape<128, 256, 32>, cutlass::gemm::GemmShape<64, 64, 32>, cutlass::gemm::GemmShape<16, 8, 16>,
    cutlass::epilogue::thread::LinearCombination<Element, 8, float, float>,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>, 3>;

extern "C" int cutlass_gemm(
    const Element* a, const Element* b, Element* c, int m, int n, int k, cudaStream_t stream) {
    return static_cast<int>(Gemm()({{m, n, k}, {a, k}, {b, n}, {c, n}, {c, n}, {1.0f, 0.0f}}, nullptr, stream));
}
