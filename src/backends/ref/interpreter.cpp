#include "backends/ref/interpreter.h"

#include "backends/ref/collectives.h"
#include "backends/ref/kernels.h"
#include "ir/printer.h"

namespace tessera::ref {
namespace {

using Ranks = std::vector<Tensor>;  // one tensor a rank

void round_all(Tensor& t) {
  if (t.type.dtype == DType::kF64 || !is_float(t.type.dtype)) return;
  for (double& x : t.data) x = round_to(t.type.dtype, x);
}

class Lockstep {
 public:
  explicit Lockstep(const Graph& graph)
      : graph_(graph),
        world_(static_cast<size_t>(graph.mesh().world_size())),
        values_(static_cast<size_t>(graph.num_values())),
        last_use_(values_.size(), -1) {
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      for (Value v : graph.nodes()[i].inputs) last_use_[index(v)] = static_cast<int64_t>(i);
    }
    for (const GraphOutput& o : graph.outputs()) last_use_[index(o.value)] = INT64_MAX;
    for (const StateUpdate& u : graph.updates()) last_use_[index(u.value)] = INT64_MAX;
  }

  void set(Value v, Ranks tensors) { values_[index(v)] = std::move(tensors); }
  const Ranks& get(Value v) const { return values_[index(v)]; }

  void run(const Observer& observer = {}) {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      if (node.op->tier() != Tier::kInput) run_node(node);
      for (size_t k = 0; observer && k < node.outputs.size(); ++k)
        observer(graph_, node, k, get(node.outputs[k]));
      for (Value v : node.inputs) {
        if (last_use_[index(v)] == static_cast<int64_t>(i)) values_[index(v)].clear();
      }
    }
  }

 private:
  static size_t index(Value v) { return static_cast<size_t>(v.id); }

  // Zeros for every rank.
  void allocate(Value v) {
    const TensorType& type = graph_.type(v);
    for (size_t r = 0; r < world_; ++r)
      values_[index(v)].emplace_back(type,
                                     std::vector<double>(static_cast<size_t>(type.elements())));
  }

  void run_node(const Node& node) {
    Kernel kernel = find_kernel(node.op->name());
    bool collective = node.op->tier() == Tier::kCollective;
    if (!collective && !kernel) return run_decomposition(node);
    for (Value v : node.outputs) allocate(v);
    if (collective) {
      std::vector<const Tensor*> inputs;
      for (size_t r = 0; r < world_ && !node.inputs.empty(); ++r)
        inputs.push_back(&values_[index(node.inputs[0])][r]);
      run_collective(*node.op, graph_.mesh(), inputs, values_[index(node.outputs[0])]);
    } else {
      for (size_t r = 0; r < world_; ++r) run_local(node, kernel, r);
    }
    for (Value v : node.outputs) {
      for (Tensor& t : values_[index(v)]) round_all(t);
    }
  }

  void run_local(const Node& node, Kernel kernel, size_t rank) {
    std::vector<const Tensor*> inputs;
    for (Value v : node.inputs) inputs.push_back(&values_[index(v)][rank]);
    std::vector<Tensor> outputs;
    for (Value v : node.outputs) outputs.push_back(std::move(values_[index(v)][rank]));
    kernel(*node.op, inputs, outputs);
    for (size_t k = 0; k < outputs.size(); ++k)
      values_[index(node.outputs[k])][rank] = std::move(outputs[k]);
  }

  void run_decomposition(const Node& node) {
    Graph inner(graph_.mesh());
    std::vector<Value> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      inputs.push_back(
          inner.input(cat("operand", i), InputKind::kArgument, graph_.type(node.inputs[i])));
    }
    std::vector<Value> outputs = node.op->decompose(inner, inputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      inner.output(cat("result", i), outputs[i]);
      const TensorType &got = inner.type(outputs[i]), &want = graph_.type(node.outputs[i]);
      TESSERA_CHECK(got.shape == want.shape && got.dtype == want.dtype,
                    cat("decomposition of ", to_string(graph_, node), " gives ", to_string(got)));
    }
    Lockstep nested(inner);
    for (size_t i = 0; i < inputs.size(); ++i)
      nested.set(inputs[i], values_[index(node.inputs[i])]);
    nested.run();
    for (size_t i = 0; i < outputs.size(); ++i) {
      Ranks tensors = nested.get(outputs[i]);
      for (Tensor& t : tensors) t.type = graph_.type(node.outputs[i]);
      values_[index(node.outputs[i])] = std::move(tensors);
    }
  }

  const Graph& graph_;
  size_t world_;
  std::vector<Ranks> values_;
  std::vector<int64_t> last_use_;
};

}  // namespace

Results run(const Graph& graph, const Feeds& feeds, const Observer& observer) {
  Lockstep lockstep(graph);
  auto world = static_cast<size_t>(graph.mesh().world_size());
  for (const GraphInput& input : graph.inputs()) {
    auto feed = feeds.find(input.name);
    TESSERA_CHECK(feed != feeds.end(), cat("no feed for input '", input.name, "'"));
    Ranks tensors;
    for (size_t r = 0; r < world; ++r) {
      tensors.push_back({graph.type(input.value), feed->second[feed->second.size() == 1 ? 0 : r]});
      TESSERA_CHECK(
          static_cast<int64_t>(tensors.back().data.size()) == tensors.back().type.elements(),
          cat("size of feed '", input.name, "'"));
      round_all(tensors.back());
    }
    lockstep.set(input.value, std::move(tensors));
  }
  lockstep.run(observer);
  Results results;
  for (const GraphOutput& o : graph.outputs()) results.outputs[o.name] = lockstep.get(o.value);
  for (const StateUpdate& u : graph.updates()) results.updates[u.slot] = lockstep.get(u.value);
  return results;
}

}  // namespace tessera::ref
