#pragma once
#include <functional>

namespace tessera {

// The speed that speeds are shares of: what the machine can do at best. A measurement says no more
// than what it did at that moment; where a run turns out faster, the machine was slow then (another
// process, a low clock), and it is measured again.
class MachinePeak {
 public:
  MachinePeak() = default;  // unknown: 0
  // A peak that was given is not questioned.
  explicit MachinePeak(double flops) : flops_(flops) {}
  // Measures at once.
  explicit MachinePeak(std::function<double()> measure);

  double flops() const { return flops_; }  // FLOP/s
  bool is_measured() const { return measure_ != nullptr; }
  // The peak, known that a run reached `speed`: no less than that, unless it was given.
  double flops_after(double speed);

 private:
  double flops_ = 0;
  std::function<double()> measure_;
};

}  // namespace tessera
