// The twin driver as one unit.
#include "state.cc"
#include "kernels.cc"
#include "api.cc"
