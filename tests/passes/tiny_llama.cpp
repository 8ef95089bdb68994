#include "tests/passes/tiny_llama.h"

#include <algorithm>

#include "autodiff/backward.h"
#include "base/ignore_index.h"
#include "base/random.h"
#include "models/build_model.h"

namespace tessera {

ModelGraph tiny_llama(bool tied, int64_t layers) {
  ModelConfig config;
  config.vocab_size = 37;
  config.hidden_width = 24;
  config.num_layers = layers;
  config.num_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 6;
  config.intermediate_size = 40;
  config.tie_word_embeddings = tied;
  config.initializer_range = 0.2;
  return build_model(config, 2, 7, ModelHead::kLoss);
}

ref::Feeds tiny_feeds(const ModelGraph& model, const Graph& graph,
                      const std::vector<FlatUnit>& units) {
  ref::Feeds feeds;
  std::map<std::string, std::vector<double>> values;
  for (const Parameter& p : model.parameters) {
    std::vector<double>& v = values[p.name];
    for (int64_t i = 0; i < num_elements(p.shape); ++i) {
      auto k = static_cast<uint64_t>(i);
      v.push_back(static_cast<float>((p.init.kind == InitKind::kOnes ? 1 : 0) +
                                     0.2 * random_normal(1, stream_of(p.name), k)));
    }
    if (graph.find_input(p.name)) feeds[p.name] = {v};
  }
  for (const FlatUnit& unit : units) {
    std::vector<double> flat(static_cast<size_t>(unit.size));
    for (size_t k = 0; k < unit.members.size(); ++k) {
      const std::vector<double>& v =
          values.at(model.parameters[static_cast<size_t>(unit.parameters[k])].name);
      std::copy(v.begin(), v.end(), flat.begin() + unit.members[k].offset);
    }
    if (graph.find_input(weight_slot(unit))) feeds[weight_slot(unit)] = {flat};
  }
  for (const char* name : {"tokens", "targets"}) {
    std::vector<double> ids(14);
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<double>(random_below(1, stream_of(name), i, 37));
    feeds[name] = {ids};
  }
  feeds["targets"][0][3] = kIgnoreIndex;
  return feeds;
}

Graph with_gradients(const Graph& graph, const std::vector<FlatUnit>& units) {
  Graph g = graph;
  std::vector<Value> weights;
  for (const FlatUnit& unit : units) weights.push_back(g.input_value(weight_slot(unit)));
  std::vector<Value> gradients = backward(g, g.outputs()[0].value, weights);
  for (size_t u = 0; u < units.size(); ++u) g.update(cat("gradient.", units[u].name), gradients[u]);
  return g;
}

std::string difference(const ref::Results& a, const ref::Results& b) {
  std::string names;
  auto compare = [&](const auto& x, const auto& y) {
    for (const auto& [name, tensors] : x) {
      auto other = y.find(name);
      bool same = other != y.end() && other->second[0].type == tensors[0].type &&
                  other->second[0].data == tensors[0].data;
      if (!same) names += cat(" ", name);
    }
    if (x.size() != y.size()) names += " (not the same results)";
  };
  compare(a.outputs, b.outputs);
  compare(a.updates, b.updates);
  return names;
}

int count_ops(const Graph& graph, std::string_view op) {
  return static_cast<int>(std::count_if(graph.nodes().begin(), graph.nodes().end(),
                                        [&](const Node& n) { return n.op->name() == op; }));
}

int dead_nodes(const Graph& graph) {
  std::vector<bool> needed(static_cast<size_t>(graph.num_values()));
  auto need = [&](Value v) { needed[static_cast<size_t>(v.id)] = true; };
  for (const GraphOutput& o : graph.outputs()) need(o.value);
  for (const StateUpdate& u : graph.updates()) need(u.value);
  for (const GraphInput& input : graph.inputs()) {
    if (input.kind == InputKind::kArgument) need(input.value);
  }
  int dead = 0;
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    bool used = std::any_of(node.outputs.begin(), node.outputs.end(),
                            [&](Value v) { return needed[static_cast<size_t>(v.id)]; });
    dead += !used;
    if (used) std::for_each(node.inputs.begin(), node.inputs.end(), need);
  }
  return dead;
}

}  // namespace tessera
