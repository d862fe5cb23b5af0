#include "cpu_grid.hpp"
#include <string>
struct fp16 { unsigned short bits; };
SOURCE
static long long value[8];  // arguments; of a pointer, where in `memory` it points
static char* memory;
template <class T> struct Cast { static T from(long long v) { return T(v); } };
template <class T> struct Cast<T*> { static T* from(long long v) { return reinterpret_cast<T*>(memory + v); } };

// The file, its size, reversed or not; then of each launch the entry, blocks, threads, and its arguments, counted.
int main(int, char** v) {
    const size_t size = atoll(v[2]);
    memory = static_cast<char*>(aligned_alloc(256, (size + 255) / 256 * 256));
    FILE* file = fopen(v[1], "rb");
    if (fread(memory, 1, size, file) != size) return 2;
    fclose(file);
    for (char** at = v + 4; *at;) {
        const std::string entry = *at++;
        const unsigned blocks = atoi(*at++), threads = atoi(*at++);
        const int count = atoi(*at++);
        for (int i = 0; i < count; ++i) value[i] = atoll(*at++);
        void (*call)() = nullptr;
        CALLS
        if (!call) return 3;
        cpu_grid::launch({blocks, 1, 1}, {threads, 1, 1}, call, atoi(v[3]));
    }
    file = fopen(v[1], "wb");
    fwrite(memory, 1, size, file);
    fclose(file);
}
