// Kernels of the emulator's own tests; kMistake plants one that has to be found.
#include "device.cuh"

namespace tessera::cuda {

TESSERA_KERNEL(256, test_add, const float* a, const float* b, float* c, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) c[i] = a[i] + b[i];
}

}  // namespace tessera::cuda
