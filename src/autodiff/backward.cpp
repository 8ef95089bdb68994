#include "autodiff/backward.h"

#include "ir/marks.h"
#include "ops/composite/sum_n.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"

namespace tessera {
namespace {

class Reverse {
 public:
  Reverse(Graph& graph, Value loss, std::span<const Value> wrt)
      : graph_(graph),
        nodes_(static_cast<int32_t>(graph.nodes().size())),
        needed_(static_cast<size_t>(graph.num_values())),
        parts_(static_cast<size_t>(graph.num_values())) {
    for (Value v : wrt) needed_[index(v)] = true;
    for (const Node& node : graph.nodes()) {
      if (!node.op->differentiable()) continue;
      bool any = false;
      for (Value v : node.inputs) any = any || needed_[index(v)];
      if (!any) continue;
      for (Value v : node.outputs)
        needed_[index(v)] = needed_[index(v)] || is_float(graph.type(v).dtype);
    }
    graph_.set_phase(Phase::kBackward);
    parts_[index(loss)].push_back(constant_like(graph_, loss, 1));
  }

  void walk() {
    for (int32_t i = nodes_ - 1; i >= 0; --i) visit(graph_.nodes()[static_cast<size_t>(i)]);
  }

  // The summed cotangent, once all uses were visited.
  Value cotangent(Value v) {
    std::vector<Value>& parts = parts_[index(v)];
    if (parts.empty()) return {};
    if (parts.size() > 1) {
      DType widest = graph_.type(parts[0]).dtype;
      for (Value p : parts) {
        if (size_of(graph_.type(p).dtype) > size_of(widest)) widest = graph_.type(p).dtype;
      }
      for (Value& p : parts) p = convert(graph_, p, widest);
      parts = {graph_.add_one(std::make_shared<SumN>(), parts)};
    }
    return parts[0];
  }

 private:
  static size_t index(Value v) { return static_cast<size_t>(v.id); }

  void visit(Node node) {  // by value: the graph grows below
    if (!node.op->differentiable() || node.inputs.empty()) return;
    std::vector<uint8_t> wanted;
    bool any_wanted = false, any_given = false;
    for (Value v : node.inputs) {
      wanted.push_back(needed_[index(v)]);
      any_wanted = any_wanted || wanted.back();
    }
    if (!any_wanted) return;
    graph_.set_scope(node.scope, node.layer);
    std::vector<Value> cotangents;
    for (Value v : node.outputs) {
      cotangents.push_back(needed_[index(v)] ? cotangent(v) : Value{});
      any_given = any_given || cotangents.back();
    }
    if (!any_given) return;
    auto flags = std::make_unique<bool[]>(wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) flags[i] = wanted[i] != 0;
    const std::function<Value(size_t, DType)> take_sum = [&](size_t input, DType dtype) {
      return take(node.inputs[input], dtype);
    };
    std::vector<Value> gradients =
        node.op->vjp({graph_, node, cotangents, {flags.get(), wanted.size()}, take_sum});
    TESSERA_CHECK(gradients.size() == node.inputs.size(), std::string(node.op->name()));
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (wanted[i] && gradients[i]) add_part(node, node.inputs[i], gradients[i]);
    }
  }

  // What later uses gave a value, if it is one part of that dtype, which is out of the parts then.
  // Several are left to be summed at once: a sum of them now would be one pass more.
  Value take(Value v, DType dtype) {
    std::vector<Value>& parts = parts_[index(v)];
    if (parts.size() != 1 || graph_.type(parts[0]).dtype != dtype) return {};
    const Value sum = parts[0];
    parts.clear();
    return sum;
  }

  void add_part(const Node& node, Value v, Value gradient) {
    AxisSet value_marks = graph_.type(v).varying, marks = graph_.type(gradient).varying;
    TESSERA_CHECK(value_marks.contains(marks),
                  cat("the cotangent of ", node.op->name(),
                      " varies over an axis that its value does not (", node.scope, ")"));
    TESSERA_CHECK(graph_.shape(gradient) == graph_.shape(v),
                  cat("shape of a cotangent of ", node.op->name()));
    parts_[index(v)].push_back(vary(graph_, gradient, value_marks));
  }

  Graph& graph_;
  int32_t nodes_;
  std::vector<bool> needed_;
  std::vector<std::vector<Value>> parts_;
};

}  // namespace

std::vector<Value> backward(Graph& graph, Value loss, std::span<const Value> wrt) {
  const TensorType& type = graph.type(loss);
  TESSERA_CHECK(type.shape.empty() && is_float(type.dtype) && type.varying.empty(),
                cat("the loss must be a replicated float scalar, is ", to_string(type)));
  std::string scope = graph.scope();
  int32_t layer = graph.layer();
  Phase phase = graph.phase();
  Reverse reverse(graph, loss, wrt);
  reverse.walk();
  std::vector<Value> gradients;
  for (Value v : wrt) gradients.push_back(reverse.cotangent(v));
  graph.set_scope(scope, layer);
  graph.set_phase(phase);
  return gradients;
}

}  // namespace tessera
