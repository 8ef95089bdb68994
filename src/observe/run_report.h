#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "observe/reports.h"

namespace tessera {

// The report of eleven lines, "label value", of --report_interval.
class RunReport {
 public:
  // `ranks`: what tokens a second are divided by. Each of them has as many.
  RunReport(int64_t every, int64_t ranks) : every_(every), ranks_(ranks) {}
  // The lines, where a report is due behind this step. Speeds are of the steps since the one
  // before, and since training began; the time of both is all of it, with waits, validations and
  // saves. Memory is what was taken at most since the report before.
  std::optional<std::string> add(const StepReport& report);

 private:
  int64_t every_, ranks_;
  int64_t steps_ = 0, tokens_ = 0, peak_memory_ = 0;
  double reported_seconds_ = 0;
};

}  // namespace tessera
