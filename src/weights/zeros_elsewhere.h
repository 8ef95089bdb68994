#pragma once
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "hub/parameter_source.h"
#include "nn/parameter.h"

namespace tessera {

// A source of some parameters as one of all: the others are zeros.
class ZerosElsewhere : public ParameterSource {
 public:
  ZerosElsewhere(const ParameterSource& source, const std::vector<Parameter>& parameters)
      : source_(source) {
    for (const Parameter& p : parameters) known_.insert(p.name);
  }
  void read(std::string_view parameter, int64_t first, std::span<float> values) const override {
    if (known_.contains(parameter)) return source_.read(parameter, first, values);
    std::ranges::fill(values, 0.0f);
  }
  void advise(std::string_view parameter, int64_t first, int64_t count,
              Advice advice) const override {
    if (known_.contains(parameter)) source_.advise(parameter, first, count, advice);
  }

 private:
  const ParameterSource& source_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace tessera
