#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/executable.h"

namespace tessera {

// Notes when every instruction of the runs it hears of was done: one reading of the clock and 16
// bytes each, in memory that was taken before. An instruction begins where the one before it ended.
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

  RunRecorder() = default;
  // So many instructions and runs are kept; what comes behind them is counted only.
  RunRecorder(size_t instructions, size_t runs);

  void begins(const Executable& program) override;
  void done(size_t instruction, const TimeSpan* exchange) override;

  void clear();
  const std::vector<Run>& runs() const { return runs_; }
  const std::vector<Instruction>& instructions() const { return instructions_; }
  // When exchanges ran, on a thread of their own.
  const std::vector<TimeSpan>& exchanges() const { return exchanges_; }
  int64_t lost() const { return lost_; }

 private:
  std::vector<Run> runs_;
  std::vector<Instruction> instructions_;
  std::vector<TimeSpan> exchanges_;
  int64_t lost_ = 0;
};

}  // namespace tessera
