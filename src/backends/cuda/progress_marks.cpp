#include "backends/cuda/progress_marks.h"

#include <atomic>

namespace tessera::cuda {

std::vector<bool> ProgressMarks::places(const Graph& graph, const Plan& plan) {
  auto node = [&](size_t i) -> const Node& {
    return graph.nodes()[static_cast<size_t>(plan.instructions[i].node)];
  };
  auto waits = [&](size_t i) { return plan.instructions[i].kind == InstructionKind::kWait; };
  std::vector<bool> marked(plan.instructions.size());
  // What follows the last one is the end of the run, which is seen anyway.
  for (size_t i = 0; i + 1 < marked.size(); ++i) {
    const Node &here = node(i), &next = node(i + 1);
    marked[i] = waits(i) || waits(i + 1) || here.layer != next.layer || here.phase != next.phase;
  }
  return marked;
}

ProgressMarks::ProgressMarks(CudaDevice& device, const Graph& graph, const Plan& plan)
    : device_(device),
      places_(places(graph, plan)),
      kernel_(device.kernel("mark_progress")),
      word_(device, sizeof(uint32_t), "the word that says how far a run is") {
  *reinterpret_cast<uint32_t*>(word_.data()) = 0;
}

void ProgressMarks::write(uint32_t value) {
  device_.launch(kernel_, {1}, {1}, 0, reinterpret_cast<uint32_t*>(word_.data()), value);
}

size_t ProgressMarks::end_of_part(size_t instruction) const {
  while (instruction + 1 < places_.size() && !places_[instruction]) ++instruction;
  return instruction;
}

size_t ProgressMarks::done() const {
  return std::atomic_ref(*reinterpret_cast<uint32_t*>(word_.data()))
      .load(std::memory_order_relaxed);
}

}  // namespace tessera::cuda
