#include "plan/reuse_distance.h"

#include <algorithm>
#include <map>

namespace tessera {
namespace {

// When ranges of bytes were accessed last, in bytes of accesses since the begin.
class Accesses {
 public:
  void add(int64_t begin, int64_t bytes) {
    if (bytes == 0) return;
    now_ += bytes;
    cut(begin);
    cut(begin + bytes);
    ranges_.erase(ranges_.lower_bound(begin), ranges_.lower_bound(begin + bytes));
    ranges_[begin] = {begin + bytes, now_};
  }
  // Bytes of accesses since the last one to any byte of these; `never` if there was none.
  int64_t since(int64_t begin, int64_t bytes, int64_t never) const {
    int64_t last = -1;
    auto it = ranges_.upper_bound(begin);
    if (it != ranges_.begin()) --it;
    for (; it != ranges_.end() && it->first < begin + bytes; ++it) {
      if (it->second.end > begin) last = std::max(last, it->second.time);
    }
    return last < 0 ? never : now_ - last;
  }

 private:
  struct Range {
    int64_t end, time;
  };
  // No range goes on both sides of `at`.
  void cut(int64_t at) {
    auto it = ranges_.lower_bound(at);
    if (it == ranges_.begin() || (--it)->second.end <= at) return;
    ranges_[at] = it->second;
    it->second.end = at;
  }

  std::map<int64_t, Range> ranges_;  // by their begin
  int64_t now_ = 0;
};

}  // namespace

std::vector<int64_t> reuse_distances(const Graph& graph, const Plan& plan) {
  // Arenas and slots, one behind the other.
  std::vector<int64_t> begins;
  int64_t held = plan.arena_bytes + plan.far_arena_bytes;
  for (const Storage& storage : plan.storages) {
    if (storage.external) {
      begins.push_back(held);
      held += storage.bytes;
    } else {
      begins.push_back(storage.arena_offset +
                       (storage.tier == MemoryTier::kFar ? plan.arena_bytes : 0));
    }
  }
  auto begin = [&](Place p) { return begins[static_cast<size_t>(p.storage)] + p.offset; };
  auto begin_of = [&](Value v) { return begin(plan.places[static_cast<size_t>(v.id)]); };

  std::vector<int64_t> distances(graph.nodes().size());
  Accesses accesses;
  auto access = [&](Value v) { accesses.add(begin_of(v), graph.type(v).bytes()); };
  for (int run = 0; run < 2; ++run) {
    for (const Instruction& x : plan.instructions) {
      if (x.kind == InstructionKind::kWait) continue;
      if (x.kind != InstructionKind::kLaunch) {
        if (x.kind == InstructionKind::kCopy) accesses.add(begin(x.source), x.bytes);
        accesses.add(begin(x.target), x.bytes);
        continue;
      }
      const auto i = static_cast<size_t>(x.node);
      const Node& node = graph.nodes()[i];
      for (Value v : node.inputs) access(v);
      if (const int32_t scratch = plan.workspaces[i]; scratch >= 0)
        accesses.add(begin({scratch, 0}), plan.storages[static_cast<size_t>(scratch)].bytes);
      if (!node.outputs.empty()) {
        const Value first = node.outputs[0];
        distances[i] =
            std::min(held, accesses.since(begin_of(first), graph.type(first).bytes(), held));
      }
      for (Value v : node.outputs) access(v);
    }
  }
  return distances;
}

}  // namespace tessera
