#include "backends/cuda/cudnn_attention_graphs.h"

#include <algorithm>

#include "backends/cuda/kernel_launch.h"

namespace tessera::cuda {
namespace {

// Strides of [B, T, heads, D], dims in the order [B, heads, T, D].
Shape strides_of(int64_t tokens, int64_t heads, int64_t width) {
  return {tokens * heads * width, width, heads * width, 1};
}
Shape swapped(Shape s) {
  std::swap(s[2], s[3]);
  return s;
}

// The tensors of attention for some sequences and heads of a whole.
class AttentionTensors {
 public:
  AttentionTensors(CudnnGraph& graph, const CudnnAttentionSizes& s)
      : graph_(graph),
        query_dims_{s.batch, s.heads, s.tokens, s.width},
        query_strides_(strides_of(s.tokens, s.whole_heads, s.width)),
        key_dims_{s.batch, s.kv_heads, s.tokens, s.width},
        key_strides_(strides_of(s.tokens, s.whole_kv_heads, s.width)),
        scores_{s.batch, s.heads, s.tokens, s.tokens},
        rows_{s.batch, s.heads, s.tokens, 1} {}

  const Shape& query_dims() const { return query_dims_; }
  const Shape& scores() const { return scores_; }
  const Shape& rows() const { return rows_; }
  CudnnGraph::TensorRef query(int64_t id) {
    return graph_.memory(id, kCudnnBFloat16, query_dims_, query_strides_);
  }
  CudnnGraph::TensorRef key(int64_t id) {
    return graph_.memory(id, kCudnnBFloat16, key_dims_, key_strides_);
  }
  CudnnGraph::TensorRef transposed_key(int64_t id) {
    return graph_.memory(id, kCudnnBFloat16, swapped(key_dims_), swapped(key_strides_));
  }
  // The keys between operations, from their transpose.
  CudnnGraph::TensorRef key_of_transposed(CudnnGraph::TensorRef transposed) {
    auto k = graph_.between(kCudnnFloat, key_dims_, key_strides_);
    graph_.reshape(transposed, k);
    return k;
  }
  CudnnGraph::TensorRef row(int64_t id) {
    return graph_.memory(id, kCudnnFloat, rows_, row_major_strides(rows_));
  }
  CudnnGraph::TensorRef score(int type = kCudnnFloat) { return graph_.between(type, scores_); }
  CudnnGraph::TensorRef row() { return graph_.between(kCudnnFloat, rows_); }

  // x, or the hidden number where the key is behind the query or outside of its window.
  CudnnGraph::TensorRef masked(CudnnGraph::TensorRef x, bool windowed) {
    auto hidden = graph_.scalar(cudnn_attention::kHidden);
    x = where(x, hidden, [&](auto query, auto key, auto visible) {
      graph_.pointwise(kCudnnGreaterEqual, query, key, visible, kCudnnBoolean);
    });
    if (!windowed) return x;
    auto window = graph_.scalar(cudnn_attention::kWindow);
    return where(x, hidden, [&](auto query, auto key, auto visible) {
      auto end = score();
      graph_.pointwise(kCudnnAdd, key, window, end);
      graph_.pointwise(kCudnnGreater, end, query, visible, kCudnnBoolean);
    });
  }

  // One operation with a result of its own.
  CudnnGraph::TensorRef apply(int mode, CudnnGraph::TensorRef x, CudnnGraph::TensorRef b) {
    auto y = graph_.between(kCudnnFloat, x->dims);
    graph_.pointwise(mode, x, b, y);
    return y;
  }
  CudnnGraph::TensorRef apply(int mode, CudnnGraph::TensorRef x) {
    auto y = graph_.between(kCudnnFloat, x->dims);
    graph_.pointwise(mode, x, y);
    return y;
  }
  CudnnGraph::TensorRef reduced(int op, CudnnGraph::TensorRef x) {
    auto y = row();
    graph_.reduce(op, x, y);
    return y;
  }
  CudnnGraph::TensorRef scores_of(CudnnGraph::TensorRef a, CudnnGraph::TensorRef b) {
    auto y = score();
    graph_.matmul(a, b, y);
    return y;
  }
  // x^T by `rows`, summed over the query heads of a key/value head into y.
  void gradient_of_keys(CudnnGraph::TensorRef x, CudnnGraph::TensorRef rows,
                        CudnnGraph::TensorRef y) {
    auto transposed =
        graph_.between(kCudnnBFloat16, swapped(scores_), swapped(row_major_strides(scores_)));
    graph_.reshape(x, transposed);
    if (query_dims_ == key_dims_) return graph_.matmul(transposed, rows, y);
    auto of_heads = graph_.between(kCudnnBFloat16, query_dims_);
    graph_.matmul(transposed, rows, of_heads);
    graph_.reduce(kCudnnReduceAdd, of_heads, y);
  }

 private:
  template <class Compare>
  CudnnGraph::TensorRef where(CudnnGraph::TensorRef x, CudnnGraph::TensorRef hidden,
                              Compare compare) {
    auto query = score(kCudnnInt32), key = score(kCudnnInt32), visible = score(kCudnnBoolean),
         y = score();
    graph_.index(x, 2, query);
    graph_.index(x, 3, key);
    compare(query, key, visible);
    graph_.select(x, hidden, visible, y);
    return y;
  }

  CudnnGraph& graph_;
  Shape query_dims_, query_strides_, key_dims_, key_strides_, scores_, rows_;
};

}  // namespace

CudnnGraph cudnn_attention_graph(const Cudnn& library, const CudnnAttentionSizes& s) {
  CudnnGraph graph(library);
  AttentionTensors t(graph, s);
  auto scores = t.apply(
      kCudnnMul, t.scores_of(t.query(cudnn_attention::kQ), t.transposed_key(cudnn_attention::kK)),
      graph.scalar(cudnn_attention::kScale));
  scores = t.masked(scores, s.windowed);
  auto most = t.reduced(kCudnnReduceMax, scores);
  auto e = t.apply(kCudnnExp, t.apply(kCudnnSub, scores, most));
  auto sum = t.reduced(kCudnnReduceAdd, e);
  graph.pointwise(kCudnnAdd, most, t.apply(kCudnnLog, sum), t.row(cudnn_attention::kStatistics));
  auto p = t.score(kCudnnBFloat16);
  graph.pointwise(kCudnnDiv, e, sum, p);
  graph.matmul(p, t.key(cudnn_attention::kV), t.query(cudnn_attention::kO));
  return graph;
}

CudnnGraph cudnn_attention_gradient_graph(const Cudnn& library, const CudnnAttentionSizes& s,
                                          bool in_order) {
  CudnnGraph graph(library);
  AttentionTensors t(graph, s);
  auto d_o = t.query(cudnn_attention::kGradientOfO), q = t.query(cudnn_attention::kQ),
       transposed_k = t.transposed_key(cudnn_attention::kK);
  auto scale = graph.scalar(cudnn_attention::kScale);
  // delta = rowsum(do o), times one: the place of dropout's factor, which the engines expect.
  auto product =
      graph.between(kCudnnFloat, t.query_dims(),
                    {s.heads * s.tokens * s.width, s.tokens * s.width, s.heads * s.width, 1});
  graph.pointwise(kCudnnMul, d_o, t.query(cudnn_attention::kO), product);
  auto delta = t.row(cudnn_attention::kDelta);
  graph.pointwise(kCudnnMul, t.reduced(kCudnnReduceAdd, product),
                  graph.scalar(cudnn_attention::kOne), delta);
  // p = exp(scale q k^T - lse)
  auto scores = t.apply(kCudnnMul, t.scores_of(q, transposed_k), scale);
  scores = t.masked(t.apply(kCudnnSub, scores, t.row(cudnn_attention::kStatistics)), s.windowed);
  auto p = t.apply(kCudnnExp, scores);
  t.gradient_of_keys(p, d_o, t.key(cudnn_attention::kDv));
  // ds = p (do v^T - delta) scale
  auto ds = t.apply(kCudnnSub, t.scores_of(d_o, t.transposed_key(cudnn_attention::kV)), delta);
  ds = t.apply(kCudnnMul, t.apply(kCudnnMul, ds, p), scale);
  t.gradient_of_keys(ds, q, t.key(cudnn_attention::kDk));
  auto k = t.key_of_transposed(transposed_k);
  if (in_order) {
    auto sum = graph.memory(cudnn_attention::kDqSum, kCudnnFloat, t.query_dims(),
                            row_major_strides(t.query_dims()));
    graph.matmul(ds, k, sum);
    graph.pointwise(kCudnnIdentity, sum, t.query(cudnn_attention::kDq));
  } else {
    graph.matmul(ds, k, t.query(cudnn_attention::kDq));
  }
  return graph;
}

}  // namespace tessera::cuda
