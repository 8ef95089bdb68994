#pragma once
#include <compare>

#include "backends/cuda/cudnn_graph.h"

namespace tessera::cuda {

// Attention as graphs of cuDNN's operations, for some sequences and heads of a whole with its
// strides: q, o, dq [batch, tokens, whole_heads, width] and k, v, dk, dv [.., whole_kv_heads, ..]
// in bf16; statistics and delta [batch, heads, tokens] in f32. Causal; `windowed`: with a window
// too.
struct CudnnAttentionSizes {
  int64_t batch, tokens, heads, kv_heads, width;
  int64_t whole_heads, whole_kv_heads;
  bool windowed;
  auto operator<=>(const CudnnAttentionSizes&) const = default;
};

namespace cudnn_attention {
// Ids of the tensors of these graphs: those of memory, then numbers that the host gives.
enum Id : int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kStatistics,
  kGradientOfO,
  kDq,
  kDk,
  kDv,
  kDelta,
  kDqSum,
  kScale,
  kHidden,
  kWindow,
  kOne
};
}  // namespace cudnn_attention

// NVIDIA's fused attention as its manual describes it, operation by operation.
CudnnGraph cudnn_attention_graph(const Cudnn& library, const CudnnAttentionSizes& sizes);
// Its gradient. `in_order`: dq is summed in memory of the caller in f32 (kDqSum); else from the
// gradient of the scores, which the plan keeps in its workspace.
CudnnGraph cudnn_attention_gradient_graph(const Cudnn& library, const CudnnAttentionSizes& sizes,
                                          bool in_order);

}  // namespace tessera::cuda
