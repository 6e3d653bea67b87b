// What a process is told by its environment.
#pragma once
#include <cstdint>

namespace driver {

constexpr int LEFT = 6;
// What was not given back: buffers, pinned memory, streams, events, modules, contexts.
void count_left(uint64_t left[LEFT]);

// Once in a process, as it starts the driver.
void begin_process();
// Whether this process is the one in which a plant counts.
bool is_first();
// SIGKILL, now.
[[noreturn]] void die();

}  // namespace driver
