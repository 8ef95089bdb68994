// Every function of the driver, for driver_stub.cpp, which has its own in the place of some.
#include "backends/cuda/driver_api.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"
using namespace tessera::cuda;  // NOLINT: for the parameters

extern "C" {
#define TESSERA_FAILS(name, member, parameters) \
  __attribute__((weak)) CUresult name parameters { return 801; }
TESSERA_CUDA_DRIVER_FUNCTIONS(TESSERA_FAILS)
#undef TESSERA_FAILS
}
