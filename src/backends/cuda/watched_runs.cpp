// What a CudaExecutable tells those who listen to it.
#include <algorithm>

#include "backends/cuda/cuda_executable.h"
#include "base/error.h"
#include "base/text.h"

namespace tessera::cuda {

bool CudaExecutable::add_listener(RunListener& listener) {
  const auto guard = device_.lock();
  listeners_.add(listener);
  listeners_changed();
  return true;
}

void CudaExecutable::remove_listener(RunListener& listener) {
  listeners_.remove(listener);
  try {
    const auto guard = device_.lock();
    listeners_changed();
  } catch (const Error&) {  // a device that has failed says so where it is used
  }
}

void CudaExecutable::listeners_changed() {
  if (!listeners_.needs(Hearing::kTimes)) timer_.reset();
  if (listeners_.needs(Hearing::kProgress) == marks_.has_value()) return;
  // The marks are part of what is recorded, and what is recorded may still be at work.
  device_.finish();
  device_.remove_in_flight(*this);
  forget_capture();
  if (marks_)
    marks_.reset();
  else
    marks_.emplace(device_, graph(), program_.plan);
}

void CudaExecutable::device_begins() {
  told_ = 0;
  listeners_.tell(Hearing::kProgress, [&](RunListener& l) { l.begins(*this); });
}

void CudaExecutable::device_is_on() {
  const size_t done = marks_->done();
  if (done <= told_) return;
  told_ = done;
  listeners_.tell(Hearing::kProgress, [&](RunListener& l) { l.done(done - 1, nullptr); });
}

void CudaExecutable::device_ends() {
  listeners_.tell(Hearing::kProgress, [](RunListener& l) { l.ends(); });
}

std::string CudaExecutable::device_is_in() const {
  const size_t at = std::max(told_, marks_->done());
  const std::vector<Instruction>& instructions = program_.plan.instructions;
  if (at >= instructions.size()) return {};
  auto text = [&](size_t i) {
    const Node& node = graph().nodes()[static_cast<size_t>(instructions[i].node)];
    return cat(instructions[i].kind == InstructionKind::kWait ? "a wait for " : "", node.op->name(),
               node.scope.empty() ? "" : " in ", node.scope, " (", name(node.phase), ")");
  };
  const size_t end = marks_->end_of_part(at);
  return end == at ? text(at) : cat(text(at), " to ", text(end));
}

void CudaExecutable::issued(size_t instruction) {
  if (!issues_) return;
  listeners_.tell(Hearing::kIssue, [&](RunListener& l) { l.done(instruction, nullptr); });
}

// On the compute lane one instruction comes behind the other. What runs beside it shows where it is
// waited for.
void CudaExecutable::tell_times(int64_t begin) {
  const std::vector<Instruction>& instructions = program_.plan.instructions;
  const std::vector<TimedWork> works = timer_->take();
  std::vector<std::optional<TimeSpan>> spans(instructions.size());
  for (const TimedWork& work : works) {
    std::optional<TimeSpan>& span = spans[work.instruction];
    span = span ? TimeSpan{std::min(span->begin, work.at.begin), std::max(span->end, work.at.end)}
                : work.at;
    const Instruction& instruction = instructions[work.instruction];
    const std::string& kernel =
        work.name.empty() && instruction.kind == InstructionKind::kLaunch
            ? program_.launches[static_cast<size_t>(instruction.node)].kernel
            : work.name;
    const DeviceWork told{work.instruction, instruction.lane, work.at, kernel,
                          work.bytes > 0 ? work.bytes : instruction.bytes};
    listeners_.tell(Hearing::kTimes, [&](RunListener& l) { l.worked(told); });
  }
  std::vector<std::optional<TimeSpan>> beside(graph().nodes().size());
  for (size_t k = 0; k < instructions.size(); ++k) {
    const Instruction& instruction = instructions[k];
    std::optional<TimeSpan>& exchange = beside[static_cast<size_t>(instruction.node)];
    TimeSpan at{begin, begin};
    const bool waits = instruction.kind == InstructionKind::kWait;
    if (waits && exchange) {
      at.end = std::max(begin, exchange->end);
    } else if (instruction.lane != Lane::kCompute) {
      exchange = spans[k];
    } else if (spans[k]) {
      at.begin = std::max(begin, spans[k]->begin);
      at.end = std::max(at.begin, spans[k]->end);
    }
    begin = at.end;
    const TimeSpan* beside_it = waits && exchange ? &*exchange : nullptr;
    listeners_.tell(Hearing::kTimes, [&](RunListener& l) { l.ran(k, at, beside_it); });
  }
  listeners_.tell(Hearing::kTimes, [](RunListener& l) { l.ends(); });
}

}  // namespace tessera::cuda
