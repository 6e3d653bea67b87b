// Looks at every access of a kernel to memory before it happens. The compiler announces them by the calls that it makes for its thread
// sanitizer, whose own library is not there.
//
// Found are accesses outside of every buffer, writes to what is only read, reads of what was not written, and races: two accesses to one
// element, one of them a write, by threads between which there is no barrier of their block. What is found does not depend on the order in which
// threads run.
#include "twin.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

// Where a library begins and ends, and its shared memory.
extern "C" char __ehdr_start[] __attribute__((visibility("hidden")));
extern "C" char _end[] __attribute__((visibility("hidden")));
extern "C" char __start_twin_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_twin_shared[] __attribute__((weak, visibility("hidden")));

namespace twin {
namespace {

// Who wrote an element last, and who has read it since.
struct Cell {
    Who writer, reader;
    // Others have read it, too: of the reader's block since the same barrier, or of another block.
    bool others, other_blocks;
};

struct Watched {
    uint64_t start, end;
    uint32_t element;
    uint32_t state;
    Cell* cells;
};

constexpr uint32_t SHARED_ELEMENT = 4;

std::vector<Watched> watched;
std::vector<Cell> shared_cells;
size_t last_hit;

bool ordered(const Who& before, const Who& now) {
    return before.thread == now.thread || (before.block == now.block && before.phase < now.phase);
}

[[noreturn]] void race(const char* what, const char* where, const Who& other, const Who& now) {
    if (other.block != now.block) fault("a race between blocks: %s in %s, by a thread of another block before", what, where);
    fault("a race within a block: %s in %s, by another thread since the last barrier", what, where);
}

void read(Cell& cell, const Who& now, const char* where) {
    if (cell.writer.thread && !ordered(cell.writer, now)) race("a read of what was written", where, cell.writer, now);
    Who& reader = cell.reader;
    if (reader.thread == 0 || ordered(reader, now)) {
        if (reader.phase != now.phase || reader.block != now.block) cell.others = false;
        reader = now;
    } else if (reader.block == now.block) {
        cell.others = true;
    } else {
        cell.other_blocks = true;
    }
}

void write(Cell& cell, const Who& now, const char* where) {
    if (cell.writer.thread && !ordered(cell.writer, now)) race("a second write", where, cell.writer, now);
    if (cell.reader.thread) {
        bool since = cell.others && cell.reader.block == now.block && cell.reader.phase == now.phase;
        if (!ordered(cell.reader, now) || since) race("a write of what was read", where, cell.reader, now);
        if (cell.other_blocks) fault("a race between blocks: a write of what was read in %s, by a thread of another block before", where);
    }
    cell = Cell{now, {}, false, false};
}

Watched* buffer_at(uint64_t address) {
    if (last_hit < watched.size() && watched[last_hit].start <= address && address < watched[last_hit].end) return &watched[last_hit];
    auto after = std::upper_bound(watched.begin(), watched.end(), address, [](uint64_t at, const Watched& one) { return at < one.start; });
    if (after == watched.begin() || address >= (after - 1)->end) return nullptr;
    last_hit = after - 1 - watched.begin();
    return &watched[last_hit];
}

void in_shared(uint64_t offset, size_t size, bool writes) {
    Who now = who();
    for (size_t cell = offset / SHARED_ELEMENT; cell <= (offset + size - 1) / SHARED_ELEMENT; ++cell) {
        if (cell >= shared_cells.size()) fault("an access beyond shared memory");
        if (writes) {
            write(shared_cells[cell], now, "shared memory");
        } else {
            if (!shared_cells[cell].writer.thread) fault("a read of shared memory that is not set");
            read(shared_cells[cell], now, "shared memory");
        }
    }
}

void in_buffer(Watched& buffer, uint64_t address, size_t size, bool writes) {
    if (address + size > buffer.end) fault("an access beyond a buffer, by %llu bytes", (unsigned long long)(address + size - buffer.end));
    if (!buffer.cells) {
        if (writes) fault("a write to a buffer that is only read");
        return;
    }
    Who now = who();
    uint64_t offset = address - buffer.start;
    for (uint64_t cell = offset / buffer.element; cell <= (offset + size - 1) / buffer.element; ++cell) {
        if (writes) {
            write(buffer.cells[cell], now, "a buffer");
        } else {
            if (buffer.state == TWIN_UNSET && !buffer.cells[cell].writer.thread) fault("a read of a buffer's element that is not set");
            read(buffer.cells[cell], now, "a buffer");
        }
    }
}

void access(const void* at, size_t size, bool writes) {
    uint64_t address = (uint64_t)at, first = (uint64_t)__start_twin_shared, end = (uint64_t)__stop_twin_shared;
    if (size == 0 || on_own_stack(address)) return;
    if (first <= address && address < end) return in_shared(address - first, size, writes);
    if (Watched* buffer = buffer_at(address)) return in_buffer(*buffer, address, size, writes);
    // Constants, and the parameters themselves.
    if (!writes && (uint64_t)__ehdr_start <= address && address + size <= (uint64_t)_end) return;
    fault("%s outside of every buffer", writes ? "a write" : "a read");
}

// As the compiler takes it to be aligned, a device does.
void aligned_access(const void* at, size_t size, bool writes) {
    if ((uint64_t)at % size) fault("an address that is not aligned: %s of %zu bytes", writes ? "a write" : "a read", size);
    access(at, size, writes);
}

}  // namespace

void watch(const TwinBuffer* buffers, uint64_t count) {
    forget();
    for (uint64_t i = 0; i < count; ++i) {
        const TwinBuffer& one = buffers[i];
        Cell* cells = nullptr;
        if (one.state != TWIN_CONSTANT) cells = (Cell*)calloc((one.bytes + one.element - 1) / one.element + 1, sizeof(Cell));
        watched.push_back({one.start, one.start + one.bytes, one.element, one.state, cells});
    }
    std::sort(watched.begin(), watched.end(), [](const Watched& a, const Watched& b) { return a.start < b.start; });
}

void begin_block() {
    size_t bytes = __stop_twin_shared - __start_twin_shared;
    if (bytes) memset(__start_twin_shared, (int)(draw() | 0x80) & 0xff, bytes);
    shared_cells.assign((bytes + SHARED_ELEMENT - 1) / SHARED_ELEMENT, Cell{});
}

void forget() {
    for (Watched& one : watched) free(one.cells);
    watched.clear();
    last_hit = 0;
}

}  // namespace twin

#define TWIN_ACCESSES(size)                                                                            \
    extern "C" void __tsan_read##size(void* at) { twin::aligned_access(at, size, false); }             \
    extern "C" void __tsan_write##size(void* at) { twin::aligned_access(at, size, true); }             \
    extern "C" void __tsan_unaligned_read##size(void* at) { twin::access(at, size, false); }           \
    extern "C" void __tsan_unaligned_write##size(void* at) { twin::access(at, size, true); }           \
    extern "C" void __tsan_volatile_read##size(void* at) { twin::aligned_access(at, size, false); }    \
    extern "C" void __tsan_volatile_write##size(void* at) { twin::aligned_access(at, size, true); }    \
    extern "C" void __tsan_read##size##_pc(void* at, void*) { twin::aligned_access(at, size, false); } \
    extern "C" void __tsan_write##size##_pc(void* at, void*) { twin::aligned_access(at, size, true); }
TWIN_ACCESSES(1)
TWIN_ACCESSES(2)
TWIN_ACCESSES(4)
TWIN_ACCESSES(8)
TWIN_ACCESSES(16)
extern "C" void __tsan_read_range(void* at, unsigned long size) { twin::access(at, size, false); }
extern "C" void __tsan_write_range(void* at, unsigned long size) { twin::access(at, size, true); }
extern "C" void* __tsan_memcpy(void* to, const void* from, unsigned long size) {
    twin::access(from, size, false);
    twin::access(to, size, true);
    return memcpy(to, from, size);
}
extern "C" void* __tsan_memset(void* to, int byte, unsigned long size) {
    twin::access(to, size, true);
    return memset(to, byte, size);
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit(void*) {}

// What C++ leaves undefined and a device does in its own way. The first field of what the compiler tells is the place in the source.
namespace {
struct Place {
    const char* file;
    uint32_t line, column;
};
[[noreturn]] void undefined(const void* place, const char* what) { twin::fault("%s in line %u", what, ((const Place*)place)->line); }
}  // namespace
#define TWIN_UNDEFINED(name, what, ...)                                                                \
    extern "C" void __ubsan_handle_##name(void* place, ##__VA_ARGS__) { undefined(place, what); }      \
    extern "C" void __ubsan_handle_##name##_abort(void* place, ##__VA_ARGS__) { undefined(place, what); }
TWIN_UNDEFINED(shift_out_of_bounds, "a shift by more bits than there are", void*, void*)
TWIN_UNDEFINED(out_of_bounds, "a place beyond an array", void*)
TWIN_UNDEFINED(divrem_overflow, "a division by 0", void*, void*)
TWIN_UNDEFINED(type_mismatch_v1, "an address that is not aligned", void*)
