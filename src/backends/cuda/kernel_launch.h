#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "backends/cuda/device.h"
#include "backends/cuda/id_check.h"
#include "backends/cuda/kernels/parameters.h"
#include "base/random_lines.h"
#include "base/shape.h"
#include "base/text.h"
#include "runtime/kernel_preparation.h"

// What the files that register kernels share.
namespace tessera::cuda {

// A kernel whose name is put together: "add" and "bf16" give add_bf16.
Kernel find_kernel(Device& device, const std::string& name);
template <class... Parts>
Kernel find_kernel(Device& device, std::string_view first, std::string_view second,
                   Parts... parts) {
  return find_kernel(device, (cat(first, "_", second) + ... + cat("_", parts)));
}

inline std::string launch_name(const PrepareContext& context) {
  return cat(context.op.name(), " cuda");
}
inline std::string not_taken(const PrepareContext& context, DType dtype) {
  return cat("cuda ", context.op.name(), " has no kernel for ", name(dtype));
}

constexpr int64_t kBlockThreads = 256;
constexpr int64_t kElementsAThread = 8;  // kVector of kernels/elements.cuh

inline unsigned blocks_for(int64_t work, int64_t a_block) {
  return static_cast<unsigned>((work + a_block - 1) / a_block);
}

// A launch with a thread for every one of n, and one with a thread for eight of them; none of
// either for n = 0.
template <class... Arguments>
void launch_threads(Device& device, const Kernel& kernel, int64_t n, Arguments... arguments) {
  if (n == 0) return;
  device.launch(kernel, {blocks_for(n, kBlockThreads)}, {kBlockThreads}, 0, arguments...);
}
template <class... Arguments>
void launch_vectors(Device& device, const Kernel& kernel, int64_t n, Arguments... arguments) {
  if (n == 0) return;
  device.launch(kernel, {blocks_for(n, kBlockThreads * kElementsAThread)}, {kBlockThreads}, 0,
                arguments...);
}

// Whether kernels may move what begins there 16 bytes at a time.
inline bool in_vectors(std::initializer_list<const void*> addresses) {
  return std::ranges::all_of(
      addresses, [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; });
}

// Appends an inner dim to walks that go together. Dims of one element are dropped, and a dim that
// continues the one before it in all walks is merged into it. At most kMaxDims dims.
inline void add_dim(std::initializer_list<Walk*> walks, int64_t size,
                    std::initializer_list<int64_t> steps) {
  if (size == 1) return;
  const int32_t dims = (*walks.begin())->dims;
  bool merges = dims > 0;
  auto step = steps.begin();
  for (Walk* walk : walks) {
    merges = merges && walk->steps[dims - 1] == *step * size;
    ++step;
  }
  step = steps.begin();
  for (Walk* walk : walks) {
    if (merges) {
      walk->sizes[dims - 1] *= size;
      walk->steps[dims - 1] = *step;
    } else {
      walk->sizes[dims] = size;
      walk->steps[dims] = *step;
      walk->dims = dims + 1;
    }
    ++step;
  }
}

// What random_bits and dropout give their kernels: RandomLines of base/random_lines.h, with the
// begin of the part still to come.
RandomPlaces random_places(const Shape& shape, const TensorPart& part);

// The largest power of two, at most 16, that divides a number of bytes and two addresses.
int64_t largest_unit(int64_t bytes, const void* x, const void* y);

// Rows of operand `table_operand` at the ids of operand `ids_operand`; zeros of ids outside of it.
Launch row_gather(Device& device, std::string name, const TensorType& table, const TensorType& ids,
                  size_t table_operand, size_t ids_operand, IdCheck check);

// Rows of operand 1, summed at the ids of operand 0 in ascending order; what ids outside of the
// result have is left out. With `adds` the sums are added to operand 2.
Prepared row_scatter(Device& device, const PrepareContext& context, IdCheck check,
                     bool adds = false);

// For ops that change an operand in place: copies it where the plan could not let it share its
// bytes with the result.
void copy_unless_shared(Device& device, const void* operand, void* result, int64_t bytes);

// By a kernel dot_..., `bias` null where there is none.
void launch_dot(Device& device, const Kernel& kernel, const DotShape& shape, const void* a,
                const void* b, const void* bias, void* y);

}  // namespace tessera::cuda
