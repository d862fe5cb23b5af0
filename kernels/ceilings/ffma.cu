// Ceiling: how many fp32 multiply-adds a second the GPU does when nothing but registers is in the way.
//
// Idea:       PAIRS independent points (x, y) a thread, each turned about the origin again and again by two shears, x
//             += a y and y += b x. A shear is exactly one FFMA. For a = -b = t with |t| < 2 the two make a rotation
//             (determinant 1, trace 2 - t^2) of a slightly squeezed circle, so the values stay bounded for ever, keep
//             changing in every bit, and need no range check; a contraction to a fixed point would toggle no bits and
//             so cost too little power to be an honest ceiling.
// Parameters: PAIRS = 8 chains hide the four cycles of an FFMA within one warp, and resident warps do it
//             again. TURNS = 32 makes 512 FFMA an iteration: loop overhead is under 1%, and the loop is 8 KB, small
//             enough for the instruction cache. 128 threads a block, many blocks: the last, half-empty wave weighs
//             little.
// Floor:      flops = grid * block * iterations * PAIRS * TURNS * 2 shears * 2.

constexpr int THREADS = 128;
constexpr int PAIRS = 8;
constexpr int TURNS = 32;
static_assert(PAIRS * 2 >= 8, "fewer chains could not hide the latency of an FFMA");

extern "C" __global__ void __launch_bounds__(THREADS)
ffma_loop(float* out, int iterations, float a, float b) {  // out: [1], written only if the values left their bounds
    float x[PAIRS], y[PAIRS];
#pragma unroll
    for (int i = 0; i < PAIRS; ++i) {
        x[i] = 1.0f + 0.03f * threadIdx.x + 0.11f * i;
        y[i] = 0.5f - 0.02f * threadIdx.x + 0.07f * i;
    }

#pragma unroll 1
    for (int iteration = 0; iteration < iterations; ++iteration) {
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn) {
#pragma unroll
            for (int i = 0; i < PAIRS; ++i) {
                x[i] = fmaf(a, y[i], x[i]);
            }
#pragma unroll
            for (int i = 0; i < PAIRS; ++i) {
                y[i] = fmaf(b, x[i], y[i]);
            }
        }
    }

    // The compiler cannot know that the sum is small, so it must make every value of it.
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < PAIRS; ++i) {
        sum += x[i] + y[i];
    }
    if (!(fabsf(sum) < 1e6f)) {
        *out = sum;
    }
}
