// What a test says to the twin, and asks it. Called while nothing is enqueued. Behind api.cc, whose streams and events it begins anew.
API const char* twin_add_kernels(const char* path) {
    LOCKED;
    return add_library(path);
}
API void twin_begin(uint64_t from) {
    LOCKED;
    seed(from);
    forgive();
    plant(NOTHING, 0);
    null_stream.operations.clear();
    clear_memory();
    awaited.clear();
    std::fill(counters, counters + COUNTERS, 0);
}
API void twin_plant(uint32_t kind, uint64_t number) {
    LOCKED;
    plant((Plant)kind, number);
}
API void twin_room(uint64_t bytes) {
    LOCKED;
    room(bytes);
}
API uint64_t twin_counter(uint32_t which) {
    LOCKED;
    return counters[which];
}
API bool twin_is_awaited(uint64_t record) {
    LOCKED;
    return awaited.count(record) != 0;
}
API void twin_forget_counts() {
    LOCKED;
    std::fill(counters, counters + COUNTERS, 0);
}
API const char* twin_fault() {
    LOCKED;
    return report();
}
API void twin_left(uint64_t left[LEFT]) {
    LOCKED;
    count_left(left);
}
