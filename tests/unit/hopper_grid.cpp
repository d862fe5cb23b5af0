// The engine of hopper_grid.hpp, compiled once: threads, meetings, the copy engine and the tensor cores.
#include "hopper_grid.hpp"

namespace hopper_grid {

static jmp_buf scheduler;
static Event body;
static std::vector<Fiber*> fibers;  // of this launch
static unsigned starved = 0;        // the warpgroup whose products are made last; none if there is no such warpgroup
static unsigned grid_width = 1, first_block = 0;  // of the blocks that run: columns of their grid, and the first's number
static std::vector<unsigned> awake;  // threads that may run in the next pass, by number
static bool woken = false;           // whether threads behind a barrier or a product may have become ready since

void report(const std::string& what) {
    if (problem.empty()) {
        problem = what + " (block " + std::to_string(running ? running->block->index : 0) + ", thread " +
                  std::to_string(running ? running->thread : 0) + ", seed " + std::to_string(seed) + ")";
    }
}

void suspend() {
    if (!_setjmp(running->place)) {
        _longjmp(scheduler, 1);
    }
}

void meet(Wait wait, int group) {
    running->wait = wait, running->group = group, running->block->changed = true;
    suspend();
}

static void run_body() {
    body();
    if (running->products.size() > 1 || running->products.back() > 0) {
        report("a thread left while its wgmma still ran");
    }
    for (const auto& group : running->stores) {
        if (!group.empty()) {
            report("a thread left while its TMA stores still read shared memory");
        }
    }
    running->done = running->block->changed = true, ++running->block->left_threads;
    _longjmp(scheduler, 1);
}

// Runs the thread until it waits, lets others go first, or leaves.
static void resume(Fiber* fiber, char* stack) {
    constexpr size_t STACK = 1 << 15;
    if (_setjmp(scheduler)) {
        return;
    }
    if (fiber->begun) {
        _longjmp(fiber->place, 1);
    }
    fiber->begun = true;
    static ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stack, context.uc_stack.ss_size = STACK;
    makecontext(&context, run_body, 0);
    setcontext(&context);
}

static bool made(const Fiber& fiber, unsigned count) {
    return count == 0 || fiber.block->products[fiber.thread / 128].made >= count;
}

static bool ready(const Fiber& fiber) {
    return !fiber.done &&
           (fiber.wait == Wait::none || (fiber.wait == Wait::barrier && (fiber.barrier->phase & 1) != fiber.parity) ||
            (fiber.wait == Wait::products && made(fiber, fiber.awaited)));
}

// Lets go whoever waits for others that have all come.
static void open_meetings() {
    const auto let_go = [](Fiber** first, Fiber** last) {
        std::for_each(first, last, [](Fiber* fiber) {
            fiber->wait = Wait::none;
            awake.push_back(fiber->block->index * blockDim.x + fiber->thread);
        });
    };
    const auto wait_or_left = [](Fiber** first, Fiber** last, Wait wait) {
        return std::all_of(first, last, [=](Fiber* fiber) { return fiber->done || fiber->wait == wait; });
    };
    for (size_t b = 0; b < blocks.size(); ++b) {
        if (!blocks[b].changed) {
            continue;
        }
        Fiber **const first = &fibers[b * blockDim.x], **const last = first + blockDim.x;
        for (Fiber** warp = first; warp < last; warp += 32) {
            if (wait_or_left(warp, warp + 32, Wait::warp)) {
                let_go(warp, warp + 32);
            }
        }
        if (wait_or_left(first, last, Wait::block)) {
            let_go(first, last);
        }
        std::map<int, std::vector<Fiber*>> groups;
        for (Fiber** fiber = first; fiber < last; ++fiber) {
            if ((*fiber)->wait == Wait::group) {
                groups[(*fiber)->group].push_back(*fiber);
            }
        }
        for (auto& [id, members] : groups) {
            if (members.size() == 128) {
                let_go(members.data(), members.data() + 128);
            }
        }
    }
    for (size_t b = 0; b < blocks.size(); b += cluster_size) {
        Fiber **const first = &fibers[b * blockDim.x], **const last = first + cluster_size * blockDim.x;
        if (std::all_of(first, last, [](Fiber* fiber) { return fiber->wait == Wait::cluster; })) {
            let_go(first, last);
        }
    }
    for (Block& block : blocks) {
        block.changed = false;
    }
}

void run_copy(size_t which) {
    const Event copy = copies[which];
    copies.erase(copies.begin() + which);
    copy();
}

// Makes the next product of a warpgroup. False if it has none that all its threads have issued.
static bool run_product(Products& products) {
    if (products.made == products.all.size() || products.all[products.made].parts.size() < 128) {
        return false;
    }
    auto& parts = products.all[products.made].parts;
    for (const Event& part : parts) {
        part();
    }
    parts.clear(), parts.shrink_to_fit(), ++products.made, woken = true;
    return true;
}

// Lets the copy engine or the tensor cores do something: a copy if `copy_first` and there is one; a product of the
// starved warpgroup only if no thread can run. False if there is nothing to do.
static bool run_engines(bool copy_first, bool idle) {
    if (copy_first && !copies.empty()) {
        run_copy(seed > 2 ? random_engine() % copies.size() : 0);
        return true;
    }
    std::vector<Products*> queues, last;
    for (Block& block : blocks) {
        for (size_t warpgroup = 0; warpgroup < block.products.size(); ++warpgroup) {
            if (!block.products[warpgroup].all.empty()) {
                (warpgroup == starved ? last : queues).push_back(&block.products[warpgroup]);
            }
        }
    }
    if (seed > 2) {
        std::shuffle(queues.begin(), queues.end(), random_engine);
    }
    const auto run_one = [](const auto& of) {
        return std::any_of(of.begin(), of.end(), [](Products* products) { return run_product(*products); });
    };
    if (run_one(queues)) {
        return true;
    }
    if (!copies.empty()) {
        run_copy(0);
        return true;
    }
    return idle && run_one(last);
}

static void report_deadlock() {
    std::map<std::string, int> where;
    const char* names[] = {"-", "an mbarrier", "the warp", "the block", "the cluster", "a named barrier", "a wgmma"};
    for (const Fiber* fiber : fibers) {
        if (!fiber->done) {
            ++where[names[int(fiber->wait)]];
        }
    }
    running = nullptr;
    std::string text = "deadlock:";
    for (const auto& [name, number] : where) {
        text += " " + std::to_string(number) + " threads wait for " + name + ";";
    }
    report(text);
}

static void run_blocks(unsigned count, unsigned threads, unsigned cluster, const Event& kernel_call, int with_seed) {
    constexpr size_t STACK = 1 << 15;
    blockDim = {threads, 1, 1}, body = kernel_call;
    seed = with_seed, cluster_size = cluster, problem.clear(), copies.clear(), random_engine.seed(seed);
    static std::vector<unsigned char> memory;
    static std::vector<std::unique_ptr<char[]>> stacks;
    memory.assign(size_t(count + 1) * (MOST_SHARED + 1024) + 1024, 0xFF);
    auto* base = reinterpret_cast<unsigned char*>((reinterpret_cast<uintptr_t>(memory.data()) + 1023) & ~uintptr_t(1023));
    blocks.assign(count, {});
    std::vector<Fiber> all(size_t(count) * threads);
    fibers.resize(all.size());
    while (stacks.size() < all.size()) {
        stacks.emplace_back(new char[STACK]);
    }
    for (unsigned b = 0; b < count; ++b) {
        blocks[b].index = b, blocks[b].rank = b % cluster, blocks[b].cluster = b / cluster;
        blocks[b].shared = base + size_t(b) * (MOST_SHARED + 1024), blocks[b].next_static = dynamic_bytes;
        blocks[b].fibers = &all[b * threads], blocks[b].products.resize((threads + 127) / 128);
        for (unsigned t = 0; t < threads; ++t) {
            Fiber& fiber = all[b * threads + t];
            fiber.block = &blocks[b], fiber.thread = t;
            fibers[b * threads + t] = &fiber;
        }
    }
    // A warp runs in one pass of so many; some warps are slow for a while, and some clusters for good.
    std::vector<int> slow_warps(all.size() / 32 + 1, 1), slow_clusters(count / cluster, 1);
    const unsigned while_slow = chance(2) ? 32 : 512;
    const unsigned engines = std::array{16, 4, 0}[random_engine() % 3];  // how much they do whenever a thread has run
    starved = seed == 2 ? 0 : seed > 2 ? random_engine() % 4 : ~0u;
    for (int& passes : slow_clusters) {
        passes = chance(3) ? 20 : 1;
    }
    size_t left = all.size();
    const auto has_turn = [&](unsigned number) {
        return seed <= 2 || chance(slow_warps[number / 32] * slow_clusters[all[number].block->cluster]);
    };
    const auto run = [&](unsigned number) {
        Fiber& fiber = all[number];
        fiber.wait = Wait::none, running = &fiber, threadIdx = {fiber.thread, 0, 0};
        const unsigned block = first_block + fiber.block->index;
        blockIdx = {block % grid_width, block / grid_width, 0};
        resume(&fiber, stacks[number].get());
        left -= fiber.done;
        if (ready(fiber)) {
            awake.push_back(number);
        }
        for (unsigned i = engines + chance(4); seed > 2 && problem.empty() && i > 0 && run_engines(chance(2), false); --i) {
        }
    };
    std::vector<unsigned> turn;
    woken = true;
    for (unsigned pass = 0; problem.empty() && left > 0; ++pass) {
        if (woken) {
            awake.clear(), woken = false;
            for (unsigned number = 0; number < all.size(); ++number) {
                if (ready(all[number])) {
                    awake.push_back(number);
                }
            }
        } else {
            std::sort(awake.begin(), awake.end());
        }
        turn.swap(awake), awake.clear();
        if (seed == 1 || seed == 2) {
            std::reverse(turn.begin(), turn.end());
        } else if (seed > 2) {
            for (size_t warp = 0; pass % while_slow == 0 && warp < slow_warps.size(); ++warp) {
                slow_warps[warp] = std::array{1, 1, 2, 6, 40}[random_engine() % 5];
            }
            if (chance(4)) {
                std::shuffle(turn.begin(), turn.end(), random_engine);
            } else if (!turn.empty()) {
                std::rotate(turn.begin(), turn.begin() + random_engine() % turn.size(), turn.end());
            }
        }
        bool ran = false;
        for (size_t i = 0; i < turn.size() && problem.empty(); ++i) {
            if (!ready(all[turn[i]])) {
                continue;
            }
            if (has_turn(turn[i])) {
                run(turn[i]), ran = true;
            } else {
                awake.push_back(turn[i]);
            }
        }
        while (!ran && !awake.empty()) {  // what others would see of the passes in which no thread runs is nothing
            unsigned& next = awake[random_engine() % awake.size()];
            if (has_turn(next)) {
                const unsigned number = next;
                next = awake.back(), awake.pop_back();
                run(number), ran = true;
            }
        }
        if (ran) {
            open_meetings();
        } else if (!run_engines(seed == 0 || (seed > 2 && chance(2)), true)) {
            report_deadlock();
            return;
        }
    }
    if (problem.empty() && !copies.empty()) {
        running = nullptr;
        report("a TMA load was still under way when all blocks had left");
    }
}

void launch(unsigned grid_x, unsigned grid_y, unsigned threads, unsigned cluster, const Event& kernel_call, int with_seed) {
    gridDim = {grid_x, grid_y, 1}, grid_width = grid_x, first_block = 0;
    run_blocks(grid_x * grid_y, threads, cluster, kernel_call, with_seed);
}

void launch_in_turn(unsigned grid_x, unsigned grid_y, unsigned threads, const Event& kernel_call, int with_seed,
                    unsigned cluster) {
    gridDim = {grid_x, grid_y, 1}, grid_width = grid_x;
    for (first_block = 0; first_block < grid_x * grid_y && (first_block == 0 || problem.empty()); first_block += cluster) {
        run_blocks(cluster, threads, cluster, kernel_call, with_seed);
    }
}

BarrierState& state_of(const Block& block, unsigned offset) {
    auto& barriers = const_cast<Block&>(block).barriers;
    if (!barriers.count(offset)) {
        report("a barrier is used that was not initialised");
    }
    return barriers[offset];
}

void settle(BarrierState& state) {
    if (state.pending < 0) {
        report("more arrivals than the barrier's count");
    }
    if (state.pending == 0 && state.bytes == 0) {
        ++state.phase, woken = true;
        state.pending = state.arrivals;
    }
}

void* allotted(int line, unsigned size, unsigned alignment) {
    Block& block = *running->block;
    if (!block.statics.count(line)) {
        block.next_static = (block.next_static + alignment - 1) / alignment * alignment;
        block.statics[line] = block.next_static;
        block.next_static += size;
    }
    return block.shared + block.statics[line];
}

// For each 16 bytes of a box whose corner is (row, column): `each` gets where they lie in the matrix, the offset in shared
// memory, and how many of them are inside the matrix.
template <class Each>
static void for_chunks(const TensorMap& map, unsigned at, int column, int row, const Each& each) {
    const int step = 16 / map.size;
    if (map.box_columns % step || at % 16) {
        report("a box's row, or its place in shared memory, is no multiple of 16 bytes");
        return;
    }
    for (int r = 0; r < map.box_rows; ++r) {
        for (int c = 0; c < map.box_columns; c += step) {
            const bool inside = row + r >= 0 && row + r < map.rows && column + c >= 0;
            const int count = inside ? max(0, min(step, map.columns - column - c)) : 0;
            unsigned char* const matrix = map.data + (size_t(row + r) * map.columns + column + c) * map.size;
            each(matrix, swizzled(at + (r * map.box_columns + c) * map.size, map.swizzle), count * map.size);
        }
    }
}

static void load_box(Block& block, unsigned to, const TensorMap& map, int column, int row) {
    for_chunks(map, to, column, row, [&](const unsigned char* matrix, unsigned at, int inside) {
        memset(block.shared + at, 0, 16);
        memcpy(block.shared + at, matrix, inside);
    });
}

void start_load(void* to, const TensorMap& map, Barrier* barrier, int column, int row, int mask) {
    const unsigned place = offset_of(to, *running->block), at = offset_of(barrier, *running->block);
    const int bytes = map.bytes();
    const unsigned first = running->block->index - running->block->rank;
    if (early_launch && !running->waited) {
        report("a load does not wait for the kernel before on the stream");
        return;
    }
    for (int rank = 0; rank < cluster_size; ++rank) {
        if (!(mask >> rank & 1)) {
            continue;
        }
        Block& block = blocks[first + rank];
        if (block.left()) {
            report("a TMA load goes to a block that has left");
            return;
        }
        memset(block.shared + place, 0xFF, bytes);
        const Event copy = [=, &block] {
            if (block.left()) {
                report("TMA writes to a block that has left");
                return;
            }
            load_box(block, place, map, column, row);
            BarrierState& state = state_of(block, at);
            state.bytes -= bytes;
            settle(state);
        };
        copies.push_back(copy);
        if (early()) {
            run_copy(copies.size() - 1);
        }
    }
    perhaps_yield();
}

void finish_groups(std::vector<std::vector<Event>>& groups, size_t open) {
    while (groups.size() > open + 1) {
        for (auto& event : groups.front()) {
            event();
        }
        groups.erase(groups.begin());
    }
}

void issue(const Event& part) {
    const unsigned thread = running->thread;
    ++running->products.back();
    Products& products = running->block->products[thread / 128];
    products.all.resize(max<size_t>(products.all.size(), ++running->issued));
    products.all[running->issued - 1].parts.push_back(part);
    if (seed == 1) {
        run_product(products);
    }
}

void wait_for_products(size_t groups) {
    auto& open = running->products;
    while (open.size() > groups + 1) {
        running->awaited += open.front();
        open.erase(open.begin());
    }
    if (!made(*running, running->awaited)) {
        meet(Wait::products);
    }
    perhaps_yield();
}

void store_tiles(unsigned address, const Word* words, unsigned tiles) {
    Block& block = *running->block;
    block.exchanged[threadIdx.x] = address;
    __syncwarp();
    const unsigned warp = threadIdx.x / 32 * 32, lane = threadIdx.x % 32;
    for (unsigned tile = 0; tile < tiles; ++tile) {
        const unsigned at = block.exchanged[warp + tile * 8 + lane / 4] + lane % 4 * 4;
        memcpy(block.shared + at, &words[tile], 4);
        running->unfenced.push_back({at, at + 4});
    }
    __syncwarp();
}

template void multiply<bf16>(float*, const unsigned char*, Descriptor, Descriptor, bool, unsigned, int);
template void multiply<fp16>(float*, const unsigned char*, Descriptor, Descriptor, bool, unsigned, int);
template void multiply<e4m3>(float*, const unsigned char*, Descriptor, Descriptor, bool, unsigned, int);
template void multiply<signed char>(int*, const unsigned char*, Descriptor, Descriptor, bool, unsigned, int);
template void multiply<unsigned char>(int*, const unsigned char*, Descriptor, Descriptor, bool, unsigned, int);

}  // namespace hopper_grid

void barrier_init(Barrier* barrier, int arrivals) {
    hopper_grid::running->block->barriers[shared_address(barrier)] = {arrivals, arrivals, 0, 0};
}
void barrier_expect(Barrier* barrier, int bytes) {
    auto& state = hopper_grid::state_of(*hopper_grid::running->block, shared_address(barrier));
    state.bytes += bytes, --state.pending;
    hopper_grid::settle(state);
}
void barrier_arrive(Barrier* barrier) {
    hopper_grid::perhaps_yield();
    auto& state = hopper_grid::state_of(*hopper_grid::running->block, shared_address(barrier));
    --state.pending;
    hopper_grid::settle(state);
}
void barrier_arrive_at(Barrier* barrier, int rank) {
    hopper_grid::perhaps_yield();
    const hopper_grid::Block& own = *hopper_grid::running->block;
    hopper_grid::Block& block = hopper_grid::blocks[own.index - own.rank + rank];
    if (block.left()) {
        hopper_grid::report("an arrival at a block that has left");
        return;
    }
    auto& state = hopper_grid::state_of(block, shared_address(barrier));
    --state.pending;
    hopper_grid::settle(state);
}
void barrier_wait(Barrier* barrier, int parity) {
    auto& state = hopper_grid::state_of(*hopper_grid::running->block, shared_address(barrier));
    hopper_grid::perhaps_yield();
    if ((state.phase & 1) == unsigned(parity)) {
        hopper_grid::running->barrier = &state, hopper_grid::running->parity = parity;
        hopper_grid::meet(hopper_grid::Wait::barrier);
    }
}

void copy_word(float* to, const float* from, bool wanted) {
    *to = NAN;
    hopper_grid::running->words.push_back([=] { *to = wanted ? *from : 0; });
}
void barrier_arrive_copied(Barrier* barrier) {
    using namespace hopper_grid;
    const unsigned at = shared_address(barrier);
    copies.push_back([at, block = running->block, words = std::move(running->words)] {
        for (const Event& word : words) {
            word();
        }
        BarrierState& state = state_of(*block, at);
        --state.pending;
        settle(state);
    });
    running->words.clear();
    if (early()) {
        run_copy(copies.size() - 1);
    }
    perhaps_yield();
}

void tma_store(const TensorMap& map, const void* from, int column, int row) {
    using namespace hopper_grid;
    Block& block = *running->block;
    const unsigned at = shared_address(from), end = at + map.bytes();
    for (unsigned thread = 0; thread < blockDim.x; ++thread) {
        for (const auto& [begin, stop] : block.fibers[thread].unfenced) {
            if (begin < end && stop > at) {
                report("the copy engine stores what no shared_fence made visible");
            }
        }
    }
    const Event store = [=, &block] {
        for_chunks(map, at, column, row, [&](unsigned char* matrix, unsigned from_shared, int inside) {
            memcpy(matrix, block.shared + from_shared, inside);
        });
    };
    if (early()) {
        store();
    } else {
        running->stores.back().push_back(store);
    }
}
