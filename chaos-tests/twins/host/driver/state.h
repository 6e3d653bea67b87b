// What the parts of the twin driver share: memory, streams, events, and what went wrong.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace driver {

// CUDA's codes.
enum Code : int {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    OUT_OF_RESOURCES = 701,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
    NOT_SUPPORTED = 801,
};

// What a test can count, by number: driver.rs has the same list.
enum Counter { UP, DOWN, LAUNCHES, STREAM_WAITS, HOST_WAITS, FREES, COPIES, CALLS, RECORDS, READ_ONLY, REGISTERED, COUNTERS };

// A call that is carried out wrongly, as a program would have made it that has the fault. One at a time.
enum Plant {
    NOTHING, FORGET_STREAM_WAIT, FORGET_HOST_WAIT, LAUNCH_ELSEWHERE, COPY_ELSEWHERE, FREE_EARLY, DEVICE_GONE, DIE_IN_COPY, DIE_IN_LAUNCH, REFUSE_LAUNCH,
    RECORD_EARLY, COPY_BESIDE, REFUSE_REGISTER,
};

struct Event {
    // How often it was recorded, and how many of these records streams have passed.
    uint64_t recorded = 0, passed = 0;
    struct Stream* stream = nullptr;
    // Which of all records the last one is.
    uint64_t number = 0;
    // Whether it tells when it was passed, by the host's clock.
    bool is_timed = false;
    std::chrono::steady_clock::time_point at{};
};

// What a stream does next. Where it waits, it does so until the event has come that far.
struct Operation {
    std::function<void()> run;
    Event* wait = nullptr;
    uint64_t until = 0;
    // Host memory that it uses.
    const char* host = nullptr;
    size_t bytes = 0;
    // The kernel that it runs.
    const void* function = nullptr;
    // Whether it computes and moves nothing: it records an event, allocates, or frees.
    bool is_aside = false;
    // Whether what is outside of this process has come so far; always, where there is nothing outside.
    std::function<bool()> ready;
};

struct Stream {
    std::deque<Operation> operations;
    uint64_t urgency = 0;
};

extern std::recursive_mutex lock;
extern std::vector<Stream*> streams;
extern uint64_t counters[COUNTERS];

uint64_t draw();
void seed(uint64_t value);

// What is wrong is said once; from then on the device is of no use.
void fault(const std::string& what);
bool has_failed();
const char* report();
void forgive();

// Whether this call, the next of its kind, is the one that is carried out wrongly.
bool planted(Plant kind);
void plant(Plant kind, uint64_t number);

// Streams.
void push(Stream* stream, std::function<void()> run, const void* host = nullptr, size_t bytes = 0);
void push_aside(Stream* stream, std::function<void()> run);
Stream* another(Stream* stream);
// What a stream does last, it does before the launch, the copy or the fill that is the last before it.
void hasten_last(Stream* stream);
// Carries out operations of any streams, in an order that is drawn, until it is done.
void run_until(const std::function<bool()>& done);
// One operation of any stream that can go on.
void run_one();
// As a device that works beside the host: some operations, or none.
void run_some();
bool is_used(const void* host, size_t bytes);
// Whether a launch of a kernel is still to be carried out.
bool is_to_run(const void* function);

// Memory of the device.
uint64_t allocate(size_t bytes, bool now);
void valid_from_now(uint64_t address);
void release(uint64_t address);
// Whether so many bytes from here on are one allocation's. Where they are not, that is a fault.
bool inside(uint64_t address, size_t bytes, bool valid, const char* what);
size_t free_bytes();
size_t held();
void room(size_t bytes);
void clear_memory();
std::vector<std::pair<uint64_t, size_t>> valid_buffers();
// While this lives, the host's code may touch the device's memory. Otherwise it may not.
struct Open {
    Open();
    ~Open();
};

// Pinned memory of the host.
void* pin(size_t bytes);
bool may_be_written(const void* memory);
// Memory of the program's own is pinned where it is, perhaps to be read alone. False if some of it is already.
bool enlist(void* memory, size_t bytes, bool is_read_only);
// What was allocated is freed, or what was enlisted is the program's alone again. False if there is none of that kind.
bool unpin(void* memory, bool is_own);
bool is_pinned(const void* memory);
bool is_read_only(const void* memory);
size_t pinned();

}  // namespace driver
