#include <cmath>

#include "ir/state_alone.h"
#include "ir/views.h"
#include "ops/primitive/shaping.h"
#include "passes/residency.h"

namespace tessera {
namespace {

class Chooser {
 public:
  Chooser(const Graph& graph, const ResidencyOptions& options)
      : graph_(graph),
        options_(options),
        nodes_(graph.nodes().size()),
        parameters_only_(nodes_),
        gathered_(nodes_),
        leaves_layer_(nodes_),
        enters_layer_(nodes_),
        stays_gathered_(nodes_) {
    std::vector<bool> of_state = made_of_state_alone(graph);
    for (size_t i = 0; i < nodes_; ++i)
      parameters_only_[i] = node(i).op->tier() != Tier::kInput &&
                            node(i).phase == Phase::kForward &&
                            of_state[static_cast<size_t>(node(i).outputs[0].id)];
    find_gathered();
    find_crossings();
    find_last_copies();
  }

  Residency choose(size_t i) const {
    const Node& node = graph_.nodes()[i];
    if (node.phase != Phase::kForward || node.op->tier() == Tier::kInput) return Residency::kKeep;
    if (parameters_only_[i]) {
      bool cheap = is_rearranged(node) || !gathered_[i];
      bool again = options_.regather || (cheap && is_recomputed(i));
      return again && !stays_gathered_[i] ? Residency::kRecompute : Residency::kKeep;
    }
    bool costly = node.op->contracts() || node.op->tier() == Tier::kCollective;
    bool kept = leaves_layer_[i] || (costly && options_.policy == CheckpointPolicy::kOp);
    if (is_recomputed(i) && !kept) return Residency::kRecompute;
    return options_.offload && (in_layer(i) || enters_layer_[i]) ? Residency::kOffload
                                                                 : Residency::kKeep;
  }

 private:
  bool is_recomputed(size_t i) const {
    return in_layer(i) && tessera::is_recomputed(options_, node(i).layer);
  }
  bool in_layer(size_t i) const { return node(i).layer != kNoLayer; }
  // Of a parameter, the same elements in another order: made from the copy that stays.
  static bool is_rearranged(const Node& node) {
    return dynamic_cast<const Transpose*>(node.op.get()) != nullptr;
  }

  size_t producer(Value v) const { return static_cast<size_t>(graph_.producer(v)); }
  const Node& node(size_t i) const { return graph_.nodes()[i]; }

  // Copies of parameters that a collective is behind: others are only converted.
  void find_gathered() {
    for (size_t i = 0; i < nodes_; ++i) {
      gathered_[i] = node(i).op->tier() == Tier::kCollective;
      for (Value v : node(i).inputs) gathered_[i] = gathered_[i] || gathered_[producer(v)];
    }
  }

  // Nodes whose values the forward pass reads outside of the layer that makes them, and those whose
  // values it reads in a layer that does not make them.
  void find_crossings() {
    for (const GraphOutput& output : graph_.outputs()) leaves_layer_[producer(output.value)] = true;
    for (const StateUpdate& update : graph_.updates()) leaves_layer_[producer(update.value)] = true;
    for (size_t i = nodes_; i-- > 0;) {
      if (node(i).phase != Phase::kForward) continue;
      for (Value v : node(i).inputs) {
        size_t maker = producer(v);
        bool other = node(maker).layer != node(i).layer;
        // A view is its operand.
        if (other || (is_view(node(i)) && leaves_layer_[i])) leaves_layer_[maker] = true;
        if ((other && in_layer(i)) || (is_view(node(i)) && enters_layer_[i]))
          enters_layer_[maker] = true;
      }
    }
  }

  // The copies of parameters that the forward pass reads last are the first that the backward pass
  // needs: nothing would be gained by making them again.
  void find_last_copies() {
    for (size_t i = nodes_; i-- > 0;) {
      if (node(i).phase != Phase::kForward || parameters_only_[i]) continue;
      for (Value v : node(i).inputs)
        if (parameters_only_[producer(v)]) stays_gathered_[producer(v)] = true;
      for (Value v : node(i).inputs)
        if (stays_gathered_[producer(v)]) return keep_ancestors();
    }
  }
  void keep_ancestors() {
    for (size_t i = nodes_; i-- > 0;) {
      if (!stays_gathered_[i]) continue;
      for (Value v : node(i).inputs) stays_gathered_[producer(v)] = true;
    }
  }

  const Graph& graph_;
  const ResidencyOptions& options_;
  size_t nodes_;
  std::vector<bool> parameters_only_, gathered_, leaves_layer_, enters_layer_, stays_gathered_;
};

}  // namespace

bool is_recomputed(const ResidencyOptions& options, int64_t layer) {
  auto chosen_before = [&](int64_t layers) {
    return std::floor(
        static_cast<double>(layers) * options.share_numerator / options.share_denominator + 0.5);
  };
  return chosen_before(layer + 1) > chosen_before(layer);
}

std::vector<Residency> choose_residency(const Graph& graph, const ResidencyOptions& options) {
  Chooser chooser(graph, options);
  std::vector<Residency> choice;
  for (size_t i = 0; i < graph.nodes().size(); ++i) choice.push_back(chooser.choose(i));
  return choice;
}

}  // namespace tessera
