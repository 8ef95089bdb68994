#include "passes/residency.h"

#include <map>

#include "ir/rewriter.h"
#include "ops/move/far_tier.h"
#include "passes/canonicalize.h"

namespace tessera {
namespace {

// Value -> node before which it is fetched.
using FetchPoints = std::map<Value, int32_t>;

// Writes the graph with a choice carried out. Values that are to be offloaded but have no fetch
// point stay; the first node that reads each is recorded, from which fetch points follow.
class ResidencyRewrite {
 public:
  ResidencyRewrite(const Graph& from, const std::vector<Residency>& choice,
                   FetchPoints fetch_points)
      : from_(from),
        choice_(choice),
        fetch_points_(std::move(fetch_points)),
        to_(from.mesh()),
        rewriter_(from, to_),
        again_(static_cast<size_t>(from.num_values())) {
    for (auto [value, node] : fetch_points_) due_[node].push_back(value);
  }

  Graph run() {
    for (size_t i = 0; i < from_.nodes().size(); ++i) {
      const Node& node = from_.nodes()[i];
      at_ = static_cast<int32_t>(i);
      bring_back();
      if (node.phase == Phase::kForward || node.op->tier() == Tier::kInput) {
        rewriter_.copy(node);
        send_away(node);
      } else {
        append(node, node.phase);
      }
    }
    rewriter_.finish();
    return std::move(to_);
  }

  const std::map<Value, int32_t>& first_reads() const { return first_reads_; }

 private:
  void send_away(const Node& node) {
    for (Value v : node.outputs)
      if (fetch_points_.contains(v)) far_[v] = offload(to_, rewriter_(v));
  }

  void bring_back() {
    auto due = due_.find(at_);
    if (due == due_.end()) return;
    for (Value v : due->second) {
      const Node& maker = from_.nodes()[static_cast<size_t>(from_.producer(v))];
      to_.set_scope(maker.scope, maker.layer);
      to_.set_phase(Phase::kBackward);
      again_[static_cast<size_t>(v.id)] = fetch(to_, far_.at(v));
    }
  }

  // Appends a node with the operands that a node behind the forward pass reads.
  std::vector<Value> append(const Node& node, Phase phase) {
    std::vector<Value> inputs;
    for (Value v : node.inputs) inputs.push_back(again(v));
    to_.set_scope(node.scope, node.layer);
    to_.set_phase(phase);
    std::vector<Value> outputs = to_.add(node.op, inputs);
    if (phase != Phase::kRecompute) {
      for (size_t k = 0; k < outputs.size(); ++k) rewriter_.map(node.outputs[k], outputs[k]);
    }
    return outputs;
  }

  // What is read in place of `v` behind the forward pass.
  Value again(Value v) {
    Value known = again_[static_cast<size_t>(v.id)];
    if (known) return known;
    auto maker = static_cast<size_t>(from_.producer(v));
    const Node& node = from_.nodes()[maker];
    if (node.phase != Phase::kForward || node.op->tier() == Tier::kInput) return rewriter_(v);
    bool view = !node.op->view_offsets().empty() && !node.inputs.empty();
    if (view) {
      if (again(node.inputs[0]) == rewriter_(node.inputs[0])) return rewriter_(v);
    } else if (choice_[maker] != Residency::kRecompute) {
      if (choice_[maker] == Residency::kOffload) first_reads_.try_emplace(v, at_);
      return rewriter_(v);
    }
    std::vector<Value> clones = append(node, Phase::kRecompute);
    for (size_t k = 0; k < clones.size(); ++k)
      again_[static_cast<size_t>(node.outputs[k].id)] = clones[k];
    return again_[static_cast<size_t>(v.id)];
  }

  const Graph& from_;
  const std::vector<Residency>& choice_;
  const FetchPoints fetch_points_;
  Graph to_;
  Rewriter rewriter_;
  std::vector<Value> again_;    // clone or fetched copy, by value of from_
  std::map<Value, Value> far_;  // offloaded copy
  std::map<int32_t, std::vector<Value>> due_;
  std::map<Value, int32_t> first_reads_;
  int32_t at_ = 0;
};

FetchPoints find_fetch_points(const Graph& graph, const std::map<Value, int32_t>& first_reads,
                              int64_t horizon) {
  std::map<int64_t, int32_t> begins;  // layer -> first node of its backward pass
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (node.layer != kNoLayer && node.phase == Phase::kBackward && node.op->tier() != Tier::kInput)
      begins.try_emplace(node.layer, static_cast<int32_t>(i));
  }
  FetchPoints points;
  for (auto [value, reader] : first_reads) {
    int32_t layer = graph.nodes()[static_cast<size_t>(reader)].layer;
    if (layer == kNoLayer) continue;
    auto begin = begins.find(layer + horizon);
    if (begin == begins.end()) continue;
    bool between = graph.producer(value) < begin->second && begin->second < reader;
    points[value] = horizon > 0 && between ? begin->second : reader;
  }
  return points;
}

}  // namespace

Graph apply_residency(const Graph& graph, const std::vector<Residency>& choice, int64_t horizon) {
  TESSERA_CHECK(choice.size() == graph.nodes().size(), "one choice a node");
  ResidencyRewrite keeping(graph, choice, {});
  Graph kept = keeping.run();
  FetchPoints points = find_fetch_points(graph, keeping.first_reads(), horizon);
  return canonicalize(points.empty() ? kept : ResidencyRewrite(graph, choice, points).run());
}

Graph residency(const Graph& graph, const ResidencyOptions& options) {
  return apply_residency(graph, choose_residency(graph, options), options.horizon);
}

}  // namespace tessera
