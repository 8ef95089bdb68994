#pragma once
#include "backends/cuda/nccl_api.h"

// All functions of NCCL that the program calls, at the top level as the library has them, and
// exported; a definition with other parameters does not compile.
using namespace tessera::cuda;  // NOLINT: for the parameters
extern "C" {
#pragma GCC visibility push(default)
#define TESSERA_EXPORTED(result, name, member, parameters) result name parameters;
TESSERA_NCCL_FUNCTIONS(TESSERA_EXPORTED)
TESSERA_NCCL_LATER_FUNCTIONS(TESSERA_EXPORTED)
#undef TESSERA_EXPORTED
#pragma GCC visibility pop
}
