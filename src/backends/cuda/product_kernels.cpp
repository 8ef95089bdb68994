#include "backends/cuda/kernel_launch.h"
#include "backends/cuda/products.h"
#include "base/error.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kProductTile = 128, kStages = 3,
                  kTileBytes = kProductTile * 32 * 2;  // of kernels/product.cu

DotShape shape_of(const ProductProblem& p) {
  DotShape shape;
  shape.row_count = p.m;
  shape.column_count = p.n;
  shape.terms = p.k;
  add_dim({&shape.rows}, p.m, {p.transpose_a ? 1 : p.lda});
  add_dim({&shape.columns}, p.n, {p.transpose_b ? p.ldb : 1});
  shape.step_a = p.transpose_a ? p.lda : 1;
  shape.step_b = p.transpose_b ? 1 : p.ldb;
  shape.result_stride = p.ldc;
  shape.accumulate = p.accumulate;
  return shape;
}

void check_operand(const char* name, const void* p, int64_t alignment) {
  TESSERA_CHECK(reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(alignment) == 0,
                cat("operand ", name, " of a product is not a multiple of ", alignment, " bytes"));
}

}  // namespace

void check_alignment(const ProductProblem& p, const ProductArguments& a) {
  check_operand("a", a.a, p.align_a);
  check_operand("b", a.b, p.align_b);
  check_operand("c", a.c, p.align_c);
}

Product own_product(Device& device, const ProductProblem& p) {
  TESSERA_CHECK((p.operands == DType::kF32 || p.operands == DType::kBF16) &&
                    (p.result == DType::kF32 || p.result == p.operands),
                "products are of f32 and bf16");
  DotShape shape = shape_of(p);
  Kernel plain = find_kernel(device, "dot", name(p.operands), name(p.result));
  const bool by_vectors =
      p.lda % 8 == 0 && p.ldb % 8 == 0 && p.align_a % 16 == 0 && p.align_b % 16 == 0;
  if (p.operands == DType::kF32 || !by_vectors) {
    return {cat("product ", name(p.operands), " cuda"), 0, [=, &device](const ProductArguments& a) {
              launch_dot(device, plain, shape, a.a, a.b, p.bias ? a.bias : nullptr, a.c);
            }};
  }
  Kernel kernel =
      find_kernel(device, "product", cat(p.transpose_a ? "t" : "n", p.transpose_b ? "t" : "n"),
                  "bf16", name(p.result));
  auto run = [=, &device](const ProductArguments& a) {
    if (p.m == 0 || p.n == 0) return;
    check_alignment(p, a);
    device.launch(kernel, {blocks_for(p.n, kProductTile), blocks_for(p.m, kProductTile)},
                  {kBlockThreads}, static_cast<int>(kStages * 2 * kTileBytes), a.a, a.b,
                  p.bias ? a.bias : nullptr, a.c, p.m, p.n, p.k, p.lda, p.ldb, p.ldc,
                  static_cast<int32_t>(p.accumulate));
  };
  return {"product bf16 cuda mma", 0, run};
}

}  // namespace tessera::cuda
