#include "observe/machine_peak.h"

#include <algorithm>
#include <cmath>

namespace tessera {

MachinePeak::MachinePeak(std::function<double()> measure)
    : flops_(measure()), measure_(std::move(measure)) {}

double MachinePeak::flops_after(double speed) {
  if (measure_ && std::isfinite(speed) && speed > flops_)
    flops_ = std::max({flops_, speed, measure_()});
  return flops_;
}

}  // namespace tessera
