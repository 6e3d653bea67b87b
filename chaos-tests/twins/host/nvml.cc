// The twin of NVML: names of GPUs, and of the instances of those that are divided.
//
// TWIN_GPUS: GPUs with semicolons between them, each a name. `GPU-a:MIG-1,,MIG-2` is divided, and has nothing where its second instance could be; `GPU-a:` has
// no instance. `GPU-a?` cannot be divided, `GPU-a!` is one that this process may not see. Without the variable NVML does not begin.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))
#define BEGUN \
    if (!begun) misused("it has not begun")

namespace {

enum Code : int { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, NOT_LOADED = 9 };

// As many instances as a GPU can have.
constexpr unsigned MOST = 7;

struct Device {
    std::string name;
    bool divided = false, can_be_divided = true, is_seen = true;
    std::vector<Device> instances;
};

int begun;
std::vector<Device> gpus;

[[noreturn]] void misused(const char* what) {
    fprintf(stderr, "NVML is misused: %s\n", what);
    abort();
}

std::vector<std::string> parts(const std::string& text, char between) {
    std::vector<std::string> found(1);
    for (char one : text) {
        if (one == between) found.emplace_back();
        else found.back() += one;
    }
    return found;
}

Device read(const std::string& text) {
    Device gpu;
    std::vector<std::string> name_and_instances = parts(text, ':');
    gpu.name = name_and_instances[0];
    gpu.divided = name_and_instances.size() > 1;
    gpu.can_be_divided = gpu.name.back() != '?';
    gpu.is_seen = gpu.name.back() != '!';
    if (!gpu.can_be_divided || !gpu.is_seen) gpu.name.pop_back();
    if (gpu.divided) {
        for (const std::string& name : parts(name_and_instances[1], ',')) gpu.instances.push_back(Device{name});
    }
    return gpu;
}

void leave() {
    if (begun) misused("it is left begun");
}

}  // namespace

API int nvmlInit_v2() {
    const char* told = getenv("TWIN_GPUS");
    if (!told) return NOT_LOADED;
    if (gpus.empty()) {
        atexit(leave);
        for (const std::string& gpu : parts(told, ';')) gpus.push_back(read(gpu));
    }
    return ++begun, OK;
}
API int nvmlShutdown() {
    BEGUN;
    return --begun, OK;
}
API int nvmlDeviceGetCount_v2(unsigned* count) {
    BEGUN;
    return *count = gpus.size(), OK;
}
API int nvmlDeviceGetHandleByIndex_v2(unsigned number, void** device) {
    BEGUN;
    if (number >= gpus.size()) return INVALID_ARGUMENT;
    if (!gpus[number].is_seen) return NO_PERMISSION;
    return *device = &gpus[number], OK;
}
API int nvmlDeviceGetUUID(void* device, char* name, unsigned bytes) {
    BEGUN;
    const std::string& own = ((Device*)device)->name;
    if (own.size() >= bytes) return INSUFFICIENT_SIZE;
    return strcpy(name, own.c_str()), OK;
}
API int nvmlDeviceGetMigMode(void* device, unsigned* now, unsigned* later) {
    BEGUN;
    const Device* gpu = (Device*)device;
    if (!gpu->can_be_divided) return NOT_SUPPORTED;
    return *now = *later = gpu->divided, OK;
}
API int nvmlDeviceGetMaxMigDeviceCount(void* device, unsigned* most) {
    BEGUN;
    return *most = ((Device*)device)->divided ? MOST : 0, OK;
}
API int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned number, void** instance) {
    BEGUN;
    Device* gpu = (Device*)device;
    if (!gpu->divided) return NOT_SUPPORTED;
    if (number >= MOST) return INVALID_ARGUMENT;
    if (number >= gpu->instances.size() || gpu->instances[number].name.empty()) return NOT_FOUND;
    return *instance = &gpu->instances[number], OK;
}
