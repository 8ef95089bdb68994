#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/executable.h"

namespace tessera {

// Notes when every instruction of the runs it hears of was done: one reading of the clock and 16
// bytes each, in memory that was taken before. An instruction begins where the one before it ended,
// but for devices that say when it began, and what they did for it.
class RunRecorder final : public RunListener {
 public:
  struct Run {
    const Executable* program = nullptr;
    int64_t begin = 0;  // nanoseconds, monotonic_nanoseconds()
    size_t first = 0;   // of its instructions, in instructions()
  };
  struct Instruction {
    int32_t index = 0;      // in the plan
    int32_t exchange = -1;  // in exchanges(), of a wait
    int64_t end = 0;
  };

  // A kernel or copy of a device.
  struct Work {
    size_t run = 0;  // in runs()
    size_t instruction = 0;
    Lane lane = Lane::kCompute;
    TimeSpan at;
    size_t name = 0;  // in names()
    int64_t bytes = 0;
  };

  RunRecorder() = default;
  // So many instructions and runs are kept; what comes behind them is counted only.
  RunRecorder(size_t instructions, size_t runs);

  void begins(const Executable& program) override;
  void done(size_t instruction, const TimeSpan* exchange) override;
  void ran(size_t instruction, const TimeSpan& at, const TimeSpan* exchange) override;
  void worked(const DeviceWork& work) override;

  // Of runs that begin from here on it hears, or not; at first it does.
  void hear(bool on) { hears_ = on; }
  void clear();
  const std::vector<Run>& runs() const { return runs_; }
  const std::vector<Instruction>& instructions() const { return instructions_; }
  // When instruction `i` began, where a device said it; of no other.
  std::optional<int64_t> began(size_t i) const {
    return i < begins_.size() && begins_[i] >= 0 ? std::optional(begins_[i]) : std::nullopt;
  }
  const std::vector<Work>& works() const { return works_; }
  const std::vector<std::string>& names() const { return names_; }
  // When exchanges ran, on a thread of their own.
  const std::vector<TimeSpan>& exchanges() const { return exchanges_; }
  int64_t lost() const { return lost_; }

 private:
  void add(size_t instruction, int64_t end, const TimeSpan* exchange);

  std::vector<Run> runs_;
  std::vector<Instruction> instructions_;
  std::vector<int64_t> begins_;  // by instruction, none where no device says it
  std::vector<Work> works_;
  std::vector<std::string> names_;
  std::map<std::string, size_t, std::less<>> name_numbers_;
  std::vector<TimeSpan> exchanges_;
  int64_t lost_ = 0;
  bool hears_ = true;
};

}  // namespace tessera
