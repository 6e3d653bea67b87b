// Memory and streams of a device that is none. Streams are queues: nothing is carried out before it must be, or a seed says so, and then in
// an order that the seed draws, as far as streams and events allow. Memory is poisoned, apart from its neighbours, and closed to the host.
#include "state.h"

#include "process.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace driver {

std::recursive_mutex lock;
std::vector<Stream*> streams;
uint64_t counters[COUNTERS];

namespace {

constexpr size_t REGION = size_t(4) << 30, PAGE = 4096, ALIGNMENT = 256;
constexpr int POISON = 0xff;
// One in so many times.
constexpr uint64_t CHANGES = 16;

uint64_t state = 1;
// In how many of 8 calls the device has gone on meanwhile.
uint64_t eagerness;
std::string said;
Plant kind = NOTHING;
uint64_t number;

struct Allocation {
    size_t bytes;
    // Whether the stream has come to where it was allocated.
    bool valid;
};

char* region;
size_t used, limit = REGION, in_use, opened;
std::map<uint64_t, Allocation> allocations;

struct Pin {
    size_t bytes;
    // Whether it was allocated here, or the program has told of memory of its own.
    bool is_own;
    // The device only reads it.
    bool is_read_only;
};
std::map<char*, Pin> pins;

bool can_go_on(const Stream* stream) {
    if (stream->operations.empty()) return false;
    const Operation& next = stream->operations.front();
    return (!next.wait || next.wait->passed >= next.until) && (!next.ready || next.ready());
}

bool waits_for_others() {
    return std::any_of(streams.begin(), streams.end(), [](const Stream* stream) { return !stream->operations.empty() && stream->operations.front().ready; });
}

// The stream that is most urgent goes on. Which one that is changes now and then, so that the others fall far behind or run far ahead.
bool step() {
    Stream* stream = nullptr;
    for (Stream* one : streams) {
        if (!one->urgency || draw() % CHANGES == 0) one->urgency = draw() | 1;
        if (can_go_on(one) && (!stream || one->urgency > stream->urgency)) stream = one;
    }
    if (!stream) return false;
    Operation operation = std::move(stream->operations.front());
    stream->operations.pop_front();
    if (operation.run) operation.run();
    return true;
}

}  // namespace

uint64_t draw() {
    state += 0x9e3779b97f4a7c15ull;
    uint64_t x = state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

void seed(uint64_t value) {
    state = value;
    eagerness = draw() % 4 ? draw() % 3 : 0;
}

void fault(const std::string& what) {
    if (said.empty()) said = what;
}
bool has_failed() { return !said.empty(); }
const char* report() { return said.empty() ? nullptr : said.c_str(); }
void forgive() { said.clear(); }

void plant(Plant which, uint64_t at) {
    kind = which;
    number = at;
}

bool planted(Plant which) {
    if (kind != which) return false;
    if (number == 0) {
        kind = NOTHING;
        return is_first();
    }
    --number;
    return false;
}

void push(Stream* stream, std::function<void()> run, const void* host, size_t bytes) {
    Operation operation;
    operation.run = std::move(run);
    operation.host = (const char*)host;
    operation.bytes = bytes;
    stream->operations.push_back(std::move(operation));
}

void push_aside(Stream* stream, std::function<void()> run) {
    push(stream, std::move(run));
    stream->operations.back().is_aside = true;
}

Stream* another(Stream* stream) {
    for (Stream* other : streams) if (other != stream) return other;
    return stream;
}

void hasten_last(Stream* stream) {
    auto &operations = stream->operations;
    auto own = operations.end() - 1, before = own;
    while (before != operations.begin() && ((before - 1)->is_aside || (before - 1)->wait)) --before;
    if (before != operations.begin()) std::rotate(before - 1, own, operations.end());
}

void run_until(const std::function<bool()>& done) {
    Open open;
    while (!done() && !has_failed()) {
        if (step()) continue;
        if (!waits_for_others()) fault("all streams wait for events that nobody will record");
        usleep(100);
    }
}

void run_one() {
    Open open;
    if (!has_failed()) step();
}

void run_some() {
    if (draw() % 8 >= eagerness) return;
    Open open;
    for (uint64_t left = draw() % 8; left && !has_failed() && step(); --left) {}
}

bool is_used(const void* host, size_t bytes) {
    const char *start = (const char*)host, *end = start + bytes;
    for (const Stream* stream : streams)
        for (const Operation& one : stream->operations)
            if (one.host && one.host < end && start < one.host + one.bytes) return true;
    return false;
}

bool is_to_run(const void* function) {
    for (const Stream* stream : streams)
        for (const Operation& one : stream->operations) if (one.function == function) return true;
    return false;
}

// With TWIN_OPEN it stays open: closing all that was ever given takes longer and longer.
static bool stays_open() {
    static const bool told = getenv("TWIN_OPEN") != nullptr;
    return told;
}

Open::Open() {
    if (!opened++ && region && !stays_open()) mprotect(region, used, PROT_READ | PROT_WRITE);
}
Open::~Open() {
    if (!--opened && region && !stays_open()) mprotect(region, used, PROT_NONE);
}

uint64_t allocate(size_t bytes, bool now) {
    if (!region) {
        region = (char*)mmap(nullptr, REGION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        used = 0;
    }
    // Nothing is used twice: what was freed stays poisoned, and is not allocated again.
    size_t start = used + ALIGNMENT, pages = (start + bytes + PAGE) / PAGE * PAGE;
    if (bytes > limit - std::min(limit, in_use) || pages > REGION) return 0;
    mprotect(region + used, pages - used, PROT_READ | PROT_WRITE);
    memset(region + used, POISON, pages - used);
    if (!opened && !stays_open()) mprotect(region + used, pages - used, PROT_NONE);
    used = pages;
    uint64_t address = (uint64_t)(region + start);
    allocations[address] = {bytes, now};
    in_use += bytes;
    return address;
}

void valid_from_now(uint64_t address) {
    auto found = allocations.find(address);
    if (found != allocations.end()) found->second.valid = true;
}

void release(uint64_t address) {
    auto found = allocations.find(address);
    if (found == allocations.end()) return fault("memory is freed that is not allocated");
    Open open;
    memset((void*)address, POISON, found->second.bytes);
    in_use -= found->second.bytes;
    allocations.erase(found);
}

bool inside(uint64_t address, size_t bytes, bool valid, const char* what) {
    auto after = allocations.upper_bound(address);
    if (after != allocations.begin()) {
        --after;
        bool fits = address + bytes <= after->first + after->second.bytes;
        if (fits && (after->second.valid || !valid)) return true;
        if (fits) {
            fault(std::string(what) + " memory before its stream has come to where it is allocated");
            return false;
        }
    }
    fault(std::string(what) + " memory that is not allocated, or no longer");
    return false;
}

size_t free_bytes() { return limit - std::min(limit, in_use); }
size_t held() { return allocations.size(); }
void room(size_t bytes) { limit = std::min(bytes, REGION); }

void clear_memory() {
    if (region) munmap(region, REGION);
    region = nullptr;
    used = in_use = 0;
    limit = REGION;
    allocations.clear();
}

std::vector<std::pair<uint64_t, size_t>> valid_buffers() {
    std::vector<std::pair<uint64_t, size_t>> buffers;
    for (auto& [address, allocation] : allocations) if (allocation.valid) buffers.emplace_back(address, allocation.bytes);
    return buffers;
}

void* pin(size_t bytes) {
    void* memory = mmap(nullptr, (bytes + PAGE - 1) / PAGE * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, POISON, bytes);
    pins[(char*)memory] = {bytes, true, false};
    return memory;
}

bool may_be_written(const void* memory) {
    FILE* maps = fopen("/proc/self/maps", "r");
    if (!maps) return true;
    char line[4096], access[8];
    unsigned long from, to;
    bool found = false;
    while (!found && fgets(line, sizeof line, maps)) {
        found = sscanf(line, "%lx-%lx %7s", &from, &to, access) == 3 && from <= (unsigned long)memory && (unsigned long)memory < to;
    }
    fclose(maps);
    return found && access[1] == 'w';
}

bool enlist(void* memory, size_t bytes, bool is_read_only) {
    auto after = pins.lower_bound((char*)memory);
    if (is_pinned(memory) || (after != pins.end() && after->first < (char*)memory + bytes)) return false;
    pins[(char*)memory] = {bytes, false, is_read_only};
    return true;
}

bool unpin(void* memory, bool is_own) {
    auto found = pins.find((char*)memory);
    if (found == pins.end() || found->second.is_own != is_own) return false;
    size_t bytes = found->second.bytes;
    if (is_used(memory, bytes)) fault("pinned memory is freed while a copy is to use it");
    size_t mapped = (bytes + PAGE - 1) / PAGE * PAGE;
    std::vector<unsigned char> present(mapped / PAGE);
    if (mincore(memory, mapped, present.data())) fault("memory is unmapped that is pinned");
    if (is_own) munmap(memory, mapped);
    pins.erase(found);
    return true;
}

static const Pin* pin_of(const void* memory) {
    auto after = pins.upper_bound((char*)memory);
    if (after == pins.begin()) return nullptr;
    --after;
    return (char*)memory < after->first + after->second.bytes ? &after->second : nullptr;
}

bool is_pinned(const void* memory) { return pin_of(memory); }

bool is_read_only(const void* memory) {
    const Pin* found = pin_of(memory);
    return found && found->is_read_only;
}

size_t pinned() { return pins.size(); }

}  // namespace driver
