#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "profile/cuda_calls.h"
#include "profile/instruction_text.h"
#include "profile/nvtx_ranges.h"
#include "runtime/executable.h"

namespace tessera {

// When NVIDIA's profiler captures, in steps as in the progress line.
struct CaptureWindow {
  int64_t first = 0;
  std::optional<int64_t> end;  // the first step behind it; none: the end of the run
  std::string begins, ends;    // what is said in the log then; "": nothing
};

// Opens and closes the capture of a rank around its steps. Inside, where a tool takes ranges, every
// step N is the range "iterationN", which holds "forward" and "backward" of its micro-batches and
// "opt_step", in these layers, in these ops; all are closed again. A device that works behind the
// host is given such steps op by op.
class NsysCapture final : public RunListener {
 public:
  NsysCapture(CaptureWindow window, std::span<const ProfiledProgram> programs);
  ~NsysCapture() override;
  NsysCapture(const NsysCapture&) = delete;
  NsysCapture& operator=(const NsysCapture&) = delete;

  void begin_step(int64_t number);
  void end_step();
  // The run ends.
  void finish();
  // Whether there was a step in the window.
  bool has_captured() const { return has_captured_; }

  Hearing hearing() const override { return Hearing::kIssue; }
  void begins(const Executable& program) override;
  void done(size_t instruction, const TimeSpan* exchange) override;
  void ends() override;

 private:
  // Phase, layer and op of an instruction; "": none.
  using Names = std::array<std::string, 3>;
  static Names names_of(const Graph& graph, const Instruction& instruction, bool updates);
  void listen(bool on);
  void open(const Names& names, size_t from);
  void close(const Names& names, size_t from);

  CaptureWindow window_;
  std::vector<ProfiledProgram> programs_;
  CudaCalls calls_;
  const NvtxRanges& ranges_;
  std::map<const Executable*, std::vector<Names>> names_;  // of every instruction
  const std::vector<Names>* running_ = nullptr;            // of the program that runs
  bool captures_ = false, in_step_ = false, has_captured_ = false;
};

}  // namespace tessera
