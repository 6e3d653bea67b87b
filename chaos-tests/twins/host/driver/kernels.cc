#include "kernels.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

#include "../twin.h"
#include "state.h"

namespace driver {

namespace {

// Race detection looks at as many bytes at once. No kernel of Sardana's writes less; for those of others, TWIN_ELEMENT says it.
uint32_t element_bytes() {
    const char* told = getenv("TWIN_ELEMENT");
    return told ? (uint32_t)atoi(told) : 2;
}
constexpr size_t VALUE_ALIGNMENT = 16;

struct Compiled {
    std::string name;
    std::vector<size_t> sizes;
    decltype(Function::launch) launch;
    uint32_t number;
};

std::vector<Compiled> compiled;

// One `.param`, such as `.param .u64 name`, `.param .f32 name` or `.param .align 8 .b8 name[256]`: its size, and what it is aligned to.
std::pair<size_t, size_t> parameter(const std::string& text) {
    size_t align = text.find(".align "), array = text.find('[');
    if (array != std::string::npos) return {strtoul(text.c_str() + array + 1, nullptr, 10), strtoul(text.c_str() + align + 7, nullptr, 10)};
    size_t type = text.find('.', text.find(".param") + 6);
    size_t bytes = strtoul(text.c_str() + type + 2, nullptr, 10) / 8;
    return {bytes, bytes};
}

void lay_out(Function& function, const std::string& list) {
    size_t end = 0;
    for (size_t at = list.find(".param"); at != std::string::npos;) {
        size_t next = list.find(".param", at + 1);
        auto [bytes, alignment] = parameter(list.substr(at, next == std::string::npos ? next : next - at));
        end = (end + alignment - 1) / alignment * alignment;
        function.offsets.push_back(end);
        function.sizes.push_back(bytes);
        end += bytes;
        at = next;
    }
}

// Programs of several makers may have kernels of one name: the first with these parameters, if there is one.
const Compiled* code_of(const Function& function) {
    const Compiled* found = nullptr;
    for (const Compiled& code : compiled) {
        if (code.name != function.name) continue;
        if (code.sizes == function.sizes) return &code;
        if (!found) found = &code;
    }
    return found;
}

}  // namespace

const char* add_library(const char* path) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return dlerror();
    auto kernel = (const char* (*)(uint32_t, uint32_t*, const uint32_t**))dlsym(library, "twin_kernel");
    auto launch = (decltype(Function::launch))dlsym(library, "twin_launch");
    if (!kernel || !launch) return "it has no kernels";
    uint32_t count;
    const uint32_t* sizes;
    for (uint32_t number = 0; const char* name = kernel(number, &count, &sizes); ++number)
        compiled.push_back({name, std::vector<size_t>(sizes, sizes + count), launch, number});
    return nullptr;
}

Module* parse(const char* ptx) {
    std::string text(ptx);
    if (text.find(".version ") == std::string::npos) return nullptr;
    Module* module = new Module;
    const std::string entry = ".entry ";
    for (size_t at = text.find(entry); at != std::string::npos; at = text.find(entry, at)) {
        at += entry.size();
        size_t open = text.find('(', at), close = text.find(')', open);
        Function* function = new Function;
        function->name = text.substr(at, open - at);
        lay_out(*function, text.substr(open, close - open));
        const Compiled* code = code_of(*function);
        if (!code) {
            delete function;
            continue;
        }
        if (code->sizes != function->sizes) fault("the PTX of " + function->name + " has other parameters than its source");
        function->launch = code->launch;
        function->number = code->number;
        module->functions.push_back(function);
    }
    return module;
}

void run(const Function& function, const uint32_t grid[3], const uint32_t block[3], const std::vector<std::vector<char>>& values) {
    std::vector<char> laid_out;
    for (const std::vector<char>& value : values) {
        laid_out.insert(laid_out.end(), value.begin(), value.end());
        laid_out.resize((laid_out.size() + VALUE_ALIGNMENT - 1) / VALUE_ALIGNMENT * VALUE_ALIGNMENT);
    }
    std::vector<TwinBuffer> buffers;
    const uint32_t element = element_bytes();
    for (auto [address, bytes] : valid_buffers()) buffers.push_back({address, bytes, element, TWIN_SET});
    const char* wrong = function.launch(function.number, grid, block, laid_out.data(), laid_out.size(), buffers.data(), (uint32_t)buffers.size(), draw() | 1);
    if (wrong) fault(wrong);
}

}  // namespace driver
