#include "tests/runtime/access_order.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "base/text.h"

namespace tessera {
namespace {

// Of a program: compute, which is 0, and three beside it.
constexpr size_t kLanes = 4;

// What happened before: of each lane, how many of its steps.
using Clock = std::array<int64_t, kLanes>;
void join(Clock& into, const Clock& other) {
  for (size_t lane = 0; lane < kLanes; ++lane) into[lane] = std::max(into[lane], other[lane]);
}

struct Access {
  int64_t begin, end;
  bool writes;
  size_t lane;
  int64_t step;
  std::string who;
};

class OrderCheck {
 public:
  OrderCheck(const Graph& graph, const Plan& plan) : graph_(graph), plan_(plan) {}

  std::string run() {
    std::map<int32_t, Clock> events;  // of nodes begun on another lane
    for (const Instruction& i : plan_.instructions) {
      if (i.kind == InstructionKind::kWait) {
        join(clocks_[0], events[i.node]);
        continue;
      }
      size_t lane = i.kind == InstructionKind::kLaunch ? static_cast<size_t>(i.lane) : 0;
      if (lane > 0) join(clocks_[lane], clocks_[0]);
      ++clocks_[lane][lane];
      if (i.kind != InstructionKind::kLaunch) {
        if (i.kind == InstructionKind::kCopy) access(i.source, i.bytes, false, lane, "a copy");
        access(i.target, i.bytes, true, lane, "a copy or fill");
      } else {
        const Node& node = graph_.nodes()[static_cast<size_t>(i.node)];
        std::string who = cat(node.op->name(), " of node ", i.node);
        for (Value v : node.inputs) access(place(v), graph_.type(v).bytes(), false, lane, who);
        for (Value v : node.outputs) access(place(v), graph_.type(v).bytes(), true, lane, who);
        int32_t scratch = plan_.workspaces[static_cast<size_t>(i.node)];
        if (scratch >= 0)
          access({scratch, 0}, plan_.storages[static_cast<size_t>(scratch)].bytes, true, lane, who);
        if (lane > 0) events[i.node] = clocks_[lane];
      }
      if (!finding_.empty()) return finding_;
    }
    // The program is over when compute is: everything else must have been waited for.
    for (size_t lane = 1; lane < kLanes; ++lane)
      if (clocks_[0][lane] < clocks_[lane][lane]) return cat("lane ", lane, " is still at work");
    return "";
  }

 private:
  Place place(Value v) const { return plan_.places[static_cast<size_t>(v.id)]; }

  void access(Place p, int64_t bytes, bool writes, size_t lane, const std::string& who) {
    const Storage& s = plan_.storages[static_cast<size_t>(p.storage)];
    std::string memory = s.external                   ? s.external_name
                         : s.tier == MemoryTier::kFar ? "far arena"
                                                      : "arena";
    int64_t begin = (s.external ? 0 : s.arena_offset) + p.offset;
    std::vector<Access>& known = accesses_[memory];
    for (const Access& before : known) {
      if (before.end <= begin || begin + bytes <= before.begin) continue;
      if (!(writes || before.writes) || clocks_[lane][before.lane] >= before.step) continue;
      finding_ = cat(who, writes ? " writes" : " reads", " what ", before.who,
                     before.writes ? " writes" : " reads", " in ", memory);
      return;
    }
    // What is written in order behind all of it needs not be looked at again.
    if (writes)
      std::erase_if(known, [&](const Access& before) {
        return begin <= before.begin && before.end <= begin + bytes;
      });
    known.push_back({begin, begin + bytes, writes, lane, clocks_[lane][lane], who});
  }

  const Graph& graph_;
  const Plan& plan_;
  std::array<Clock, kLanes> clocks_{};
  std::map<std::string, std::vector<Access>> accesses_;
  std::string finding_;
};

}  // namespace

std::string unordered_accesses(const Graph& graph, const Plan& plan) {
  return OrderCheck(graph, plan).run();
}

}  // namespace tessera
