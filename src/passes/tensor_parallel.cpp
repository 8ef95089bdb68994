#include "passes/tensor_parallel.h"

#include <map>
#include <tuple>

#include "ir/marks.h"
#include "ir/placement.h"
#include "ir/rewriter.h"
#include "ops/collective/collective.h"

namespace tessera {
namespace {

class Splitter final : public PlacementContext {
 public:
  Splitter(const Graph& from, Graph& to, AxisSet axes, bool sequence_parallel)
      : from_(from),
        to_(to),
        axes_(axes),
        sequence_parallel_(sequence_parallel),
        values_(static_cast<size_t>(from.num_values())) {}

  void define(Value original, Value value, Placement placement) {
    values_[index(original)] = {value, placement, {}, {}};
  }
  void split(const Node& node) {
    node_ = &node;
    to_.set_scope(node.scope, node.layer);
    node.op->split(*this);
  }
  Value result(Value original) {
    const Entry& e = values_[index(original)];
    TESSERA_CHECK(e.placement.whole() && !to_.type(e.value).varying.overlaps(axes_),
                  "a result or new state of the model must be equal on all ranks of a "
                  "tensor-parallel group");
    return e.value;
  }

  const Node& node() const override { return *node_; }
  Graph& graph() override { return to_; }
  AxisSet axes() const override { return axes_; }
  const TensorType& whole_type(size_t i) const override { return from_.type(node_->inputs[i]); }
  Value operand(size_t i) override { return entry(i).value; }
  Placement placement(size_t i) override { return entry(i).placement; }

  Value reduced(size_t i) override {
    Entry& e = entry(i);
    if (e.placement.kind != Placement::Kind::kPartial) return e.value;
    // Part of what makes the value, not of its first reader: a layer that computes again what it
    // makes has to keep the sum that enters it, and errors name the layer whose sum it is.
    const Node& maker = from_.nodes()[static_cast<size_t>(from_.producer(node_->inputs[i]))];
    to_.set_scope(maker.scope, maker.layer);
    std::tie(e.value, e.placement) = summed(e.value, e.placement.axes, whole_type(i).shape);
    to_.set_scope(node_->scope, node_->layer);
    return e.value;
  }

  std::pair<Value, Placement> summed(Value partial, AxisSet over, const Shape& whole) override {
    if (sequence_parallel_ && whole.size() == 3 && over == axes_ &&
        whole[1] % to_.mesh().size(axes_) == 0) {
      return {reduce_scatter(to_, partial, over, 1, to_.type(partial).dtype),
              {Placement::Kind::kSplit, 1, over}};
    }
    return {to_.add_one(std::make_shared<AllReduceOp>(over, Reduction::kSum), {partial}), {}};
  }

  Value entered(size_t i) override {
    Value value = reduced(i);
    Entry& e = entry(i);
    if (!e.entered) {
      e.entered = e.placement.split() ? all_gather(to_, value, e.placement.axes, e.placement.dim)
                                      : vary(to_, value, axes_);
    }
    return e.entered;
  }

  Value replicated(size_t i) override {
    Value value = reduced(i);
    Entry& e = entry(i);
    if (!e.placement.split()) return value;
    if (!e.replicated) {
      e.replicated = gather_replicated(to_, value, e.placement.axes, e.placement.dim);
    }
    return e.replicated;
  }

  Value sliced(size_t i, Placement placement) override {
    return local_slice(to_, replicated(i), placement.axes, placement.dim);
  }

  void put(size_t output, Value value, Placement placement) override {
    define(node_->outputs[output], value, placement);
  }

 private:
  struct Entry {
    Value value;
    Placement placement;
    Value entered, replicated;  // made when first asked for
  };
  static size_t index(Value v) { return static_cast<size_t>(v.id); }
  Entry& entry(size_t i) { return values_[index(node_->inputs[i])]; }

  const Graph& from_;
  Graph& to_;
  AxisSet axes_;
  bool sequence_parallel_;
  std::vector<Entry> values_;
  const Node* node_ = nullptr;
};

}  // namespace

std::vector<ParameterPart> parameter_parts(const std::vector<Parameter>& parameters,
                                           const Mesh& mesh, const TensorParallelAxes& axes) {
  std::vector<ParameterPart> parts;
  for (const Parameter& p : parameters) {
    ParameterPart part{p.shape, -1, {}};
    for (size_t d = 0; d < p.axes.size(); ++d) {
      const std::string& axis = p.axes[d];
      if (axis.empty() || axis == "embed" || axes.all.empty()) continue;
      TESSERA_CHECK(part.dim < 0, cat("two dims of ", p.name, " to cut"));
      part.dim = static_cast<int64_t>(d);
      part.axes = axis == "kv_heads" ? axes.kv_heads : axes.all;
      if (part.axes.empty()) {  // one key/value head for all
        part.dim = -1;
        continue;
      }
      int64_t ranks = mesh.size(part.axes);
      int64_t& size = part.shape[d];
      if (size % ranks != 0 && axis != "vocab") {
        throw UserError(cat("--tensor_parallel_degree: dim ", d, " (", axis, ") of ", p.name, " ",
                            to_string(p.shape), " cannot be cut into ", ranks, " equal parts"));
      }
      size = (size + ranks - 1) / ranks;
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

Graph tensor_parallel(const Graph& graph, const std::vector<Parameter>& parameters,
                      const std::vector<ParameterPart>& parts, const Mesh& mesh,
                      const TensorParallelAxes& axes, bool sequence_parallel) {
  Graph result(mesh);
  Splitter splitter(graph, result, axes.all, sequence_parallel);
  std::map<Value, size_t> parameter_of;
  for (size_t i = 0; i < parameters.size(); ++i)
    parameter_of[graph.input_value(parameters[i].name)] = i;
  AxisSet every;
  for (const Mesh::Axis& axis : mesh.axes()) every = every | mesh.axis(axis.name);
  for (const Node& node : graph.nodes()) {
    if (node.op->tier() != Tier::kInput) {
      splitter.split(node);
      continue;
    }
    result.set_scope(node.scope, node.layer);
    Value original = node.outputs[0];
    TensorType type = graph.type(original);
    auto parameter = parameter_of.find(original);
    if (parameter != parameter_of.end()) {
      const ParameterPart& part = parts[parameter->second];
      type.shape = part.shape;
      type.varying = part.axes;
      Placement placement;
      if (part.dim >= 0) placement = {Placement::Kind::kSplit, part.dim, part.axes};
      splitter.define(original,
                      result.input(parameters[parameter->second].name, InputKind::kParameter, type),
                      placement);
      continue;
    }
    const GraphInput& input = *graph.input_of(original);
    type.varying = every - axes.all;
    splitter.define(original, result.input(input.name, input.kind, type), {});
  }
  result.set_scope("");
  for (const GraphOutput& output : graph.outputs())
    result.output(output.name, splitter.result(output.value));
  for (const StateUpdate& update : graph.updates())
    result.update(update.slot, splitter.result(update.value));
  return result;
}

}  // namespace tessera
