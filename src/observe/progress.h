#pragma once
#include <cstdint>
#include <string>

#include "observe/reports.h"

namespace tessera {

// "Batch 12 Loss: 8.12345, Speed: 3.21 samples/sec, lr: 0.000100, gradnorm: 1.2345, Tokens/s: 822,
//  TFLOPS/GPU: 0.31, MFU: 0.310, Memory: 1.2 GiB, Left: 3m05s"
// Everything up to lr is a fixed grammar that other programs read; fields may be appended. lr is
// the rate of the step to come, as in the programs whose grammar it is.
std::string progress_line(const StepReport& report);

// Mean speed from the 31st step of this process on, when the pace has settled.
class RunningAverage {
 public:
  explicit RunningAverage(int64_t every) : every_(every) {}
  // True when a line is due: at every so many steps of the training, once there are some that
  // count.
  bool add(const StepReport& report);
  // "Batch 130 Running Avg Speed: 3.21 samples/sec, Running Avg Model TFLOPS/GPU: 0.12"; where
  // something is computed again, followed by ", Running Avg Hardware TFLOPS/GPU: 0.16".
  std::string line() const;

 private:
  int64_t every_, steps_ = 0, batch_ = 0, samples_ = 0;
  double seconds_ = 0, flops_ = 0, recomputed_flops_ = 0;
};

}  // namespace tessera
