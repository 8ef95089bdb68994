#include "backends/cpu/composite_kernels.h"

#include "backends/cpu/kernels/elementwise.h"
#include "base/error.h"

namespace tessera::cpu {

void check_document_starts(const int32_t* starts, int64_t batch, int64_t tokens) {
  for (int64_t row = 0; row < batch; ++row, starts += tokens) {
    int32_t before = 0;
    for (int64_t t = 0; t < tokens; before = starts[t++])
      TESSERA_CHECK(starts[t] >= before && starts[t] <= t,
                    cat("document_starts[", row, ", ", t, "] is ", starts[t], " behind ", before));
  }
}

void copy_unless_shared(const void* operand, void* result, int64_t bytes, ThreadPool& pool) {
  if (operand != result) copy(operand, result, bytes, pool);
}

void register_composite_kernels(KernelTable& table, Isa isa, ThreadPool& pool) {
  register_embedding(table, isa, pool);
  register_norms(table, isa, pool);
  register_linear(table, isa, pool);
  register_rope(table, isa, pool);
  register_attention(table, isa, pool);
  register_activations(table, isa, pool);
  register_head(table, isa, pool);
  register_sums(table, isa, pool);
  register_optimizers(table, isa, pool);
}

}  // namespace tessera::cpu
