#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "observe/reports.h"
#include "programs/session.h"

namespace tessera {

// What --enable_memory_profiling tells: memory at points of a run. Of the device by the plans, to
// the byte what their kernels have there; of the host what the system says.
class MemoryTracker {
 public:
  // `tell` gets every report, whose rank and device are filled in.
  MemoryTracker(int rank, std::string device, std::function<void(const MemoryReport&)> tell);

  // A point between programs, behind `step` steps; `in_step`: while the next one is at work.
  // `session`: null before there is one.
  void at(std::string tag, int64_t step, bool in_step, const Session* session);
  // Programs have run since the last point: their peaks count for the next one.
  void ran(const Executable& program);
  // To be given to the micro-batches of a step: where the first of them has done its forward pass
  // is a point.
  NodeObserver observer(int64_t step, const Session& session);

 private:
  void report(std::string tag, int64_t step, bool in_step, const Session* session, int64_t live);

  MemoryReport last_;
  std::function<void(const MemoryReport&)> tell_;
  int64_t peak_in_arena_ = 0;  // since the last point
};

}  // namespace tessera
