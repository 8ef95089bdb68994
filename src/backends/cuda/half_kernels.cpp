#include "backends/cuda/cuda_kernels.h"
#include "backends/cuda/kernel_launch.h"

namespace tessera::cuda {

void register_half_kernels(KernelTable& table, Device& device) {
  const auto cast = [&device](const char* name) -> Cast {
    return [&device, kernel = find_kernel(device, name)](const void* from, void* to, int64_t n) {
      launch_vectors(device, kernel, n, from, to, n);
    };
  };
  table.add_for_all([&table, cast](const PrepareContext& context) {
    return prepare_in_f32(table, context, [cast]() -> HalfCasts {
      return {cast("convert_f16_f32"), cast("convert_f32_f16")};
    });
  });
}

}  // namespace tessera::cuda
