#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "profile/cuda_calls.h"
#include "profile/instruction_text.h"
#include "runtime/executable.h"

namespace tessera {

// When NVIDIA's profiler captures, in steps as in the progress line.
struct CaptureWindow {
  int64_t first = 0;
  std::optional<int64_t> end;  // the first step behind it; none: the end of the run
  std::string begins, ends;    // what is said in the log then; "": nothing
};

// Opens and closes the capture of a rank around its steps. Inside, every step N is the range
// "iterationN", which holds "forward" and "backward" of its micro-batches and "opt_step"; all are
// closed again.
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

  void begins(const Executable& program) override;
  void done(size_t instruction, const TimeSpan* exchange) override;
  void ends() override;

 private:
  void listen(bool on);

  CaptureWindow window_;
  std::vector<ProfiledProgram> programs_;
  CudaCalls calls_;
  std::map<const Executable*, std::vector<const char*>> ranges_;  // of every instruction
  const std::vector<const char*>* running_ = nullptr;             // of the program that runs
  bool captures_ = false, in_step_ = false;
};

}  // namespace tessera
