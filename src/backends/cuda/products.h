#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "backends/cuda/device.h"
#include "base/dtype.h"

namespace tessera::cuda {

// c[m, n] = a b (+ bias[n]) (+ c), row-major: a [m, k] or, transposed, [k, m]; b [k, n] or [n, k];
// of one dtype, f32 or bf16. Leading dims in elements. Summed in f32, rounded once to the dtype of
// c, f32 or that of a. Sums are in a fixed order that depends on the problem only.
struct ProductProblem {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  DType operands = DType::kF32, result = DType::kF32;
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool accumulate = false;  // adds to c, which is f32
  bool bias = false;        // in the dtype of the operands
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

// Makes products, or none where it does not take a problem.
using MakeProduct = std::function<std::optional<Product>(const ProductProblem&)>;

// What cublasLt may have for the partial sums of a product: as much as NVIDIA advises for its
// latest GPUs.
constexpr int64_t kLibraryWorkspaceBytes = 32 << 20;

// By kernels of this program: every problem of f32 and bf16; bf16 by tensor cores where leading
// dims are multiples of 8.
Product own_product(Device& device, const ProductProblem& problem);

}  // namespace tessera::cuda
