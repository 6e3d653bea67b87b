// Runs a grid: one block after the other, the threads of a block as fibres. Which block is next, and in which order threads go on after a barrier
// or a shuffle, is drawn from a seed. Knows no kernel.
#include "twin.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <ucontext.h>
#include <utility>
#include <vector>

extern const TwinKernel twin_kernels[];

namespace twin {
namespace {

constexpr size_t STACK_BYTES = 64 * 1024;
constexpr size_t MOST_PARAMETER_BYTES = 4096;
constexpr unsigned MOST_PARAMETERS = 32;
constexpr unsigned WARP = 32;

enum class At { Ready, Barrier, Exchange, Done };

struct Fibre {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    uint3 place;
    At at;
    // What it waits at, by the line in the source.
    unsigned line;
    // What it brings to a shuffle, for which lanes it waits, and whose value it gets.
    uint64_t value;
    unsigned mask, lane;
};

std::vector<std::unique_ptr<Fibre>> fibres;
Fibre* running;
size_t running_number;
ucontext_t scheduler;

const TwinKernel* kernel;
alignas(16) char parameters[MOST_PARAMETER_BYTES];
// Within the library, as what kernels read must be.
void* addresses[MOST_PARAMETERS];
uint3 threads, blocks, block;
size_t threads_in_block;
uint32_t block_number, phase;
uint64_t state;
bool seeded;

bool failed;
char report[512];

void say_all(const char* format, va_list rest) {
    int length = snprintf(report, sizeof report, "%s, block %u,%u", kernel->name, block.x, block.y);
    if (running) length += snprintf(report + length, sizeof report - length, ", thread %u,%u", running->place.x, running->place.y);
    length += snprintf(report + length, sizeof report - length, ": ");
    vsnprintf(report + length, sizeof report - length, format, rest);
    failed = true;
}

// Notes a fault that no single thread is at.
__attribute__((format(printf, 1, 2))) void say(const char* format, ...) {
    va_list rest;
    va_start(rest, format);
    say_all(format, rest);
    va_end(rest);
}

void go_on(Fibre& fibre) { swapcontext(&scheduler, &fibre.context); }
void leave(At at) {
    Fibre& own = *running;
    own.at = at;
    swapcontext(&own.context, &scheduler);
}

// A fibre runs one thread after the other, of block after block, so that it is made once.
void life() {
    for (;;) {
        kernel->run(addresses);
        leave(At::Done);
    }
}

void make(Fibre& fibre) {
    if (!fibre.stack) fibre.stack.reset(new char[STACK_BYTES]);
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = fibre.stack.get();
    fibre.context.uc_stack.ss_size = STACK_BYTES;
    fibre.context.uc_link = nullptr;
    makecontext(&fibre.context, life, 0);
}

void mix_up(std::vector<size_t>& order) {
    if (!seeded) return;
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draw() % i]);
}

std::vector<size_t> numbers(size_t count) {
    std::vector<size_t> order(count);
    for (size_t i = 0; i < count; ++i) order[i] = i;
    return order;
}

// Lanes of a warp meet at a shuffle: once all that are waited for are there, each gets its value.
bool meet(size_t warp) {
    size_t first = warp * WARP, end = first + WARP < threads_in_block ? first + WARP : threads_in_block;
    unsigned wanted = 0, there = 0, line = 0;
    for (size_t i = first; i < end; ++i) {
        if (fibres[i]->at != At::Exchange) continue;
        if (there && fibres[i]->line != line) return false;
        line = fibres[i]->line;
        wanted |= fibres[i]->mask;
        there |= 1u << (i - first);
    }
    if (!there || (wanted & ~there)) return false;
    uint64_t values[WARP] = {};
    for (size_t i = first; i < end; ++i) values[i - first] = fibres[i]->value;
    for (size_t i = first; i < end; ++i) {
        Fibre& own = *fibres[i];
        if (own.at != At::Exchange) continue;
        if (!(there >> own.lane & 1)) {
            say("a shuffle that reads lane %u, which does not take part", own.lane);
            return false;
        }
        own.value = values[own.lane];
        own.at = At::Ready;
    }
    return true;
}

// All threads wait at one barrier, or have ended, or this is a fault. True when the block has ended.
bool pass_barrier() {
    size_t waiting = 0, done = 0;
    unsigned line = 0;
    bool same = true;
    for (size_t i = 0; i < threads_in_block; ++i) {
        done += fibres[i]->at == At::Done;
        if (fibres[i]->at != At::Barrier) continue;
        same &= !waiting || fibres[i]->line == line;
        line = fibres[i]->line;
        ++waiting;
    }
    if (done == threads_in_block) return true;
    if (waiting + done < threads_in_block) say("a shuffle at which not all lanes arrive that it waits for");
    else if (done) say("a divergent barrier: %zu threads wait in line %u, and %zu have ended", waiting, line, done);
    else if (!same) say("a divergent barrier: threads wait at different ones, one of them in line %u", line);
    for (size_t i = 0; i < threads_in_block; ++i) fibres[i]->at = At::Ready;
    ++phase;
    return false;
}

void run_block() {
    begin_block();
    phase = 1;
    for (size_t i = 0; i < threads_in_block; ++i) fibres[i]->at = At::Ready;
    std::vector<size_t> order = numbers(threads_in_block);
    do {
        bool ran = true;
        while (ran) {
            ran = false;
            mix_up(order);
            for (size_t i : order) {
                if (fibres[i]->at != At::Ready) continue;
                running = fibres[i].get();
                running_number = i;
                ran = true;
                go_on(*running);
                if (failed) return;
            }
            running = nullptr;
            for (size_t warp = 0; warp * WARP < threads_in_block; ++warp) ran |= meet(warp);
            if (failed) return;
        }
    } while (!pass_barrier() && !failed);
}

void run_grid() {
    size_t count = (size_t)blocks.x * blocks.y * blocks.z;
    std::vector<size_t> order = numbers(count);
    mix_up(order);
    for (size_t number : order) {
        block_number = (uint32_t)number;
        block = {(unsigned)(number % blocks.x), (unsigned)(number / blocks.x % blocks.y), (unsigned)(number / blocks.x / blocks.y)};
        run_block();
        if (failed) return;
    }
}

}  // namespace

void fault(const char* format, ...) {
    va_list rest;
    va_start(rest, format);
    say_all(format, rest);
    va_end(rest);
    setcontext(&scheduler);
    abort();
}

bool on_own_stack(uint64_t address) {
    uint64_t start = (uint64_t)running->stack.get();
    return start <= address && address < start + STACK_BYTES;
}

Who who() { return {(uint32_t)(block_number * threads_in_block + running_number + 1), block_number, phase}; }

uint64_t draw() {
    state += 0x9e3779b97f4a7c15ull;
    uint64_t x = state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

}  // namespace twin

extern "C" uint3 twin_thread() { return twin::running->place; }
extern "C" uint3 twin_block() { return twin::block; }
extern "C" uint3 twin_threads() { return twin::threads; }
extern "C" uint3 twin_blocks() { return twin::blocks; }
extern "C" unsigned twin_lane() { return (unsigned)(twin::running_number % twin::WARP); }
extern "C" void twin_barrier(unsigned line) {
    twin::running->line = line;
    twin::leave(twin::At::Barrier);
}
extern "C" unsigned long long twin_exchange(unsigned mask, unsigned long long own, unsigned lane, unsigned line) {
    twin::Fibre& fibre = *twin::running;
    fibre.value = own;
    fibre.mask = mask;
    fibre.lane = lane;
    fibre.line = line;
    twin::leave(twin::At::Exchange);
    return fibre.value;
}

// The kernel of this number: its name, or null when there is none; how many parameters it has, and their sizes.
extern "C" __attribute__((visibility("default"))) const char* twin_kernel(uint64_t number, uint32_t* count, const uint32_t** sizes) {
    *count = twin_kernels[number].count;
    *sizes = twin_kernels[number].sizes;
    return twin_kernels[number].name;
}

// Runs the kernel of this number. `values` are its parameters' bytes, one behind the other, each at the next multiple of 16. Seed 0 is the order of
// the numbers. Null when all went well; otherwise what was wrong, until the next launch.
extern "C" __attribute__((visibility("default"))) const char* twin_launch(uint64_t number, const uint32_t grid[3], const uint32_t block[3],
                                                                          const char* values, uint64_t bytes, const TwinBuffer* buffers,
                                                                          uint64_t count, uint64_t seed) {
    using namespace twin;
    kernel = &twin_kernels[number];
    failed = false;
    running = nullptr;
    blocks = {grid[0], grid[1], grid[2]};
    threads = {block[0], block[1], block[2]};
    threads_in_block = (size_t)threads.x * threads.y * threads.z;
    state = seed;
    seeded = seed != 0;
    if (bytes > sizeof parameters) return "the parameters have more bytes than a kernel may have";
    memcpy(parameters, values, bytes);
    if (kernel->count > MOST_PARAMETERS) return "a kernel has more parameters than there is room for";
    size_t at = 0;
    for (unsigned i = 0; i < kernel->count; ++i) {
        addresses[i] = parameters + at;
        at += (kernel->sizes[i] + 15) / 16 * 16;
    }
    while (fibres.size() < threads_in_block) {
        fibres.emplace_back(new Fibre());
        make(*fibres.back());
    }
    for (size_t i = 0; i < threads_in_block; ++i) {
        fibres[i]->place = {(unsigned)(i % threads.x), (unsigned)(i / threads.x % threads.y), (unsigned)(i / threads.x / threads.y)};
    }
    watch(buffers, count);
    run_grid();
    forget();
    // Whatever fibres were in is given up.
    if (failed) fibres.clear();
    return failed ? report : nullptr;
}
