#pragma once
#include "backends/cuda/driver_api.h"

// All functions that the program calls, at the top level as the driver has them, and exported; a
// definition with other parameters does not compile.
using namespace tessera::cuda;  // NOLINT: for the parameters
extern "C" {
#pragma GCC visibility push(default)
#define TESSERA_EXPORTED(name, member, parameters) CUresult name parameters;
TESSERA_CUDA_DRIVER_FUNCTIONS(TESSERA_EXPORTED)
#undef TESSERA_EXPORTED
#pragma GCC visibility pop
}
