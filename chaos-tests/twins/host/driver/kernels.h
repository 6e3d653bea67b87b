// Kernels of the twin driver: code that the machine's compiler has made, under the names and with the parameters that PTX gives them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace driver {

struct Function {
    std::string name;
    // As the PTX has them.
    std::vector<size_t> sizes, offsets;
    // The library's function that launches, and the kernel's number there.
    const char* (*launch)(uint32_t, const uint32_t*, const uint32_t*, const char*, uint64_t, const void*, uint32_t, uint64_t);
    uint32_t number;
};

struct Module {
    std::vector<Function*> functions;
};

// Loads a library of kernels. What is wrong with it, or null.
const char* add_library(const char* path);
// The kernels of a PTX. Where one has other parameters than the code of its name, that is a fault; one that no library has is left out.
Module* parse(const char* ptx);
// Runs a kernel on the memory that is valid now.
void run(const Function& function, const uint32_t grid[3], const uint32_t block[3], const std::vector<std::vector<char>>& values);

}  // namespace driver
