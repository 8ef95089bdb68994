#include "passes/graph_diff.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <map>
#include <set>
#include <tuple>

namespace tessera {
namespace {

// Matches the nodes of one graph with those of another.
class Matcher {
 public:
  Matcher(const Graph& before, const Graph& after)
      : before_(before),
        after_(after),
        taken_(before.nodes().size()),
        counterpart_(after.nodes().size(), -1),
        was_(static_cast<size_t>(after.num_values()), kNew) {
    for (size_t i = before.nodes().size(); i-- > 0;) {
      const Node& node = before.nodes()[i];
      const auto number = static_cast<int32_t>(i);
      equal_[exact_key(before, node, node.inputs)].push_front(number);
      alike_[typed_key(before, node)].push_front(number);
      of_op_[place_key(before, node)].push_front(number);
    }
  }

  // What is equal with all that it is made of comes first, so that nothing else takes its place.
  std::vector<int32_t> match() {
    for (size_t i = 0; i < after_.nodes().size(); ++i) match_equal(i);
    for (size_t i = 0; i < after_.nodes().size(); ++i) {
      if (counterpart_[i] >= 0 || match_equal(i)) continue;
      const Node& node = after_.nodes()[i];
      if (!take(i, alike_, typed_key(after_, node))) take(i, of_op_, place_key(after_, node));
    }
    return std::move(counterpart_);
  }

  // The values of `before` that a node of `after` reads; kNew for what was not there.
  std::vector<Value> operands(const Node& node) const {
    std::vector<Value> values;
    for (Value v : node.inputs) values.push_back(was_[static_cast<size_t>(v.id)]);
    return values;
  }

 private:
  static constexpr Value kNew{};
  // Phase, scope and name of the op; of an input its own name, too.
  using PlaceKey = std::tuple<Phase, std::string, std::string>;
  using TypedKey = std::tuple<PlaceKey, std::string, std::string>;
  using ExactKey = std::pair<TypedKey, std::vector<Value>>;

  static PlaceKey place_key(const Graph& graph, const Node& node) {
    std::string op(node.op->name());
    // Who reads a parameter first gives an input its scope, which is not the input's own.
    if (const GraphInput* input = node.outputs.empty() ? nullptr : graph.input_of(node.outputs[0]))
      return {Phase::kForward, "", cat(op, " ", input->name)};
    return {node.phase, node.scope, op};
  }
  static TypedKey typed_key(const Graph& graph, const Node& node) {
    std::string types;
    for (Value v : node.outputs) types += to_string(graph.type(v), &graph.mesh()) + " ";
    return {place_key(graph, node), node.op->attributes(), types};
  }
  static ExactKey exact_key(const Graph& graph, const Node& node, std::vector<Value> inputs) {
    return {typed_key(graph, node), std::move(inputs)};
  }

  bool match_equal(size_t i) {
    const Node& node = after_.nodes()[i];
    std::vector<Value> inputs = operands(node);
    if (std::ranges::find(inputs, kNew) != inputs.end()) return false;
    return take(i, equal_, exact_key(after_, node, std::move(inputs)));
  }

  template <class Key>
  bool take(size_t i, std::map<Key, std::deque<int32_t>>& candidates, const Key& key) {
    auto found = candidates.find(key);
    if (found == candidates.end()) return false;
    while (!found->second.empty()) {
      const int32_t number = found->second.front();
      found->second.pop_front();
      if (taken_[static_cast<size_t>(number)]) continue;
      taken_[static_cast<size_t>(number)] = true;
      counterpart_[i] = number;
      const Node &was = before_.nodes()[static_cast<size_t>(number)], &is = after_.nodes()[i];
      for (size_t k = 0; k < std::min(was.outputs.size(), is.outputs.size()); ++k)
        was_[static_cast<size_t>(is.outputs[k].id)] = was.outputs[k];
      return true;
    }
    return false;
  }

  const Graph &before_, &after_;
  std::vector<bool> taken_;
  std::vector<int32_t> counterpart_;
  std::vector<Value> was_;  // by value of `after`
  std::map<ExactKey, std::deque<int32_t>> equal_;
  std::map<TypedKey, std::deque<int32_t>> alike_;
  std::map<PlaceKey, std::deque<int32_t>> of_op_;
};

std::string types_of(const Graph& graph, const std::vector<Value>& values) {
  std::vector<std::string> types;
  for (Value v : values) types.push_back(to_string(graph.type(v), &graph.mesh()));
  return join(types, ", ");
}

// "layers 0-3, 7" of the numbers.
std::string layers_text(const std::set<int32_t>& layers) {
  std::vector<std::string> ranges;
  for (auto at = layers.begin(); at != layers.end();) {
    const int32_t first = *at;
    int32_t last = first;
    while (++at != layers.end() && *at == last + 1) last = *at;
    ranges.push_back(first == last ? cat(first) : cat(first, "-", last));
  }
  return cat(layers.size() == 1 ? "layer " : "layers ", join(ranges, ", "));
}

// Places in the order in which they come, the layers as one.
class Places {
 public:
  void add(const Node& node) {
    if (const int32_t layer = layer_of(node); layer != kNoLayer) {
      if (layers_.empty()) names_.emplace_back();
      layers_.insert(layer);
      return;
    }
    std::string place = place_in_model(node);
    if (place.empty()) place = "outside of the model";
    if (std::ranges::find(names_, place) == names_.end()) names_.push_back(place);
  }
  std::string text() const {
    std::vector<std::string> names = names_;
    for (std::string& name : names)
      if (name.empty()) name = layers_text(layers_);
    return join(names, ", ");
  }

 private:
  std::vector<std::string> names_;  // an empty one stands for the layers
  std::set<int32_t> layers_;
};

}  // namespace

std::string_view name(NodeChange change) {
  switch (change) {
    case NodeChange::kSame: return "same";
    case NodeChange::kAdded: return "added";
    case NodeChange::kRemoved: return "removed";
    case NodeChange::kChanged: return "changed";
  }
  return "";
}

GraphDiff diff(const Graph& before, const Graph& after) {
  Matcher matcher(before, after);
  GraphDiff result;
  result.counterpart = matcher.match();
  result.before.assign(before.nodes().size(), NodeChange::kRemoved);
  for (size_t i = 0; i < after.nodes().size(); ++i) {
    const int32_t counterpart = result.counterpart[i];
    if (counterpart < 0) {
      result.after.push_back(NodeChange::kAdded);
      continue;
    }
    const Node &was = before.nodes()[static_cast<size_t>(counterpart)], &is = after.nodes()[i];
    const bool same = *was.op == *is.op && matcher.operands(is) == was.inputs &&
                      types_of(before, was.outputs) == types_of(after, is.outputs);
    const NodeChange change = same ? NodeChange::kSame : NodeChange::kChanged;
    result.after.push_back(change);
    result.before[static_cast<size_t>(counterpart)] = change;
  }
  return result;
}

std::string change_text(const Graph& before, const Node& was, const Graph& after, const Node& is) {
  std::vector<std::string> changes;
  const std::string old_types = types_of(before, was.outputs), types = types_of(after, is.outputs);
  if (old_types != types) changes.push_back(cat(old_types, " -> ", types));
  // The type of an input is an attribute, too.
  else if (const std::string old = was.op->attributes(); old != is.op->attributes())
    changes.push_back(cat("{", old, "} -> {", is.op->attributes(), "}"));
  if (types_of(before, was.inputs) != types_of(after, is.inputs))
    changes.push_back(
        cat("reads ", types_of(after, is.inputs), ", was ", types_of(before, was.inputs)));
  if (changes.empty()) changes.emplace_back("reads other values");
  return join(changes, "; ");
}

std::vector<ChangedNodes> changed_nodes(const Graph& before, const Graph& after,
                                        const GraphDiff& diff) {
  std::map<std::tuple<NodeChange, std::string, Phase>, std::pair<int64_t, Places>> groups;
  auto count = [&](NodeChange change, const Node& node) {
    auto& [nodes, places] = groups[{change, std::string(node.op->name()), node.phase}];
    ++nodes;
    places.add(node);
  };
  for (size_t i = 0; i < after.nodes().size(); ++i)
    if (diff.after[i] != NodeChange::kSame) count(diff.after[i], after.nodes()[i]);
  for (size_t i = 0; i < before.nodes().size(); ++i)
    if (diff.before[i] == NodeChange::kRemoved) count(NodeChange::kRemoved, before.nodes()[i]);
  std::vector<ChangedNodes> all;
  for (const auto& [key, group] : groups)
    all.push_back(
        {std::get<0>(key), std::get<2>(key), std::get<1>(key), group.first, group.second.text()});
  std::ranges::stable_sort(all, [](const ChangedNodes& a, const ChangedNodes& b) {
    return a.change != b.change ? a.change < b.change : a.nodes > b.nodes;
  });
  return all;
}

int32_t layer_of(const Node& node) {
  constexpr std::string_view kLayers = "layers.";
  const std::string_view scope = node.scope;
  if (node.layer != kNoLayer || !scope.starts_with(kLayers)) return node.layer;
  int32_t layer = kNoLayer;
  std::from_chars(scope.data() + kLayers.size(), scope.data() + scope.size(), layer);
  return layer;
}

std::string place_in_model(const Node& node) {
  if (const int32_t layer = layer_of(node); layer != kNoLayer) return cat("layers.", layer);
  return node.scope.substr(0, node.scope.find('.'));
}

}  // namespace tessera
