#include "passes/graph_page.h"

#include <map>
#include <nlohmann/json.hpp>

#include "base/markup.h"
#include "passes/graph_diff.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

// What the script draws:
//   texts: all texts once; in what follows they are numbers
//   nodes: [op, attributes, scope, place, phase, change, [operands], [values, types ...], remark],
//          in the order in which they run; a removed one stands where it was, and its values are
//          below 0: -1 - number
//   axes, inputs, outputs, updates: [name, size or value, kind]
class GraphData {
 public:
  GraphData(const Graph& graph, const Graph* before) : graph_(graph), before_(before) {
    if (before) diff_ = diff(*before, graph);
    json_["nodes"] = Json::array();
    size_t shown = 0;  // nodes of `before` that are written or stand for one that is
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      if (before && diff_.counterpart[i] >= 0) {
        const auto at = static_cast<size_t>(diff_.counterpart[i]);
        add_removed(shown, at);
        shown = std::max(shown, at + 1);
      }
      add(i);
    }
    if (before) add_removed(shown, before->nodes().size());
    Json axes = Json::array(), inputs = Json::array(), outputs = Json::array(),
         updates = Json::array();
    for (const Mesh::Axis& axis : graph.mesh().axes()) axes.push_back({axis.name, axis.size});
    for (const GraphInput& input : graph.inputs())
      inputs.push_back({input.name, input.value.id, std::string(name(input.kind))});
    for (const GraphOutput& output : graph.outputs())
      outputs.push_back({output.name, output.value.id});
    for (const StateUpdate& update : graph.updates())
      updates.push_back({update.slot, update.value.id});
    json_["axes"] = axes;
    json_["inputs"] = inputs;
    json_["outputs"] = outputs;
    json_["updates"] = updates;
    json_["compared"] = before != nullptr;
    json_["texts"] = texts_;
  }

  // In a script no text may look like the end of it.
  std::string text() const {
    std::string text;
    for (const char c : json_.dump(-1, ' ', false, Json::error_handler_t::replace))
      c == '<' ? text += "\\u003c" : text += c;
    return text;
  }

 private:
  size_t number(const std::string& text) {
    auto [at, added] = numbers_.try_emplace(text, numbers_.size());
    if (added) texts_.push_back(text);
    return at->second;
  }

  Json entry(const Graph& graph, const Node& node, NodeChange change, const std::string& remark) {
    const bool removed = change == NodeChange::kRemoved;
    auto id = [&](Value v) { return removed ? -1 - v.id : v.id; };
    Json inputs = Json::array(), outputs = Json::array();
    for (Value v : node.inputs) inputs.push_back(id(v));
    for (Value v : node.outputs) {
      outputs.push_back(id(v));
      outputs.push_back(number(to_string(graph.type(v), &graph.mesh())));
    }
    return {number(std::string(node.op->name())),
            number(node.op->attributes()),
            number(node.scope),
            number(place_in_model(node)),
            static_cast<int>(node.phase),
            static_cast<int>(change),
            inputs,
            outputs,
            number(remark)};
  }

  void add(size_t i) {
    const Node& now = graph_.nodes()[i];
    NodeChange change = before_ ? diff_.after[i] : NodeChange::kSame;
    std::string remark;
    if (change == NodeChange::kChanged) {
      const auto was = static_cast<size_t>(diff_.counterpart[i]);
      remark = change_text(*before_, before_->nodes()[was], graph_, now);
    }
    json_["nodes"].push_back(entry(graph_, now, change, remark));
  }

  void add_removed(size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) {
      if (diff_.before[i] != NodeChange::kRemoved) continue;
      json_["nodes"].push_back(entry(*before_, before_->nodes()[i], NodeChange::kRemoved, ""));
    }
  }

  const Graph& graph_;
  const Graph* before_;
  GraphDiff diff_;
  std::map<std::string, size_t> numbers_;
  Json texts_ = Json::array(), json_;
};

}  // namespace

std::string graph_page(std::string_view title, const Graph& graph, const Graph* before) {
  return cat(page_head(title), kGraphPageBody,
             "<script>\n\"use strict\";\nconst data = ", GraphData(graph, before).text(), ";\n",
             kGraphPageScript, "</script>\n</body></html>\n");
}

}  // namespace tessera
