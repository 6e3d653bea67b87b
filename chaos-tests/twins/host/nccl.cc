// The twin of NCCL: what programs call of it, between processes of one host that each have a twin driver. Ranks share a file; an operation of a stream is ready
// once the other ranks have come to theirs, so that a rank that died keeps the others waiting until they abort. Calls that a program must not make end it.
//
// TWIN_NCCL: the folder in which ranks share files. `calls` there has a line for each communicator that was made or aborted, and for each rank's part of a sum that
// was carried out: what, rank and ranks.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <functional>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#define API extern "C" __attribute__((visibility("default")))

namespace {

enum Code : int { OK = 0, SYSTEM = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, IN_PROGRESS = 7 };
enum Type : int { F16 = 6, F32 = 7, F64 = 8, BF16 = 9 };

constexpr int RANKS = 8, SUM = 0;
constexpr size_t ROOM = size_t(1) << 20;
constexpr unsigned MAGIC = 0xcafebeef;

// What the ranks share. Of two operations one after the other the values are in rooms of their own, so that none waits for the slowest to have read.
struct Shared {
    std::atomic<uint32_t> ranks, joined[RANKS], finished[RANKS];
    std::atomic<uint64_t> posted[RANKS], done[RANKS];
    char rooms[RANKS][2][ROOM];
};

struct Config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

struct Id {
    char path[128];
};

struct Comm {
    Shared* shared;
    int rank, ranks;
    uint64_t operations = 0;
    // What the next question is answered with: nothing is done before it has been asked for.
    bool in_progress = true, is_finishing = false;
    // Of a sum that was asked for and is on no stream yet: puts it there.
    std::function<void()> enqueue;
    std::atomic<bool> aborted{false};
};

[[noreturn]] void misused(const char* what) {
    fprintf(stderr, "NCCL is misused: %s\n", what);
    abort();
}

void note(const char* what, const Comm& comm) {
    const char* folder = getenv("TWIN_NCCL");
    if (!folder) return;
    int file = open((std::string(folder) + "/calls").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (file < 0) misused("there is no such folder as TWIN_NCCL names");
    dprintf(file, "%s %d %d\n", what, comm.rank, comm.ranks);
    close(file);
}

template <class F> F of_driver(const char* name) {
    static void* driver = dlopen("libcuda.so", RTLD_NOW | RTLD_NOLOAD);
    void* function = driver ? dlsym(driver, name) : nullptr;
    if (!function) misused("there is no twin driver in this process");
    return (F)function;
}

template <class T> bool all(const Comm& comm, const std::atomic<T>* of, T least) {
    for (int rank = 0; rank < comm.ranks; ++rank) if (of[rank] < least) return false;
    return true;
}

size_t bytes_of(int type) { return type == F64 ? 8 : type == F32 ? 4 : 2; }

// Halves as far as sums of small whole numbers need them: those are halves themselves.
double value_of(const char* at, int type) {
    if (type == F64) return *(const double*)at;
    if (type == F32) return *(const float*)at;
    uint16_t bits = *(const uint16_t*)at;
    if (type == BF16) {
        uint32_t wide = (uint32_t)bits << 16;
        float value;
        memcpy(&value, &wide, 4);
        return value;
    }
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return bits & 0x8000 ? -value : value;
}

void put(char* at, int type, double value) {
    if (type == F64) *(double*)at = value;
    if (type == F32) *(float*)at = (float)value;
    if (type == BF16) {
        float narrow = (float)value;
        memcpy(at, (char*)&narrow + 2, 2);
    }
    if (type != F16) return;
    int exponent = 0;
    double fraction = frexp(fabs(value), &exponent);
    uint16_t bits = value == 0 ? 0 : (uint16_t)((exponent + 14) << 10 | ((int)ldexp(fraction, 11) & 1023));
    *(uint16_t*)at = bits | (value < 0 ? 0x8000 : 0);
}

struct Operation {
    Comm* comm;
    uint64_t number;
    const char* from;
    char* to;
    size_t count;
    int type;
    bool is_last;
};

// All ranks add in the same order; which one depends on the operation, as it depends on the ring in NCCL.
void add(const Operation& op) {
    const Comm& comm = *op.comm;
    size_t element = bytes_of(op.type);
    for (size_t i = 0; i < op.count; ++i) {
        double sum = 0;
        for (int step = 0; step < comm.ranks; ++step) {
            int rank = (int)((op.number + step) % comm.ranks);
            sum = sum + value_of(comm.shared->rooms[rank][op.number % 2] + i * element, op.type);
            if (op.type == F32) sum = (float)sum;
        }
        put(op.to + i * element, op.type, sum);
    }
}

int is_ready(void* data) {
    const Operation& op = *(Operation*)data;
    const Comm& comm = *op.comm;
    if (comm.aborted) return 1;
    if (op.is_last) return all(comm, comm.shared->posted, op.number);
    return op.number <= 2 || all(comm, comm.shared->done, op.number - 2);
}

void carry_out(void* data) {
    Operation* op = (Operation*)data;
    Comm& comm = *op->comm;
    size_t bytes = op->count * bytes_of(op->type);
    auto inside = of_driver<bool (*)(uint64_t, size_t)>("twin_inside");
    bool fits = inside((uint64_t)op->from, bytes) && inside((uint64_t)op->to, bytes);
    if (!comm.aborted && fits) {
        if (op->is_last) {
            add(*op);
            comm.shared->done[comm.rank] = op->number;
            note("summed", comm);
        } else {
            memcpy(comm.shared->rooms[comm.rank][op->number % 2], op->from, bytes);
            comm.shared->posted[comm.rank] = op->number;
        }
    }
    delete op;
}

}  // namespace

API int ncclGetVersion(int* version) { return *version = 22703, OK; }
API const char* ncclGetErrorString(int code) {
    return code == INVALID_ARGUMENT ? "invalid argument" : code == INVALID_USAGE ? "invalid usage" : "unhandled system error";
}
API const char* ncclGetLastError(void*) { return ""; }

API int ncclGetUniqueId(Id* id) {
    const char* folder = getenv("TWIN_NCCL");
    std::string path = std::string(folder ? folder : "/tmp") + "/nccl.XXXXXX";
    if (path.size() >= sizeof id->path) return SYSTEM;
    memset(id, 0, sizeof *id);
    memcpy(id->path, path.c_str(), path.size());
    int file = mkstemp(id->path);
    if (file < 0 || ftruncate(file, sizeof(Shared))) return SYSTEM;
    return close(file), OK;
}

API int ncclCommInitRankConfig(Comm** made, int ranks, Id id, int rank, const Config* config) {
    if (!config || config->magic != MAGIC || config->size < sizeof(Config) || config->blocking != 0) return INVALID_ARGUMENT;
    if (ranks < 1 || ranks > RANKS || rank < 0 || rank >= ranks || memchr(id.path, 0, sizeof id.path) == nullptr) return INVALID_ARGUMENT;
    int file = open(id.path, O_RDWR);
    if (file < 0) return SYSTEM;
    void* shared = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (shared == MAP_FAILED) return SYSTEM;
    Comm* comm = new Comm;
    comm->shared = (Shared*)shared;
    comm->rank = rank;
    comm->ranks = ranks;
    uint32_t before = 0;
    if (!comm->shared->ranks.compare_exchange_strong(before, ranks) && before != (uint32_t)ranks) return INVALID_ARGUMENT;
    if (comm->shared->joined[rank].exchange(1)) return INVALID_USAGE;
    note("made", *comm);
    return *made = comm, IN_PROGRESS;
}

API int ncclCommGetAsyncError(Comm* comm, int* state) {
    *state = OK;
    if (comm->enqueue) std::exchange(comm->enqueue, nullptr)();
    if (comm->in_progress) {
        *state = IN_PROGRESS;
        const std::atomic<uint32_t>* of = comm->is_finishing ? comm->shared->finished : comm->shared->joined;
        comm->in_progress = !all(*comm, of, 1u);
    }
    return OK;
}

API int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, Comm* comm, void* stream) {
    if (comm->in_progress) misused("an operation before the last one is enqueued");
    if (comm->is_finishing) misused("an operation after the end");
    if (op != SUM || type < F16 || type > BF16 || count * bytes_of(type) > ROOM) return INVALID_ARGUMENT;
    uint64_t number = ++comm->operations;
    auto enqueue = of_driver<void (*)(void*, int (*)(void*), void (*)(void*), void*)>("twin_enqueue");
    // As late as NCCL may, which does it on a thread of its own: what a program enqueues meanwhile comes before it.
    comm->enqueue = [=] {
        for (bool is_last : {false, true})
            enqueue(stream, is_ready, carry_out, new Operation{comm, number, (const char*)from, (char*)to, count, type, is_last});
    };
    comm->in_progress = true;
    return IN_PROGRESS;
}

API int ncclCommFinalize(Comm* comm) {
    if (comm->in_progress || comm->is_finishing) misused("an end before the last operation is enqueued, or a second one");
    comm->is_finishing = comm->in_progress = true;
    comm->shared->finished[comm->rank] = 1;
    return IN_PROGRESS;
}
API int ncclCommDestroy(Comm* comm) {
    if (comm->in_progress || !comm->is_finishing) misused("a communicator is destroyed that is in use");
    return OK;
}
// Operations may still look at it: what is left of it stays.
API int ncclCommAbort(Comm* comm) {
    if (comm->aborted.exchange(true)) misused("a second abort");
    comm->enqueue = nullptr;
    note("aborted", *comm);
    return OK;
}
