#include "ir/verifier.h"

#include <algorithm>
#include <functional>
#include <set>

#include "ir/printer.h"

namespace tessera {
namespace {

using Fail = std::function<void(const std::string& what)>;

// Views lie inside the first operand, placed operands inside the one output, pairs name what
// exists.
void verify_storage_rules(const Graph& graph, const Node& node, const Fail& fail) {
  auto inside = [&](Value part, int64_t offset, Value whole) {
    const TensorType &p = graph.type(part), &w = graph.type(whole);
    return p.dtype == w.dtype && offset >= 0 && offset + p.elements() <= w.elements();
  };
  auto views = node.op->view_offsets();
  if (!views.empty() && (views.size() != node.outputs.size() || node.inputs.empty()))
    fail("one view offset an output");
  for (size_t k = 0; k < views.size(); ++k) {
    if (!inside(node.outputs[k], views[k], node.inputs[0]))
      fail(cat("output ", k, " is no view of the operand"));
  }
  auto placed = node.op->placement_offsets();
  if (!placed.empty() && (placed.size() != node.inputs.size() || node.outputs.size() != 1))
    fail("one placement offset an input");
  for (size_t k = 0; k < placed.size(); ++k) {
    if (!inside(node.inputs[k], placed[k], node.outputs[0]))
      fail(cat("operand ", k, " is no part of the result"));
  }
  auto exists = [](int index, const std::vector<Value>& values) {
    return index >= 0 && static_cast<size_t>(index) < values.size();
  };
  for (InPlacePair pair : node.op->in_place_pairs()) {
    if (!exists(pair.input, node.inputs) || !exists(pair.output, node.outputs))
      fail("an in-place pair of no operand");
  }
}

void verify_node(const Graph& graph, int32_t index, const std::string& when) {
  const Node& node = graph.nodes()[static_cast<size_t>(index)];
  auto fail = [&](const std::string& what) {
    throw InternalError(cat("graph verifier, ", when, ": ", what, ": ", to_string(graph, node)));
  };
  std::vector<TensorType> input_types;
  input_types.reserve(node.inputs.size());
  AxisSet joined;
  for (Value v : node.inputs) {
    if (v.id < 0 || v.id >= graph.num_values() || graph.producer(v) >= index)
      fail("input is not defined before its use");
    input_types.push_back(graph.type(v));
    joined = joined | input_types.back().varying;
  }
  std::vector<TensorType> expected;
  try {
    expected = node.op->infer({input_types, graph.mesh()});
  } catch (const UserError& error) {
    fail(error.what());
  }
  if (expected.size() != node.outputs.size()) fail("number of outputs");
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!node.op->sets_marks()) expected[i].varying = joined;
    if (expected[i] != graph.type(node.outputs[i]))
      fail(cat("output ", i, " should be ", to_string(expected[i], &graph.mesh())));
    if (graph.producer(node.outputs[i]) != index) fail("producer of an output");
  }
  verify_storage_rules(graph, node, fail);
}

void verify_names(const Graph& graph, const Fail& fail) {
  std::set<std::string> inputs, outputs, slots;
  for (const GraphInput& input : graph.inputs()) {
    if (!inputs.insert(input.name).second) fail(cat("two inputs '", input.name, "'"));
    if (graph.nodes()[static_cast<size_t>(graph.producer(input.value))].op->tier() != Tier::kInput)
      fail(cat("input '", input.name, "' has no node"));
  }
  auto input_nodes = std::count_if(graph.nodes().begin(), graph.nodes().end(),
                                   [](const Node& n) { return n.op->tier() == Tier::kInput; });
  if (static_cast<size_t>(input_nodes) != graph.inputs().size())
    fail("an input node is not declared");
  auto exists = [&](Value v) { return v.id >= 0 && v.id < graph.num_values(); };
  for (const GraphOutput& output : graph.outputs()) {
    if (!exists(output.value) || !outputs.insert(output.name).second)
      fail(cat("output '", output.name, "' is missing or given twice"));
  }
  for (const StateUpdate& update : graph.updates()) {
    if (!exists(update.value) || !slots.insert(update.slot).second)
      fail(cat("update of '", update.slot, "' is missing or given twice"));
    Value read = graph.find_input(update.slot);
    if (!read) continue;
    if (graph.input_of(read)->kind != InputKind::kState)
      fail(cat("update of '", update.slot, "', which is not state"));
    const TensorType &slot = graph.type(read), &value = graph.type(update.value);
    if (slot != value)
      fail(cat("state slot '", update.slot, "' is ", to_string(slot, &graph.mesh()),
               ", its update is ", to_string(value, &graph.mesh())));
  }
}

}  // namespace

void verify(const Graph& graph, const std::string& when) {
  auto fail = [&](const std::string& what) {
    throw InternalError(cat("graph verifier, ", when, ": ", what));
  };
  for (int32_t i = 0; i < static_cast<int32_t>(graph.nodes().size()); ++i)
    verify_node(graph, i, when);
  verify_names(graph, fail);
}

}  // namespace tessera
