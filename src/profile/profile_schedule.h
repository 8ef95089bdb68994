#pragma once
#include <cstdint>

namespace tessera {

// Which steps of a process are recorded: of each cycle first `wait` are left alone, then `warmup`
// are recorded and thrown away, then `active` are kept. As in PyTorch's profiler.
struct ProfileSchedule {
  int64_t wait = 1, warmup = 2, active = 3;
  int64_t repeat = 1;  // cycles; 0: to the end of the run

  enum class Part : uint8_t { kOff, kWarmup, kActive };
  struct Moment {
    Part part = Part::kOff;
    bool first = false, last = false;  // of the active steps of a cycle
  };
  // `step`: of this process, counted from 0.
  Moment at(int64_t step) const {
    const int64_t length = wait + warmup + active;
    if (repeat > 0 && step / length >= repeat) return {};
    const int64_t place = step % length;
    if (place < wait) return {};
    if (place < wait + warmup) return {Part::kWarmup};
    return {Part::kActive, place == wait + warmup, place + 1 == length};
  }
};

}  // namespace tessera
