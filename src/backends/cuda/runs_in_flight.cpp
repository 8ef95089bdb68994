#include "backends/cuda/runs_in_flight.h"

namespace tessera::cuda {

void RunsInFlight::add(WatchedProgram& program, CUevent done) {
  if (stopped_) return;
  look();
  runs_.push_back({&program, done});
  count_ = runs_.size();
  if (runs_.size() == 1) program.device_begins();
}

void RunsInFlight::remove(const WatchedProgram& program) {
  std::erase_if(runs_, [&](const Run& run) { return run.program == &program; });
  count_ = runs_.size();
}

void RunsInFlight::look() {
  while (!stopped_ && !runs_.empty()) {
    WatchedProgram& program = *runs_.front().program;
    if (driver_.event_query(runs_.front().done) != kCudaSuccess) return program.device_is_on();
    program.device_ends();
    runs_.pop_front();
    count_ = runs_.size();
    if (!runs_.empty()) runs_.front().program->device_begins();
  }
}

}  // namespace tessera::cuda
