#include "profile/run_recorder.h"

namespace tessera {

RunRecorder::RunRecorder(size_t instructions, size_t runs) {
  runs_.reserve(runs);
  instructions_.reserve(instructions);
  exchanges_.reserve(instructions);
}

void RunRecorder::clear() {
  runs_.clear();
  instructions_.clear();
  begins_.clear();
  works_.clear();
  exchanges_.clear();
  lost_ = 0;
}

void RunRecorder::begins(const Executable& program) {
  if (!hears_) return;
  if (runs_.size() == runs_.capacity()) {
    ++lost_;
    return;
  }
  runs_.push_back({&program, monotonic_nanoseconds(), instructions_.size()});
}

void RunRecorder::done(size_t instruction, const TimeSpan* exchange) {
  add(instruction, monotonic_nanoseconds(), exchange);
}

void RunRecorder::ran(size_t instruction, const TimeSpan& at, const TimeSpan* exchange) {
  const size_t before = instructions_.size();
  add(instruction, at.end, exchange);
  if (instructions_.size() == before) return;
  begins_.resize(before, -1);
  begins_.push_back(at.begin);
}

void RunRecorder::worked(const DeviceWork& work) {
  if (!hears_ || lost_ > 0 || runs_.empty()) return;
  auto known = name_numbers_.find(work.name);
  if (known == name_numbers_.end()) {
    known = name_numbers_.emplace(std::string(work.name), names_.size()).first;
    names_.emplace_back(work.name);
  }
  works_.push_back(
      {runs_.size() - 1, work.instruction, work.lane, work.at, known->second, work.bytes});
}

void RunRecorder::add(size_t instruction, int64_t end, const TimeSpan* exchange) {
  if (!hears_) return;
  // Behind a run that was lost its instructions are, too: they would seem to be of the one before.
  if (lost_ > 0 || instructions_.size() == instructions_.capacity()) {
    ++lost_;
    return;
  }
  Instruction done{static_cast<int32_t>(instruction), -1, end};
  if (exchange) {
    done.exchange = static_cast<int32_t>(exchanges_.size());
    exchanges_.push_back(*exchange);
  }
  instructions_.push_back(done);
}

}  // namespace tessera
