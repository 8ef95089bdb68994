#include "profile/nsys_capture.h"

#include "base/log.h"
#include "base/text.h"

namespace tessera {
namespace {

const char* range_of(Phase phase) {
  switch (phase) {
    case Phase::kForward: return "forward";
    case Phase::kBackward:
    case Phase::kRecompute: return "backward";
    case Phase::kOptimizer: return "opt_step";
  }
  return "forward";
}

}  // namespace

NsysCapture::NsysCapture(CaptureWindow window, std::span<const ProfiledProgram> programs)
    : window_(std::move(window)),
      programs_(programs.begin(), programs.end()),
      ranges_(NvtxRanges::get()) {
  if (!ranges_.attached()) {
    TESSERA_WARN(
        "no tool takes NVTX ranges (NVTX_INJECTION64_PATH names it, which nsys does with -t "
        "nvtx): the capture has none");
    return;
  }
  for (const ProfiledProgram& program : programs_) {
    const Plan* plan = program.executable->plan();
    if (!plan) continue;
    for (const Instruction& instruction : plan->instructions)
      names_[program.executable].push_back(
          names_of(program.executable->graph(), instruction, program.name == "apply"));
  }
}

NsysCapture::Names NsysCapture::names_of(const Graph& graph, const Instruction& instruction,
                                         bool updates) {
  const Node& node = graph.nodes()[static_cast<size_t>(instruction.node)];
  const std::string layer = node.layer == kNoLayer ? node.scope.substr(0, node.scope.find('.'))
                                                   : cat("layer ", node.layer);
  const char* does = instruction.kind == InstructionKind::kWait   ? "wait for "
                     : instruction.kind == InstructionKind::kCopy ? "copy for "
                     : instruction.kind == InstructionKind::kFill ? "fill for "
                     : instruction.lane != Lane::kCompute         ? "begin "
                                                                  : "";
  return {updates ? "opt_step" : range_of(node.phase), layer,
          cat(does, node.op->name(), node.scope.empty() ? "" : " in ", node.scope)};
}

NsysCapture::~NsysCapture() { listen(false); }

void NsysCapture::listen(bool on) {
  for (const ProfiledProgram& program : programs_) {
    program.executable->remove_listener(*this);
    if (on && ranges_.attached()) program.executable->add_listener(*this);
  }
}

void NsysCapture::begin_step(int64_t number) {
  if (captures_ && window_.end && number >= *window_.end) finish();
  const bool inside = number >= window_.first && (!window_.end || number < *window_.end);
  if (!captures_ && inside) {
    if (!window_.begins.empty()) TESSERA_INFO(window_.begins);
    calls_.start();
    listen(true);
    captures_ = has_captured_ = true;
  }
  if (!captures_) return;
  ranges_.push(cat("iteration", number).c_str());
  in_step_ = true;
}

void NsysCapture::end_step() {
  if (in_step_) ranges_.pop();
  in_step_ = false;
}

void NsysCapture::finish() {
  if (!captures_) return;
  end_step();
  listen(false);
  calls_.stop();
  captures_ = false;
  if (!window_.ends.empty()) TESSERA_INFO(window_.ends);
}

// Of the names from `from` on; those that are "" have no range.
void NsysCapture::open(const Names& names, size_t from) {
  for (size_t i = from; i < names.size(); ++i)
    if (!names[i].empty()) ranges_.push(names[i].c_str());
}
void NsysCapture::close(const Names& names, size_t from) {
  for (size_t i = from; i < names.size(); ++i)
    if (!names[i].empty()) ranges_.pop();
}

void NsysCapture::begins(const Executable& program) {
  const auto found = names_.find(&program);
  running_ = found == names_.end() || found->second.empty() ? nullptr : &found->second;
  if (running_) open(running_->front(), 0);
}

void NsysCapture::done(size_t instruction, const TimeSpan*) {
  if (!running_ || instruction + 1 >= running_->size()) return;
  const Names &before = (*running_)[instruction], &next = (*running_)[instruction + 1];
  size_t same = 0;
  while (same + 1 < next.size() && before[same] == next[same]) ++same;
  close(before, same);
  open(next, same);
}

void NsysCapture::ends() {
  if (running_) close(running_->back(), 0);
  running_ = nullptr;
}

}  // namespace tessera
