// Ceiling: how many fp32 multiply-adds a second the GPU does when all three operands come from registers, as a GEMM has
//          them.
//
// Idea:       the inner step of a GEMM without its loads: an outer product of ROWS values by COLUMNS onto as many sums,
//             again and again. The register file has two banks, of even and of odd registers, and each delivers one
//             operand a cycle. An FFMA with three would take a cycle and a half; but one that shares an operand with
//             the one before takes it from the operand cache. So the products go in a snake, down one column and up the
//             next: each differs from the one before in one factor. Steps add and subtract in turn: the sums stay
//             bounded for ever and change in every bit.
// Parameters: 8 x 16, the thread's tile of the fast rungs. STEPS = 8 make 1024 FFMA an iteration, 16 KB of code: loop
//             overhead is small, and the instruction cache holds the loop (twice as long a loop is slower). 128
//             threads a block, many blocks: the last, half-empty wave weighs little.
// Floor:      flops = grid * block * iterations * STEPS * ROWS * COLUMNS * 2.

constexpr int THREADS = 128;
constexpr int ROWS = 8, COLUMNS = 16;
constexpr int STEPS = 8;
static_assert(STEPS % 2 == 0, "what one step adds the next one takes away");

extern "C" __global__ void __launch_bounds__(THREADS)
ffma_rrr(float* out, int iterations, float a, float b) {  // out: [1], written only if the values left their bounds
    float x[ROWS], y[COLUMNS], sums[ROWS][COLUMNS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        x[i] = a * (1.0f + 0.03f * threadIdx.x + 0.11f * i);
    }
#pragma unroll
    for (int j = 0; j < COLUMNS; ++j) {
        y[j] = b * (0.5f - 0.02f * threadIdx.x + 0.07f * j);
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            sums[i][j] = x[i] - y[j];
        }
    }

#pragma unroll 1
    for (int iteration = 0; iteration < iterations; ++iteration) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) {
#pragma unroll
                for (int down = 0; down < ROWS; ++down) {
                    const int i = j % 2 == 0 ? down : ROWS - 1 - down;
                    sums[i][j] = fmaf(step % 2 == 0 ? x[i] : -x[i], y[j], sums[i][j]);
                }
            }
        }
    }

    // The compiler cannot know that the sum is small, so it must make every value of it.
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            sum += sums[i][j];
        }
    }
    if (!(fabsf(sum) < 1e6f)) {
        *out = sum;
    }
}
