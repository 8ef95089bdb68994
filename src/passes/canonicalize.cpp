#include "passes/canonicalize.h"

#include <algorithm>
#include <map>

#include "ir/rewriter.h"

namespace tessera {
namespace {

// Value of a dropped forward node -> the value of the backward node that stands for it.
std::map<Value, Value> find_subsumed(const Graph& graph) {
  std::vector<int32_t> first_read(static_cast<size_t>(graph.num_values()),
                                  static_cast<int32_t>(graph.nodes().size()));
  std::map<std::vector<Value>, std::vector<int32_t>> by_inputs;
  auto nodes = static_cast<int32_t>(graph.nodes().size());
  for (int32_t i = nodes - 1; i >= 0; --i) {
    for (Value v : graph.nodes()[static_cast<size_t>(i)].inputs)
      first_read[static_cast<size_t>(v.id)] = i;
  }
  std::map<Value, Value> replaced;
  for (int32_t b = 0; b < nodes; ++b) {
    const Node& node = graph.nodes()[static_cast<size_t>(b)];
    if (node.phase == Phase::kForward) {
      by_inputs[node.inputs].push_back(b);
      continue;
    }
    for (size_t count = node.inputs.size(); count-- > 1;) {
      auto candidates = by_inputs.find(std::vector<Value>(
          node.inputs.begin(), node.inputs.begin() + static_cast<std::ptrdiff_t>(count)));
      if (candidates == by_inputs.end()) continue;
      for (int32_t f : candidates->second) {
        const Node& forward = graph.nodes()[static_cast<size_t>(f)];
        auto pairs = node.op->subsumes(*forward.op);
        bool later = pairs.size() == forward.outputs.size() && !pairs.empty() &&
                     std::all_of(forward.outputs.begin(), forward.outputs.end(), [&](Value v) {
                       return first_read[static_cast<size_t>(v.id)] > b;
                     });
        if (!later) continue;
        for (auto [from, to] : pairs)
          replaced[forward.outputs[static_cast<size_t>(from)]] =
              node.outputs[static_cast<size_t>(to)];
      }
    }
  }
  return replaced;
}

}  // namespace

Graph canonicalize(const Graph& graph) {
  std::map<Value, Value> replaced = find_subsumed(graph);
  auto resolve = [&](Value v) {
    auto it = replaced.find(v);
    return it == replaced.end() ? v : it->second;
  };
  std::vector<bool> needed(static_cast<size_t>(graph.num_values()), false);
  auto need = [&](Value v) { needed[static_cast<size_t>(resolve(v).id)] = true; };
  for (const GraphOutput& o : graph.outputs()) need(o.value);
  for (const StateUpdate& u : graph.updates()) need(u.value);
  std::map<Value, std::vector<Value>> stands_for;
  for (auto [from, to] : replaced) stands_for[to].push_back(from);
  std::vector<bool> kept(graph.nodes().size(), false);
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    kept[i] = std::any_of(node.outputs.begin(), node.outputs.end(),
                          [&](Value v) { return needed[static_cast<size_t>(v.id)]; });
    if (node.op->tier() == Tier::kInput &&
        graph.input_of(node.outputs[0])->kind == InputKind::kArgument)
      kept[i] = true;
    if (!kept[i]) continue;
    for (Value v : node.inputs) need(v);
  }
  Graph result(graph.mesh());
  Rewriter rewriter(graph, result);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (!kept[i]) continue;
    const Node& node = graph.nodes()[i];
    rewriter.copy(node);
    for (Value to : node.outputs) {
      auto replacing = stands_for.find(to);
      if (replacing == stands_for.end()) continue;
      for (Value from : replacing->second) rewriter.map(from, rewriter(to));
    }
  }
  rewriter.finish();
  return result;
}

}  // namespace tessera
