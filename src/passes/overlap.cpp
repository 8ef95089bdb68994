#include "passes/overlap.h"

#include <algorithm>
#include <map>

#include "ir/rewriter.h"
#include "ir/state_alone.h"

namespace tessera {
namespace {

bool is_backward(const Node& node) { return node.phase != Phase::kForward; }
bool is(const Node& node, Traffic traffic) {
  std::optional<Communication> communication = node.op->communication();
  return communication && communication->traffic == traffic;
}

class Scheduler {
 public:
  Scheduler(const Graph& graph, const OverlapOptions& options)
      : graph_(graph),
        options_(options),
        ahead_(graph.nodes().size()),
        held_(graph.nodes().size(), false),
        release_(graph.nodes().size() + 1),
        from_state_(made_of_state_alone(graph)) {}

  Graph run() {
    find_readers();
    hoist_gathers();
    hold_back_sums();
    Graph result(graph_.mesh());
    Rewriter rewriter(graph_, result);
    std::vector<bool> done(graph_.nodes().size(), false);
    for (int32_t i = 0; i <= count(); ++i) {
      for (int32_t sum : release_[static_cast<size_t>(i)]) emit(sum, rewriter, done);
      if (i == count()) break;
      for (int32_t gather : ahead_[static_cast<size_t>(i)]) emit(gather, rewriter, done);
      if (!held_[static_cast<size_t>(i)]) emit(i, rewriter, done);
    }
    rewriter.finish();
    return result;
  }

 private:
  int32_t count() const { return static_cast<int32_t>(graph_.nodes().size()); }
  const Node& node(int32_t i) const { return graph_.nodes()[static_cast<size_t>(i)]; }

  // The node with what it needs and is not there yet.
  void emit(int32_t i, Rewriter& rewriter, std::vector<bool>& done) {
    if (done[static_cast<size_t>(i)]) return;
    done[static_cast<size_t>(i)] = true;
    for (Value v : node(i).inputs) emit(graph_.producer(v), rewriter, done);
    rewriter.copy(node(i));
  }

  void find_readers() {
    readers_.resize(static_cast<size_t>(graph_.num_values()));
    for (int32_t i = 0; i < count(); ++i) {
      for (Value v : node(i).inputs) readers_[static_cast<size_t>(v.id)].push_back(i);
    }
  }

  // First node that computes with a value or a view of it.
  int32_t first_reader(Value v) const {
    int32_t first = count();
    for (int32_t r : readers_[static_cast<size_t>(v.id)]) {
      int32_t at = r;
      if (!node(r).op->view_offsets().empty()) {
        at = count();
        for (Value view : node(r).outputs) at = std::min(at, first_reader(view));
      }
      first = std::min(first, at);
    }
    return first;
  }

  struct Group {
    int32_t begin;                 // first node that reads one of them
    std::vector<int32_t> gathers;  // of one layer
  };

  void hoist_gathers() {
    for (bool backward : {false, true}) {
      std::vector<std::pair<int32_t, int32_t>> gathers;  // first reader, gather
      for (int32_t i = 0; i < count(); ++i) {
        const Node& n = node(i);
        if (!is(n, Traffic::kGather) || !from_state_[static_cast<size_t>(n.outputs[0].id)])
          continue;
        int32_t reader = first_reader(n.outputs[0]);
        if (reader < count() && is_backward(n) == backward) gathers.push_back({reader, i});
      }
      std::sort(gathers.begin(), gathers.end());
      std::vector<Group> groups;
      int32_t layer = kNoLayer;
      for (auto [reader, gather] : gathers) {
        int32_t of = node(reader).layer;
        if (groups.empty() || of == kNoLayer || of != layer) groups.push_back({reader, {}});
        groups.back().gathers.push_back(gather);
        layer = of;
      }
      auto distance =
          static_cast<size_t>(backward ? options_.backward_distance : options_.forward_distance);
      for (size_t g = 1; g < groups.size(); ++g) {
        auto& ahead = ahead_[static_cast<size_t>(groups[g - std::min(g, distance)].begin)];
        ahead.insert(ahead.end(), groups[g].gathers.begin(), groups[g].gathers.end());
      }
    }
  }

  // Reduced gradients are only read by sums, into accumulators and over replicas, which nobody
  // waits for.
  void hold_back_sums() {
    std::map<std::string, std::vector<int32_t>> waiting;  // by kind of reduction
    for (int32_t i = 0; i < count(); ++i) {
      const Node& n = node(i);
      if (!is(n, Traffic::kReduceScatter) || !is_backward(n)) continue;
      std::vector<int32_t>& sums = waiting[n.op->key()];
      for (int32_t sum : sums) release_[static_cast<size_t>(i)].push_back(sum);
      sums.clear();
      for (int32_t r : readers_[static_cast<size_t>(n.outputs[0].id)]) {
        // A tied parameter is reduced once a use: what adds these up waits for the last.
        if (!reads_nothing_behind(r, i)) continue;
        for (int32_t sum : way_to_state(r)) {
          held_[static_cast<size_t>(sum)] = true;
          sums.push_back(sum);
        }
      }
    }
    for (const auto& [kind, sums] : waiting)
      release_.back().insert(release_.back().end(), sums.begin(), sums.end());
  }

  bool reads_nothing_behind(int32_t reader, int32_t i) const {
    return std::ranges::all_of(node(reader).inputs,
                               [&](Value v) { return graph_.producer(v) <= i; });
  }
  // The node and what follows it to the update of a slot, where that is no more than one sum over
  // ranks; else nothing.
  std::vector<int32_t> way_to_state(int32_t i) const {
    std::vector<int32_t> way{i};
    while (!only_updates_state(i)) {
      const std::vector<int32_t>& readers = readers_[static_cast<size_t>(node(i).outputs[0].id)];
      if (node(i).outputs.size() != 1 || readers.size() != 1) return {};
      way.push_back(i = readers[0]);
      if (node(i).op->view_offsets().empty() && !is(node(i), Traffic::kAllReduce)) return {};
    }
    return way;
  }
  bool only_updates_state(int32_t i) const {
    return std::ranges::all_of(node(i).outputs, [&](Value v) {
      return readers_[static_cast<size_t>(v.id)].empty() && graph_.is_update(v);
    });
  }

  const Graph& graph_;
  OverlapOptions options_;
  std::vector<std::vector<int32_t>> ahead_;    // gathers to begin before each node
  std::vector<bool> held_;                     // nodes that are not emitted at their own place
  std::vector<std::vector<int32_t>> release_;  // held nodes to emit before each node, or at the end
  std::vector<std::vector<int32_t>> readers_;  // by value
  std::vector<bool> from_state_;               // by value
};

}  // namespace

Graph overlap(const Graph& graph, const OverlapOptions& options) {
  return Scheduler(graph, options).run();
}

}  // namespace tessera
