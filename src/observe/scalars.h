#pragma once
#include <string_view>
#include <vector>

#include "observe/reports.h"

namespace tessera {

struct Scalar {
  std::string_view tag;
  double value = 0;
};

// What a step and a validation have to say as numbers, under the tags of docs/metrics.md.
std::vector<Scalar> scalars_of(const StepReport& report);
std::vector<Scalar> scalars_of(const ValidationReport& report);

}  // namespace tessera
