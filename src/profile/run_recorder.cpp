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
  exchanges_.clear();
  lost_ = 0;
}

void RunRecorder::begins(const Executable& program) {
  if (runs_.size() == runs_.capacity()) {
    ++lost_;
    return;
  }
  runs_.push_back({&program, monotonic_nanoseconds(), instructions_.size()});
}

void RunRecorder::done(size_t instruction, const TimeSpan* exchange) {
  // Behind a run that was lost its instructions are, too: they would seem to be of the one before.
  if (lost_ > 0 || instructions_.size() == instructions_.capacity()) {
    ++lost_;
    return;
  }
  Instruction done{static_cast<int32_t>(instruction), -1, monotonic_nanoseconds()};
  if (exchange) {
    done.exchange = static_cast<int32_t>(exchanges_.size());
    exchanges_.push_back(*exchange);
  }
  instructions_.push_back(done);
}

}  // namespace tessera
