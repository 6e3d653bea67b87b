// What the parts of the host twin tell one another.
#pragma once
#include <cstddef>
#include <cstdint>

struct uint3 {
    unsigned x, y, z;
};

struct TwinKernel {
    const char* name;
    void (*run)(void** parameters);
    unsigned count;
    const unsigned* sizes;
};

// A buffer in the device's memory, as the caller that launches describes it. The layout is known to library.rs.
struct TwinBuffer {
    uint64_t start;
    uint64_t bytes;
    // Bytes of one element.
    uint32_t element;
    // One of TWIN_CONSTANT, TWIN_SET, TWIN_UNSET.
    uint32_t state;
};

enum : uint32_t { TWIN_CONSTANT, TWIN_SET, TWIN_UNSET };

namespace twin {

// Who runs: the thread's number in the grid counted from 1, its block's, and how many barriers its block has passed.
struct Who {
    uint32_t thread, block, phase;
};

// Ends the launch with this report. Does not return to the kernel.
[[noreturn]] void fault(const char* format, ...) __attribute__((format(printf, 1, 2)));
// Whether an address is on the stack of the thread that runs.
bool on_own_stack(uint64_t address);
Who who();
// Draws a number from the launch's seed.
uint64_t draw();

// Before a launch, before each of its blocks, and after it.
void watch(const TwinBuffer* buffers, uint64_t count);
void begin_block();
void forget();

}  // namespace twin
