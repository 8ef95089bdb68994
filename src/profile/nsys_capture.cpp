#include "profile/nsys_capture.h"

#include <cstring>

#include "base/error.h"
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
    : window_(std::move(window)), programs_(programs.begin(), programs.end()) {
  for (const ProfiledProgram& program : programs_) {
    const Plan* plan = program.executable->plan();
    if (!plan) continue;
    std::vector<const char*>& ranges = ranges_[program.executable];
    const bool updates = program.name == "apply";
    for (const Instruction& instruction : plan->instructions)
      ranges.push_back(updates ? "opt_step"
                               : range_of(program.executable->graph()
                                              .nodes()[static_cast<size_t>(instruction.node)]
                                              .phase));
  }
}

NsysCapture::~NsysCapture() { listen(false); }

void NsysCapture::listen(bool on) {
  for (const ProfiledProgram& program : programs_) {
    program.executable->remove_listener(*this);
    if (on) program.executable->add_listener(*this);
  }
}

void NsysCapture::begin_step(int64_t number) {
  if (captures_ && window_.end && number >= *window_.end) finish();
  const bool inside = number >= window_.first && (!window_.end || number < *window_.end);
  if (!captures_ && inside) {
    if (!window_.begins.empty()) TESSERA_INFO(window_.begins);
    calls_.start();
    listen(true);
    captures_ = true;
  }
  if (!captures_) return;
  calls_.push(cat("iteration", number).c_str());
  in_step_ = true;
}

void NsysCapture::end_step() {
  if (in_step_) calls_.pop();
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

void NsysCapture::begins(const Executable& program) {
  const auto found = ranges_.find(&program);
  running_ = found == ranges_.end() || found->second.empty() ? nullptr : &found->second;
  if (running_) calls_.push(running_->front());
}

void NsysCapture::done(size_t instruction, const TimeSpan*) {
  if (!running_ || instruction + 1 >= running_->size()) return;
  const char* next = (*running_)[instruction + 1];
  if (std::strcmp(next, (*running_)[instruction]) == 0) return;
  calls_.pop();
  calls_.push(next);
}

void NsysCapture::ends() {
  if (running_) calls_.pop();
  running_ = nullptr;
}

}  // namespace tessera
