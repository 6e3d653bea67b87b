// The twin driver as one unit.
#include "state.cc"
#include "kernels.cc"
#include "process.cc"
#include "api.cc"
#include "steering.cc"
