#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "backends/cuda/device.h"
#include "base/dtype.h"

namespace tessera::cuda {

// What addresses of values are multiples of: those that a plan gives (plan/plan.h), parts of flat
// units (passes/flat_units.h) and memory of the driver. Parts of a stack lie at multiples of their
// own bytes.
constexpr int64_t kPlacedAlignment = 64;
// Of what every address of a value of so many bytes is a multiple, wherever a plan puts it.
constexpr int64_t alignment_of(int64_t bytes) {
  return bytes == 0 ? kPlacedAlignment : std::min(kPlacedAlignment, bytes & -bytes);
}

// c[m, n] = a b (+ bias[n]) (+ c), row-major: a [m, k] or, transposed, [k, m]; b [k, n] or [n, k];
// of one dtype, f32 or bf16. Leading dims in elements. Summed in f32, rounded once to the dtype of
// c, f32 or that of a (a k in parts: product_parts.h). Sums are in a fixed order that depends on
// the problem only.
struct ProductProblem {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  DType operands = DType::kF32, result = DType::kF32;
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool accumulate = false;  // adds to c
  bool bias = false;        // in the dtype of the operands
  // Bytes of which the addresses are multiples, of every product of this kind: an algorithm follows
  // from the problem alone, so that a shape has the same bits wherever its operands lie.
  int64_t align_a = kPlacedAlignment, align_b = kPlacedAlignment, align_c = kPlacedAlignment;
};

struct ProductArguments {
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;
  void* workspace = nullptr;
};

// A product that is ready to be enqueued on the device's current lane.
struct Product {
  std::string kernel;  // for reports
  int64_t workspace_bytes = 0;
  std::function<void(const ProductArguments&)> run;
};

// InternalError where an address is not a multiple of what the problem says.
void check_alignment(const ProductProblem& problem, const ProductArguments& arguments);

// Makes products, or none where it does not take a problem.
using MakeProduct = std::function<std::optional<Product>(const ProductProblem&)>;

// What cublasLt may have for the partial sums of a product: as much as NVIDIA advises for its
// latest GPUs. It wants them at a multiple of 256 bytes, for which a plan grants some more.
constexpr int64_t kLibraryWorkspaceBytes = 32 << 20, kWorkspacePadding = 256 - kPlacedAlignment;
constexpr int64_t padded_workspace(int64_t bytes) {
  return bytes == 0 ? 0 : bytes + kWorkspacePadding;
}

// By kernels of this program: every problem of f32 and bf16; bf16 by tensor cores where leading
// dims are multiples of 8 and a and b of 16 bytes.
Product own_product(Device& device, const ProductProblem& problem);

}  // namespace tessera::cuda
