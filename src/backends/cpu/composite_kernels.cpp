#include "backends/cpu/composite_kernels.h"

namespace tessera::cpu {

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
