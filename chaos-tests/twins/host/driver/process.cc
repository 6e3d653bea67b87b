// A process that a test has started, and that finds this driver as if it were the machine's: what it is to do is in its environment.
//
// TWIN_KERNELS: files of kernels, with colons between them. TWIN_SEED: a number. TWIN_PLANT: `KIND@NUMBER`, a plant and how many calls of its kind come
// before. TWIN_ONCE: a file that the first process which comes to the plant makes, so that it is the only one. TWIN_ACCOUNT: a folder in which each process
// that ends by itself leaves a file with what it has not given back, kernels enqueued, bytes copied up and down from and to pinned memory, its GPU, and what was
// wrong. TWIN_ELEMENT: how many bytes the least is that kernels write, 2 if it is not said.
// TWIN_OPEN: memory of the device is not closed to the host behind each call, which takes the longer the more was given.
#include "process.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <mutex>
#include <string>
#include <unistd.h>

#include "kernels.h"
#include "state.h"

namespace driver {

namespace {

uint64_t number_in(const char* name) {
    const char* text = getenv(name);
    return text ? strtoull(text, nullptr, 10) : 0;
}

void load_kernels(const std::string& files) {
    for (size_t start = 0; start < files.size();) {
        size_t end = files.find(':', start);
        if (end == std::string::npos) end = files.size();
        if (const char* wrong = add_library(files.substr(start, end - start).c_str())) fault(wrong);
        start = end + 1;
    }
}

void leave_account() {
    std::string path = std::string(getenv("TWIN_ACCOUNT")) + "/" + std::to_string(getpid());
    FILE* file = fopen(path.c_str(), "w");
    if (!file) return;
    uint64_t left[LEFT];
    count_left(left);
    for (uint64_t one : left) fprintf(file, "%llu ", (unsigned long long)one);
    const char *gpu = getenv("CUDA_VISIBLE_DEVICES"), *wrong = report();
    for (Counter one : {LAUNCHES, UP, DOWN}) fprintf(file, "%llu ", (unsigned long long)counters[one]);
    fprintf(file, "%s\n%s", gpu ? gpu : "-", wrong ? wrong : "");
    fclose(file);
}

}  // namespace

void begin_process() {
    static std::once_flag once;
    std::call_once(once, [] {
        const char* files = getenv("TWIN_KERNELS");
        if (!files) return;
        load_kernels(files);
        seed(number_in("TWIN_SEED"));
        if (const char* text = getenv("TWIN_PLANT")) {
            unsigned kind = 0;
            unsigned long long number = 0;
            if (sscanf(text, "%u@%llu", &kind, &number) == 2) plant((Plant)kind, number);
        }
        if (getenv("TWIN_ACCOUNT")) atexit(leave_account);
    });
}

bool is_first() {
    const char* mark = getenv("TWIN_ONCE");
    return !mark || open(mark, O_CREAT | O_EXCL | O_WRONLY, 0600) >= 0;
}

void die() {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

}  // namespace driver
