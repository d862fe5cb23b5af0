// libcuda and libcublas of a machine whose GPU is its CPU: memory is the host's, streams run at once, and R17's launches
// run by their source under certified_grid.hpp. SM 132 is any number; LONG is the source's.
SOURCE;

#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <utility>

constexpr int BLOCKS_AT_ONCE = 2, SMS = 132;

struct Entry {
    std::vector<std::pair<size_t, size_t>> parameters;  // offset and bytes
    std::function<void(const unsigned*, unsigned, const char*)> launch;
};

template <class T>
using Plain = std::remove_cv_t<std::remove_reference_t<T>>;
template <class T>
constexpr size_t size_of = std::is_same_v<Plain<T>, TensorMap> ? 128 : sizeof(Plain<T>);
template <class T>
constexpr size_t align_of = std::is_same_v<Plain<T>, TensorMap> ? 64 : alignof(Plain<T>);

template <class T>
Plain<T> value_at(const char* at) {
    Plain<T> value;
    memcpy(static_cast<void*>(&value), at, sizeof value);
    return value;
}

// How a kernel's blocks run: one after the other, or some that wait for one another at once.
enum class Grid { in_turn, at_once };

template <class... A, size_t... I>
Entry described(void (*kernel)(A...), Grid grid, std::index_sequence<I...>) {
    Entry entry;
    size_t at = 0;
    for (auto [size, align] : {std::pair{size_of<A>, align_of<A>}...}) {
        at = (at + align - 1) / align * align;
        entry.parameters.push_back({at, size});
        at += size;
    }
    entry.launch = [kernel, grid, places = entry.parameters](const unsigned* blocks, unsigned cluster, const char* packed) {
        const unsigned threads = blocks[3];
        const std::function<void()> call = [&] { kernel(value_at<A>(packed + places[I].first)...); };
        if (grid == Grid::in_turn) {
            hopper_grid::launch_in_turn(blocks[0], blocks[1], threads, call, 1);
        } else {
            hopper_grid::launch(std::max(1u, std::min(blocks[0], BLOCKS_AT_ONCE * cluster)), 1, threads, cluster, call, 1);
        }
    };
    return entry;
}
template <class... A>
Entry described(void (*kernel)(A...), Grid grid) {
    return described(kernel, grid, std::index_sequence_for<A...>());
}

#define KERNEL(name, grid) {#name, described(name, Grid::grid)}
using Reconstruct = void (*)(const int*, const unsigned char*, const uint4*, const int*, const int*, double*, int, int, int,
                             double, double);  // one of two functions of that name
static std::map<std::string, Entry> entries = {
    KERNEL(sample_inner, in_turn), KERNEL(settle_inner, in_turn), KERNEL(measure_rows, in_turn),
    KERNEL(measure_columns, in_turn), KERNEL(join_columns, in_turn), KERNEL(bound_first_wave, at_once),
    KERNEL(bound_others, at_once), KERNEL(decide, in_turn), KERNEL(rows_to_residues, in_turn),
    KERNEL(columns_to_residues, in_turn), KERNEL(multiply, at_once), KERNEL(multiply_whole, at_once),
    {"reconstruct", described(static_cast<Reconstruct>(reconstruct), Grid::in_turn)}, KERNEL(native_nn, in_turn), KERNEL(native_nt, in_turn), KERNEL(native_tn, in_turn),
    KERNEL(native_tt, in_turn),
};

static int launched(Entry* entry, const unsigned* blocks, unsigned cluster, void** extra) {
    for (const char* chooses : {"decide", "bound_others"}) {  // residues wherever they are allowed, however small C is
        if (entry == &entries.at(chooses)) {
            const int eager = 1;
            memcpy(static_cast<char*>(extra[1]) + entry->parameters.back().first, &eager, sizeof eager);
        }
    }
    entry->launch(blocks, cluster, static_cast<const char*>(extra[1]));
    if (!hopper_grid::problem.empty()) {
        fprintf(stderr, "%s\n", hopper_grid::problem.c_str());
        return 700;
    }
    return 0;
}

extern "C" {
int cuInit(unsigned) { return 0; }
int cuGetErrorName(int, const char** name) { return *name = "CUDA_ERROR", 0; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
    return *value = attribute == 75 ? 9 : attribute == 76 ? 0 : SMS, 0;
}
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuDevicePrimaryCtxRetain(void** context, int) { return *context = &entries, 0; }
int cuCtxGetCurrent(void** context) { return *context = nullptr, 0; }
int cuCtxPushCurrent_v2(void*) { return 0; }
int cuCtxPopCurrent_v2(void** context) { return 0; }
int cuLibraryLoadData(void** code, ...) { return *code = &entries, 0; }
int cuLibraryGetKernel(void** kernel, void*, const char* name) {
    const auto found = entries.find(name);
    return found == entries.end() ? 500 : (*kernel = &found->second, 0);
}
int cuKernelGetFunction(void** function, void* kernel) { return *function = kernel, 0; }
int cuFuncSetAttribute(void*, int, int) { return 0; }
int cuFuncGetParamInfo(Entry* entry, size_t index, size_t* offset, size_t* size) {
    if (index >= entry->parameters.size()) return 1;
    return std::tie(*offset, *size) = entry->parameters[index], 0;
}
int cuLaunchKernel(Entry* entry, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned, unsigned, unsigned, void*, void**,
                   void** extra) {
    const unsigned blocks[] = {x, y, z, bx};
    return launched(entry, blocks, 1, extra);
}
struct Config {
    unsigned grid[3], block[3], shared;
    void* stream;
    int* attributes;
    unsigned count;
};
int cuLaunchKernelEx(const Config* config, Entry* entry, void**, void** extra) {
    const unsigned blocks[] = {config->grid[0], config->grid[1], config->grid[2], config->block[0]};
    return launched(entry, blocks, config->attributes[2], extra);
}
int cuTensorMapEncodeTiled(TensorMap* map, int, unsigned, void* at, const size_t* sizes, const size_t* strides,
                           const unsigned* box, const unsigned*, int, int, int, int) {
    if (strides[0] != sizes[0]) return 1;
    *map = TensorMap(static_cast<unsigned char*>(at), sizes[1], sizes[0], box[1], box[0], 128);
    return 0;
}
int cuPointerGetAttribute(int* device, int, size_t) { return *device = 0, 0; }
int cuStreamSynchronize(void*) { return 0; }
int cuStreamIsCapturing(void*, int* active) { return *active = 0, 0; }
int cuStreamWaitEvent(void*, void*, unsigned) { return 0; }
int cuStreamCreate(void** stream, unsigned) { return *stream = &entries, 0; }
int cuEventCreate(void** event, unsigned) { return *event = &entries, 0; }
int cuEventRecord(void*, void*) { return 0; }
int cuEventDestroy_v2(void*) { return 0; }
int cuEventSynchronize(void*) { return 0; }
int cuMemHostAlloc(void** at, size_t size, unsigned) { return *at = malloc(size), 0; }
int cuMemcpyDtoHAsync_v2(void* to, const void* from, size_t size, void*) { return memcpy(to, from, size), 0; }
int cuMemcpyDtoH_v2(void* to, const void* from, size_t size) { return memcpy(to, from, size), 0; }
int cuMemcpyHtoDAsync_v2(void* to, const void* from, size_t size, void*) { return memcpy(to, from, size), 0; }
int cuMemcpyDtoDAsync_v2(void* to, const void* from, size_t size, void*) { return memmove(to, from, size), 0; }
int cuMemsetD32Async(void* at, unsigned, size_t words, void*) { return memset(at, 0, 4 * words), 0; }
}
