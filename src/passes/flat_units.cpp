#include "passes/flat_units.h"

#include <algorithm>
#include <map>
#include <optional>

#include "ir/rewriter.h"
#include "ops/primitive/elementwise.h"

namespace tessera {
namespace {

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Nodes that read each value.
std::vector<std::vector<int32_t>> readers_of(const Graph& graph) {
  std::vector<std::vector<int32_t>> readers(static_cast<size_t>(graph.num_values()));
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    for (Value v : graph.nodes()[i].inputs)
      readers[static_cast<size_t>(v.id)].push_back(static_cast<int32_t>(i));
  }
  return readers;
}

// The dtype to which every parameter of the unit is converted by its only reader, if there is one.
std::optional<DType> common_conversion(const Graph& graph,
                                       const std::vector<std::vector<int32_t>>& readers,
                                       const std::vector<Value>& parameters) {
  std::optional<DType> common;
  for (Value v : parameters) {
    const auto& reads = readers[static_cast<size_t>(v.id)];
    bool is_output = std::any_of(graph.outputs().begin(), graph.outputs().end(),
                                 [&](const GraphOutput& o) { return o.value == v; });
    if (reads.size() != 1 || is_output) return std::nullopt;
    const Node& node = graph.nodes()[static_cast<size_t>(reads[0])];
    if (node.op->name() != "convert") return std::nullopt;
    DType to = graph.type(node.outputs[0]).dtype;
    if (common && *common != to) return std::nullopt;
    common = to;
  }
  return common;
}

}  // namespace

std::vector<FlatUnit> make_units(const std::vector<Parameter>& parameters) {
  std::vector<FlatUnit> units;
  std::map<std::string, size_t> by_name;
  for (size_t i = 0; i < parameters.size(); ++i) {
    auto [entry, fresh] = by_name.try_emplace(parameters[i].unit, units.size());
    if (fresh) units.push_back({parameters[i].unit, 0, {}, {}});
    FlatUnit& unit = units[entry->second];
    unit.parameters.push_back(static_cast<int32_t>(i));
    unit.members.push_back({unit.size, parameters[i].shape});
    unit.size = round_up(unit.size + num_elements(parameters[i].shape), kUnitAlignment);
  }
  for (FlatUnit& unit : units) unit.size = round_up(unit.size, kUnitGranule);
  return units;
}

std::string weight_slot(const FlatUnit& unit) { return cat("weight.", unit.name); }

Graph flat_units(const Graph& graph, const std::vector<Parameter>& parameters,
                 const std::vector<FlatUnit>& units) {
  Graph result(graph.mesh());
  Rewriter rewriter(graph, result);
  auto readers = readers_of(graph);
  std::map<Value, const FlatUnit*> unit_of;
  for (const FlatUnit& unit : units) {
    for (int32_t p : unit.parameters)
      unit_of[graph.input_value(parameters[static_cast<size_t>(p)].name)] = &unit;
  }
  std::map<const FlatUnit*, bool> emitted;
  auto emit = [&](const Node& node, const FlatUnit& unit) {
    rewriter.enter(node);
    std::vector<Value> originals;
    for (int32_t p : unit.parameters)
      originals.push_back(graph.input_value(parameters[static_cast<size_t>(p)].name));
    Value flat = result.input(weight_slot(unit), InputKind::kState, {{unit.size}, DType::kF32});
    std::optional<DType> conversion = common_conversion(graph, readers, originals);
    if (conversion) flat = convert(result, flat, *conversion);
    std::vector<Value> views = result.add(std::make_shared<Unflatten>(unit.members), {flat});
    for (size_t k = 0; k < originals.size(); ++k) {
      rewriter.map(originals[k], views[k]);
      if (!conversion) continue;
      const Node& reader =
          graph.nodes()[static_cast<size_t>(readers[static_cast<size_t>(originals[k].id)][0])];
      rewriter.map(reader.outputs[0], views[k]);
    }
  };
  for (const Node& node : graph.nodes()) {
    auto unit = node.op->tier() == Tier::kInput ? unit_of.find(node.outputs[0]) : unit_of.end();
    if (unit != unit_of.end()) {
      if (!std::exchange(emitted[unit->second], true)) emit(node, *unit->second);
    } else if (node.op->name() != "convert" || !rewriter(node.outputs[0])) {
      rewriter.copy(node);
    }
  }
  rewriter.finish();
  return result;
}

}  // namespace tessera
