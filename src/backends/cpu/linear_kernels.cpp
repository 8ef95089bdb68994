#include "backends/cpu/composite_kernels.h"
#include "backends/cpu/kernels/matmul.h"

namespace tessera::cpu {
namespace {

Prepared matmul_launch(const MatmulProblem& problem, Isa isa, ThreadPool& pool) {
  auto matmul = make_matmul(problem, isa);
  return Launch{matmul->description(), matmul->workspace_bytes(pool.threads()),
                [matmul, &pool](const LaunchArguments& a) {
                  const MatmulProblem& p = matmul->problem();
                  if (p.accumulate)
                    copy_unless_shared(a.inputs[2], a.outputs[0], p.m * p.n * size_of(p.c), pool);
                  matmul->run(pool, a.inputs[0], a.inputs[1], a.outputs[0], a.workspace,
                              p.bias ? a.inputs[2] : nullptr, a.reuse_distance);
                }};
}

}  // namespace

void register_linear(KernelTable& table, Isa isa, ThreadPool& pool) {
  table.add("linear", for_floats(0, [isa, &pool](const PrepareContext& c) {
              DType d = c.inputs[0].dtype;
              int64_t n = c.inputs[1].shape[0], k = c.inputs[1].shape[1];
              bool bias = c.inputs.size() == 3;
              return matmul_launch({.m = rows_of(c.inputs[0]),
                                    .n = n,
                                    .k = k,
                                    .transpose_b = true,
                                    .a = d,
                                    .b = d,
                                    .c = d,
                                    .lda = k,
                                    .ldb = k,
                                    .ldc = n,
                                    .bias = bias},
                                   isa, pool);
            }));
  for (bool adds : {false, true}) {
    table.add(adds ? "linear_dx_add" : "linear_dx",
              for_floats(0, [isa, &pool, adds](const PrepareContext& c) {
                DType d = c.inputs[0].dtype;
                int64_t k = c.inputs[1].shape[0], n = c.inputs[1].shape[1];
                return matmul_launch({.m = rows_of(c.inputs[0]),
                                      .n = n,
                                      .k = k,
                                      .a = d,
                                      .b = d,
                                      .c = d,
                                      .lda = k,
                                      .ldb = n,
                                      .ldc = n,
                                      .accumulate = adds},
                                     isa, pool);
              }));
    table.add(adds ? "linear_dw_add" : "linear_dw",
              for_floats(0, [isa, &pool, adds](const PrepareContext& c) {
                DType d = c.inputs[0].dtype;
                int64_t m = c.inputs[0].shape.back(), n = c.inputs[1].shape.back();
                return matmul_launch({.m = m,
                                      .n = n,
                                      .k = rows_of(c.inputs[0]),
                                      .transpose_a = true,
                                      .a = d,
                                      .b = d,
                                      .c = DType::kF32,
                                      .lda = m,
                                      .ldb = n,
                                      .ldc = n,
                                      .accumulate = adds},
                                     isa, pool);
              }));
  }
}

}  // namespace tessera::cpu
