// Everything of the twin but the kernels, as one unit.
#include "memory.cc"
#include "scheduler.cc"
