// The driver's functions, as far as Sardana and the bindings call them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "kernels.h"
#include "process.h"
#include "state.h"

using namespace driver;

#define API extern "C" __attribute__((visibility("default")))
#define LOCKED std::lock_guard<std::recursive_mutex> held_lock(lock)
// What every call on a device begins with: it needs a context, and a device that works. Meanwhile the device works on.
#define ON_DEVICE                                  \
    LOCKED;                                        \
    if (!current) return INVALID_CONTEXT;          \
    ++counters[CALLS];                             \
    if (planted(DEVICE_GONE)) fault("it is gone"); \
    if (!has_failed()) run_some();                 \
    if (has_failed()) return ILLEGAL_ADDRESS

namespace {

constexpr unsigned WRITE_COMBINED = 4, UNTIMED = 2, REGISTER_READ_ONLY = 8, HOST_MEMORY = 1;
constexpr int MEMORY_TYPE = 2;
char the_context;
thread_local void* current;
size_t contexts, events, modules;
// The records that another stream or the host has waited for, whether they had come by then or not.
std::set<uint64_t> awaited;
Stream null_stream;

int setting(const char* name, int otherwise) {
    const char* text = getenv(name);
    return text ? atoi(text) : otherwise;
}

Stream* of(void* stream) { return stream ? (Stream*)stream : &null_stream; }
bool is_idle() {
    return std::all_of(streams.begin(), streams.end(), [](Stream* stream) { return stream->operations.empty(); });
}
void register_null_stream() {
    if (std::find(streams.begin(), streams.end(), &null_stream) == streams.end()) streams.push_back(&null_stream);
}
// What a copy does when it is carried out. A process that dies in it has done half.
void move(void* to, const void* from, size_t bytes) {
    bool dies = planted(DIE_IN_COPY);
    memcpy(to, from, dies ? bytes / 2 : bytes);
    if (dies) die();
}
// How many bytes a copy from or to pinned memory leaves out at its source: all that follow are taken for those before them.
size_t beside(size_t bytes) { return planted(COPY_BESIDE) ? std::min<size_t>(bytes, 4) : 0; }
int failed_or_ok() { return has_failed() ? ILLEGAL_ADDRESS : OK; }

}  // namespace

void driver::count_left(uint64_t left[LEFT]) {
    const uint64_t found[LEFT] = {held(), pinned(), streams.empty() ? 0 : streams.size() - 1, events, modules, contexts};
    std::copy(found, found + LEFT, left);
}

API int cuInit(unsigned) {
    LOCKED;
    begin_process();
    return setting("TWIN_INIT", OK);
}
API int cuDriverGetVersion(int* version) { return *version = setting("TWIN_VERSION", 12080), OK; }
API int cuDeviceGetCount(int* count) { return *count = setting("TWIN_DEVICES", 1), OK; }
API int cuDeviceGet(int* device, int ordinal) {
    int count = setting("TWIN_DEVICES", 1);
    *device = ordinal;
    return ordinal >= 0 && ordinal < count ? OK : INVALID_DEVICE;
}
API int cuDeviceGetName(char* name, int bytes, int device) {
    snprintf(name, bytes, device == 0 ? "Twin of a GPU" : "Twin of a GPU MIG 1g.10gb");
    return OK;
}
// By the first GPU that the process is shown: processes that are shown the same one share it.
API int cuDeviceGetUuid_v2(char* id, int device) {
    const char* shown = getenv("CUDA_VISIBLE_DEVICES");
    memset(id, 0, 16);
    if (shown) strncpy(id, shown, 15);
    id[15] = (char)device;
    return OK;
}
API int cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = size_t(4) << 30, OK; }
API int cuDeviceGetAttribute(int* value, int attribute, int) {
    switch (attribute) {
        case 16: *value = 132; break;  // multiprocessors
        case 75: *value = setting("TWIN_CAPABILITY", 90) / 10; break;  // compute capability, major
        case 76: *value = setting("TWIN_CAPABILITY", 90) % 10; break;  // minor
        case 115: *value = 1; break;   // memory pools
        default: return INVALID_VALUE;
    }
    return OK;
}
API int cuGetErrorName(int code, const char** name) {
    static const std::map<int, const char*> names = {
        {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"}, {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"}, {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
        {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"}, {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
        {ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"}, {NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
        {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"}, {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}};
    auto found = names.find(code);
    return found == names.end() ? INVALID_VALUE : (*name = found->second, OK);
}
API int cuGetErrorString(int, const char** text) { return *text = report() ? report() : "no words", OK; }

API int cuDevicePrimaryCtxRetain(void** context, int) {
    LOCKED;
    register_null_stream();
    ++contexts;
    return *context = &the_context, OK;
}
API int cuDevicePrimaryCtxRelease_v2(int) {
    LOCKED;
    --contexts;
    return OK;
}
API int cuCtxSetCurrent(void* context) { return current = context, OK; }
API int cuCtxGetCurrent(void** context) { return *context = current, OK; }
API int cuCtxSynchronize() {
    ON_DEVICE;
    run_until(is_idle);
    return failed_or_ok();
}

API int cuStreamCreate(void** stream, unsigned) {
    ON_DEVICE;
    streams.push_back(new Stream);
    return *stream = streams.back(), OK;
}
API int cuStreamDestroy_v2(void* stream) {
    LOCKED;
    // What is enqueued is still done, as the real one does it, and here at once.
    run_until([=] { return of(stream)->operations.empty(); });
    streams.erase(std::find(streams.begin(), streams.end(), of(stream)));
    delete of(stream);
    return failed_or_ok();
}
API int cuStreamSynchronize(void* stream) {
    ON_DEVICE;
    run_until([=] { return of(stream)->operations.empty(); });
    return failed_or_ok();
}
API int cuStreamWaitEvent(void* stream, void* event, unsigned) {
    ON_DEVICE;
    Operation operation;
    operation.wait = (Event*)event;
    operation.until = operation.wait->recorded;
    if (operation.until && operation.wait->stream != of(stream)) {
        ++counters[STREAM_WAITS];
        awaited.insert(operation.wait->number);
        if (planted(FORGET_STREAM_WAIT)) return OK;
    }
    of(stream)->operations.push_back(operation);
    return OK;
}

API int cuEventCreate(void** event, unsigned flags) {
    ON_DEVICE;
    ++events;
    Event* created = new Event;
    created->is_timed = !(flags & UNTIMED);
    return *event = created, OK;
}
API int cuEventDestroy_v2(void* event) {
    LOCKED;
    // Streams may still come to it, so that it stays until the next seed.
    (void)event;
    --events;
    return OK;
}
API int cuEventRecord(void* event, void* stream) {
    ON_DEVICE;
    Event* recorded = (Event*)event;
    recorded->stream = of(stream);
    uint64_t number = ++recorded->recorded;
    push_aside(of(stream), [=] {
        recorded->passed = std::max(recorded->passed, number);
        recorded->at = std::chrono::steady_clock::now();
    });
    recorded->number = counters[RECORDS]++;
    if (planted(RECORD_EARLY)) hasten_last(of(stream));
    return OK;
}
// The host's time, which says of no device how fast it is.
API int cuEventElapsedTime_v2(float* milliseconds, void* from, void* to) {
    ON_DEVICE;
    const Event *first = (Event*)from, *last = (Event*)to;
    if (!first->is_timed || !last->is_timed) return INVALID_HANDLE;
    if (first->passed < first->recorded || last->passed < last->recorded) return NOT_READY;
    return *milliseconds = std::chrono::duration<float, std::milli>(last->at - first->at).count(), OK;
}
API int cuEventSynchronize(void* event) {
    ON_DEVICE;
    Event* waited = (Event*)event;
    if (waited->recorded) awaited.insert(waited->number);
    if (waited->passed < waited->recorded) {
        ++counters[HOST_WAITS];
        if (planted(FORGET_HOST_WAIT)) return OK;
    }
    run_until([=] { return waited->passed >= waited->recorded; });
    return failed_or_ok();
}
API int cuEventQuery(void* event) {
    ON_DEVICE;
    Event* asked = (Event*)event;
    // A program that only asks, again and again, sees a device that works on.
    if (asked->passed < asked->recorded) run_one();
    return asked->passed >= asked->recorded ? OK : NOT_READY;
}

API int cuMemAllocAsync(uint64_t* address, size_t bytes, void* stream) {
    ON_DEVICE;
    if (bytes == 0) return INVALID_VALUE;
    uint64_t given = allocate(bytes, false);
    if (!given) return OUT_OF_MEMORY;
    push_aside(of(stream), [=] { valid_from_now(given); });
    return *address = given, OK;
}
API int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
    ON_DEVICE;
    if (bytes == 0) return INVALID_VALUE;
    *address = allocate(bytes, true);
    return *address ? OK : OUT_OF_MEMORY;
}
API int cuMemFreeAsync(uint64_t address, void* stream) {
    ON_DEVICE;
    ++counters[FREES];
    if (planted(FREE_EARLY)) return release(address), OK;
    push_aside(of(stream), [=] { release(address); });
    return OK;
}
API int cuMemFree_v2(uint64_t address) {
    ON_DEVICE;
    run_until(is_idle);
    release(address);
    return failed_or_ok();
}
API int cuMemGetInfo_v2(size_t* left, size_t* all) {
    ON_DEVICE;
    *left = free_bytes();
    const char* told = getenv("TWIN_MEMORY");
    return *all = told ? strtoull(told, nullptr, 10) : size_t(4) << 30, OK;
}
API int cuMemHostAlloc(void** memory, size_t bytes, unsigned flags) {
    ON_DEVICE;
    if (flags & WRITE_COMBINED) fault("pinned memory that the host reads is write-combined");
    return *memory = pin(bytes), OK;
}
API int cuMemFreeHost(void* memory) {
    LOCKED;
    return unpin(memory, true) ? failed_or_ok() : INVALID_VALUE;
}
API int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned flags) {
    ON_DEVICE;
    if (!memory || !bytes) return INVALID_VALUE;
    if (planted(REFUSE_REGISTER)) return NOT_SUPPORTED;
    bool is_read_only = flags & REGISTER_READ_ONLY;
    if (!may_be_written(memory) && !is_read_only) return INVALID_VALUE;
    counters[READ_ONLY] += is_read_only;
    counters[REGISTERED] += bytes;
    return enlist(memory, bytes, is_read_only) ? OK : ALREADY_REGISTERED;
}
API int cuPointerGetAttribute(void* found, int attribute, uint64_t address) {
    LOCKED;
    if (!current) return INVALID_CONTEXT;
    if (attribute != MEMORY_TYPE || !is_pinned((const void*)address)) return INVALID_VALUE;
    return *(unsigned*)found = HOST_MEMORY, OK;
}
API int cuMemHostUnregister(void* memory) {
    LOCKED;
    if (!current) return INVALID_CONTEXT;
    return unpin(memory, false) ? failed_or_ok() : NOT_REGISTERED;
}

API int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void* stream) {
    ON_DEVICE;
    push(of(stream), [=] { if (inside(to, bytes, true, "a fill of")) memset((void*)to, value, bytes); });
    return OK;
}
API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
    ON_DEVICE;
    push(of(stream), [=] {
        if (inside(to, bytes, true, "a copy to") && inside(from, bytes, true, "a copy of")) memcpy((void*)to, (void*)from, bytes);
    });
    return OK;
}
API int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
    ON_DEVICE;
    if (!is_pinned(from)) {
        std::vector<char> aside((const char*)from, (const char*)from + bytes);
        push(of(stream), [=] { if (inside(to, bytes, true, "a copy to")) move((void*)to, aside.data(), bytes); });
        return OK;
    }
    counters[UP] += bytes;
    ++counters[COPIES];
    Stream* on = planted(COPY_ELSEWHERE) ? another(of(stream)) : of(stream);
    size_t left_out = beside(bytes);
    push(on, [=] { if (inside(to, bytes, true, "a copy to")) move((void*)to, (const char*)from + left_out, bytes - left_out); }, from, bytes);
    return OK;
}
API int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
    ON_DEVICE;
    bool pinned = is_pinned(to);
    if (pinned && is_read_only(to)) fault("a copy to memory that the device is only to read");
    Stream* on = of(stream);
    size_t left_out = 0;
    if (pinned) {
        counters[DOWN] += bytes;
        ++counters[COPIES];
        if (planted(COPY_ELSEWHERE)) on = another(on);
        left_out = beside(bytes);
    }
    push(on, [=] { if (inside(from, bytes, true, "a copy of")) move(to, (const char*)from + left_out, bytes - left_out); }, to, bytes);
    if (!pinned) run_until([=] { return on->operations.empty(); });
    return failed_or_ok();
}

API int cuModuleLoadData(void** module, const void* image) {
    ON_DEVICE;
    *module = parse((const char*)image);
    if (*module && !has_failed()) ++modules;
    return *module ? failed_or_ok() : INVALID_IMAGE;
}
API int cuModuleLoadDataEx(void** module, const void* image, unsigned count, const int* options, void** values) {
    int code = cuModuleLoadData(module, image);
    // Where the log is to be written, and how long it may be.
    char* log = nullptr;
    size_t bytes = 0;
    for (unsigned i = 0; i < count; ++i) {
        if (options[i] == 5) log = (char*)values[i];
        if (options[i] == 6) bytes = (size_t)values[i];
    }
    if (code == INVALID_IMAGE && log) snprintf(log, bytes, "application ptx input, line 1; fatal: no .version\n");
    return code;
}
API int cuModuleUnload(void* module) {
    LOCKED;
    for (Function* one : ((Module*)module)->functions) if (is_to_run(one)) fault("code of " + one->name + " is unloaded while a launch is to run it");
    --modules;
    return OK;
}
API int cuModuleGetFunction(void** function, void* module, const char* name) {
    ON_DEVICE;
    for (Function* one : ((Module*)module)->functions) if (one->name == name) return *function = one, OK;
    return NOT_FOUND;
}
API int cuFuncGetParamInfo(void* function, size_t number, size_t* offset, size_t* bytes) {
    ON_DEVICE;
    const Function* of = (const Function*)function;
    if (number >= of->sizes.size()) return INVALID_VALUE;
    *offset = of->offsets[number];
    return *bytes = of->sizes[number], OK;
}
API int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void* stream,
                       void** parameters, void**) {
    ON_DEVICE;
    const Function* of_name = (const Function*)function;
    if (!gx || !gy || !gz || !bx || !by || !bz || bx * by * bz > 1024 || gy > 65535 || gz > 65535 || bz > 64 || shared > 48 << 10) return INVALID_VALUE;
    if (planted(REFUSE_LAUNCH)) return OUT_OF_RESOURCES;
    std::vector<std::vector<char>> values;
    for (size_t i = 0; i < of_name->sizes.size(); ++i) values.emplace_back((char*)parameters[i], (char*)parameters[i] + of_name->sizes[i]);
    ++counters[LAUNCHES];
    Stream* on = planted(LAUNCH_ELSEWHERE) ? another(of(stream)) : of(stream);
    push(on, [=] {
        // A process that dies in a launch has done about half of its blocks.
        bool dies = planted(DIE_IN_LAUNCH);
        const uint32_t grid[3] = {dies ? (gx + 1) / 2 : gx, gy, gz}, block[3] = {bx, by, bz};
        run(*of_name, grid, block, values);
        if (dies) die();
    });
    on->operations.back().function = function;
    return OK;
}

// For the twins of libraries that enqueue work of their own: it is carried out once it is ready.
API void twin_enqueue(void* stream, int (*ready)(void*), void (*run)(void*), void* data) {
    LOCKED;
    push(of(stream), [=] { run(data); });
    of(stream)->operations.back().ready = [=] { return ready(data) != 0; };
}
API bool twin_inside(uint64_t address, size_t bytes) { return inside(address, bytes, true, "work of a library on"); }
