#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/thread_pool.h"

namespace tessera {

// The parameters of a model, wherever they are. Elements are counted row-major in the whole
// parameter, in the shape that the model declares.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;

  // Elements [first, first + values.size()). Several threads may call it at once.
  virtual void read(std::string_view parameter, int64_t first, std::span<float> values) const = 0;

  // That these elements are read next, or not again: of use where they come from a mapped file.
  virtual void advise(std::string_view parameter, int64_t first, int64_t count,
                      Advice advice) const = 0;
};

// The elements of one parameter that are wanted, and where. Of a rank that has pieces these are its
// own only.
struct ParameterTarget {
  struct Range {
    int64_t first = 0, count = 0;
    int64_t to = 0;  // number of the first, among the elements of the target
  };
  std::string parameter;
  std::vector<Range> ranges;  // ascending
  // Takes elements to, to + 1, ...; several threads may call it at once.
  std::function<void(int64_t to, std::span<const float> values)> write;
};

// Fills the targets. At no time is more than some 64 MiB of what was read, and is not in its place
// yet, in memory, except for matrices that are transposed on the way.
void copy_parameters(const ParameterSource& source, std::span<const ParameterTarget> targets,
                     ThreadPool& pool);

}  // namespace tessera
