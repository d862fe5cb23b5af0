// A kernel of the ladder on the CPU, launch after launch: usage M N K ALPHA BETA IN OUT REVERSE {CALL GRID_X GRID_Y BLOCK_X BLOCK_Y}.
#include "cpu_grid.hpp"
SOURCE
static int m, n, k;
static float alpha, beta;
static std::vector<float> A, B, C;
static float *a, *b, *c;
static TensorMap map_b;
WORKSPACE

// Room for `count` floats from a 16-byte boundary on, as cudaMalloc gives at least.
static float* aligned(std::vector<float>& room, size_t count) {
    room.resize(count + 4);
    return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(room.data()) + 15) & ~uintptr_t(15));
}

int main(int, char** v) {
    m = atoi(v[1]), n = atoi(v[2]), k = atoi(v[3]);
    alpha = atof(v[4]), beta = atof(v[5]);
    const size_t of_a = A_COUNT, of_b = B_COUNT, of_c = size_t(m) * n;
    a = aligned(A, of_a), b = aligned(B, of_b), c = aligned(C, of_c);
    FILE* in = fopen(v[6], "rb");
    if (fread(a, 4, of_a, in) + fread(b, 4, of_b, in) + fread(c, 4, of_c, in) != of_a + of_b + of_c) return 2;
    fclose(in);
    map_b = {b, k, n, MAP_BOX};
    void (*calls[])() = {CALLS};
    for (char** step = v + 9; *step; step += 5) {  // which call, grid, block
        cpu_grid::launch({(unsigned)atoi(step[1]), (unsigned)atoi(step[2]), 1},
                         {(unsigned)atoi(step[3]), (unsigned)atoi(step[4]), 1}, calls[atoi(step[0])], atoi(v[8]));
    }
    FILE* out = fopen(v[7], "wb");
    fwrite(c, 4, size_t(m) * n, out);
    fclose(out);
}
