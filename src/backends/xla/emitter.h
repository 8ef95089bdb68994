#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/xla/attention_blocks.h"
#include "backends/xla/mlir_text.h"
#include "backends/xla/stablehlo.h"
#include "ir/graph.h"
#include "ops/collective/collective.h"
#include "ops/primitive/random.h"

namespace tessera::xla {

// Writes a graph down node by node. Without these barriers XLA undoes what our passes decided,
// since it takes equal ops for one:
//   1. Nodes of the backward pass read values of the forward pass through a barrier.
//   2. What is computed again reads its operands, and state, through one that also takes the last
//      product of the backward pass: so it begins where that is.
//   3. And the result of the reduce_scatter before the last one: so gradients of units leave before
//      others are made.
class Emitter {
 public:
  Emitter(const Graph& graph, const EmitOptions& options) : graph_(graph), options_(options) {}
  StableHlo emit();

 private:
  void emit(const Node& node);
  bool emit_elementwise(const Node& node);
  bool emit_shaping(const Node& node);
  bool emit_reduction(const Node& node);
  bool emit_storage(const Node& node);
  bool emit_collective(const Node& node);
  bool emit_composite(const Node& node);
  Tensor erf(const Tensor& x);
  Tensor gather(const Node& node);
  Tensor scatter_add(const Node& node);
  // Bits of base/random.h: of rows of shape `whole`, `shape` from `begins` on, integer scalars by
  // dim.
  struct RandomPart {
    Shape shape, whole;
    std::map<int64_t, Tensor> begins;
  };
  Tensor random_bits(const Tensor& row_keys, const std::string& stream, const RandomPart& part);
  Tensor random_bits(const Node& node);
  std::vector<Tensor> philox(std::vector<Tensor> counter, std::vector<Tensor> key);
  Tensor axis_index(AxisSet axes);
  Tensor all_reduce(const Node& node);
  Tensor reduce_scatter(const Node& node);
  Tensor all_to_all(const Tensor& x, int64_t split_dim, int64_t concat_dim, AxisSet axes);
  std::string groups(AxisSet axes) const;
  void adamw(const Node& node);
  void lion(const Node& node);
  void sgd(const Node& node);
  void sum_squares(const Node& node);
  void cache_write(const Node& node);
  AttentionBlocks attention_blocks(const Node& node, size_t at, double scale,
                                   const AttentionMask& mask, const AttentionDropout& dropout);
  void attention(const Node& node);
  void attention_backward(const Node& node);
  void head(const Node& node);
  // What the nodes of a graph of primitives give for these arguments, without barriers.
  std::vector<Tensor> inlined(const Graph& graph, std::span<const Tensor> arguments);

  // Operand i of the node that is being written, behind its barrier.
  Tensor in(const Node& node, size_t i);
  std::vector<Tensor> all_in(const Node& node);
  Tensor behind_forward(const Node& node, Value v);
  Tensor tensor(Value v) const { return *tensors_[static_cast<size_t>(v.id)]; }
  void set(Value v, Tensor t) { tensors_[static_cast<size_t>(v.id)] = std::move(t); }
  const TensorType& type_of_output(const Node& node) const { return graph_.type(node.outputs[0]); }
  // The dtype that sums of it are taken in.
  static std::string wide(const std::string& element) {
    return element == "bf16" || element == "f16" ? "f32" : element;
  }

  const Graph& graph_;
  const EmitOptions& options_;
  MlirText text_;
  std::vector<std::optional<Tensor>> tensors_;  // by value
  std::map<Value, Tensor> behind_;              // values of the forward pass, behind a barrier
  std::optional<Tensor> last_backward_product_;
  std::vector<Tensor> reductions_;
};

// The graph with all composites replaced by their definition, but for those that emit_composite()
// writes.
Graph with_definitions(const Graph& graph, const EmitOptions& options);

}  // namespace tessera::xla
