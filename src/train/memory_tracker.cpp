#include "train/memory_tracker.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace tessera {

MemoryTracker::MemoryTracker(int rank, std::string device,
                             std::function<void(const MemoryReport&)> tell)
    : tell_(std::move(tell)) {
  last_.rank = rank;
  last_.device = std::move(device);
}

void MemoryTracker::at(std::string tag, int64_t step, bool in_step, const Session* session) {
  report(std::move(tag), step, in_step, session, 0);
}

void MemoryTracker::ran(const Executable& program) {
  if (const Plan* plan = program.plan())
    peak_in_arena_ = std::max(peak_in_arena_, plan->live_peak_bytes);
}

// The first op of another phase than the forward pass ends that; it has run when it is seen here.
NodeObserver MemoryTracker::observer(int64_t step, const Session& session) {
  return [this, step, &session, told = false](const NodeEvent& event) mutable {
    if (told || event.node.phase == Phase::kForward) return;
    told = true;
    int64_t live = 0, peak_behind = 0;
    for (const Session::Program& program : session.compiled()) {
      const Plan* plan = program.executable->plan();
      if (!plan || &program.executable->graph() != &event.graph) continue;
      const std::vector<Node>& nodes = event.graph.nodes();
      const auto bytes = live_bytes(*plan, static_cast<int32_t>(nodes.size()));
      const auto forward = std::max<int64_t>(1, &event.node - nodes.data());  // nodes of it
      live = bytes[static_cast<size_t>(forward) - 1];
      peak_in_arena_ = *std::max_element(bytes.begin(), bytes.begin() + forward);
      peak_behind = *std::max_element(bytes.begin() + forward, bytes.end());
    }
    report("After forward", step, true, &session, live);
    peak_in_arena_ = peak_behind;
  };
}

void MemoryTracker::report(std::string tag, int64_t step, bool in_step, const Session* session,
                           int64_t live) {
  MemoryReport& r = last_;
  r.step = step;
  r.in_step = in_step;
  r.tag = std::move(tag);
  const int64_t peak_in_arena = std::max(live, std::exchange(peak_in_arena_, 0));
  if (session && session->allocated()) {
    const Session::Memory memory = session->planned_memory();
    const int64_t state = memory.near() - memory.arena;
    r.allocated = state + live;
    r.peak_allocated = state + peak_in_arena;
    r.reserved = memory.near();
    r.host_tensors = r.device == "cpu" ? memory.total() : memory.far();
  }
  const int64_t resident = resident_bytes();
  if (r.first_resident == 0) r.first_resident = r.resident = resident;
  r.resident_change = resident - std::exchange(r.resident, resident);
  tell_(r);
}

}  // namespace tessera
