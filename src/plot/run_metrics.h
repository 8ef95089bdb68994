#pragma once
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "plot/series.h"

namespace tessera {

// Numbers of a metrics file (docs/metrics.md), over steps done: `batch` + 1. Where a step is done
// again, after a resume or by a new run, what was said of it and of later ones does not count. A
// last line that is still being written is left out.
class RunMetrics {
 public:
  // Reads what the lines have for these keys. UserError that names the file and the line: it cannot
  // be read, a line is longer than 1 MiB, no JSON object or has no number of a step. Interrupted
  // when that is requested.
  RunMetrics(const ByteSource& file, std::span<const std::string> keys);

  // Empty where no line has the key. `null` is no number (NaN).
  Series series(const std::string& key) const;
  // All keys that have a number somewhere.
  const std::set<std::string>& keys() const { return seen_; }

 private:
  void take(std::string_view line, std::span<const std::string> keys, const std::string& where);
  std::map<std::string, Series> series_;
  std::set<std::string> seen_;
  int64_t last_step_ = -1;  // of the last line with a loss
};

}  // namespace tessera
