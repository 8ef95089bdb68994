#pragma once
#include <cstdint>
#include <vector>

#include "backends/cuda/cuda_memory.h"

namespace tessera::cuda {

// How far a program's run is on the device, in a word of pinned memory: a kernel of one thread
// writes it, on the compute lane, where a layer or a phase ends and around waits for exchanges.
class ProgressMarks {
 public:
  ProgressMarks(CudaDevice& device, const Graph& graph, const Plan& plan);

  // The instructions behind which there is a mark.
  static std::vector<bool> places(const Graph& graph, const Plan& plan);

  // Enqueued behind an instruction, if it has a mark.
  void behind(size_t instruction) {
    if (places_[instruction]) write(static_cast<uint32_t>(instruction) + 1);
  }
  // Behind all, so that the next run does not begin where this one ended.
  void end() { write(0); }
  // The last instruction that the mark behind this one, or the end of the run, tells to be done.
  size_t end_of_part(size_t instruction) const;
  // Instructions that are certainly done of the run that the device is in.
  size_t done() const;

 private:
  void write(uint32_t value);

  CudaDevice& device_;
  std::vector<bool> places_;
  Kernel kernel_;
  PinnedBlock word_;
};

}  // namespace tessera::cuda
