#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/cuda_device.h"
#include "backends/cuda/cupti_activity.h"
#include "base/clock.h"

namespace tessera::cuda {

// What the device did for an instruction of a run.
struct TimedWork {
  size_t instruction = 0;
  TimeSpan at;
  std::string name;  // of a kernel or copy; "": all of the instruction
  int64_t bytes = 0;
};

// Takes the times of one run after another: of what is enqueued between begins() and ends() of an
// instruction.
class RunTimer {
 public:
  virtual ~RunTimer() = default;
  virtual void begin_run(size_t instructions) = 0;
  virtual void begins(size_t instruction, Lane lane) = 0;
  virtual void ends(size_t instruction, Lane lane) = 0;
  // Of a run that is over on the device, in no particular order.
  virtual std::vector<TimedWork> take() = 0;
};

// By two events an instruction: half a microsecond exact, and each takes the device some time of
// its own. A run begins with a wait for the device.
class EventTimer final : public RunTimer {
 public:
  explicit EventTimer(CudaDevice& device) : device_(device) {}
  ~EventTimer() override;
  EventTimer(const EventTimer&) = delete;
  EventTimer& operator=(const EventTimer&) = delete;

  void begin_run(size_t instructions) override;
  void begins(size_t instruction, Lane lane) override;
  void ends(size_t instruction, Lane lane) override;
  std::vector<TimedWork> take() override;

 private:
  CUevent next();
  struct Span {
    size_t instruction;
    CUevent begin, end;
  };
  CudaDevice& device_;
  std::vector<CUevent> events_;  // the first is that of the run's begin
  size_t used_ = 0;
  std::vector<Span> spans_;
  int64_t begin_ = 0;  // of the run, by the host's clock
};

// Kernel by kernel from CUPTI. Exchanges have kernels that NCCL launches from threads of its own,
// which CUPTI does not connect with the call: these are timed by events too.
class CuptiTimer final : public RunTimer {
 public:
  CuptiTimer(CudaDevice& device, std::shared_ptr<CuptiActivity> activity)
      : events_(device), activity_(std::move(activity)) {}

  void begin_run(size_t instructions) override;
  void begins(size_t instruction, Lane lane) override;
  void ends(size_t instruction, Lane lane) override;
  std::vector<TimedWork> take() override;

 private:
  EventTimer events_;
  std::shared_ptr<CuptiActivity> activity_;
  uint64_t first_ = 0;
  size_t instructions_ = 0;
};

// The best that there is; without CUPTI a warning says so, once.
std::unique_ptr<RunTimer> make_run_timer(CudaDevice& device, bool cupti);

}  // namespace tessera::cuda
