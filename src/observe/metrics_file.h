#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "observe/record_file.h"
#include "observe/reports.h"

namespace tessera {

// JSON lines, one object a step or validation, and one where the run fails, each with the time at
// which it was written (UTC, "2026-01-31T12:00:00.123Z"); the keys are in docs/metrics.md.
class MetricsFile final : public MetricsSink {
 public:
  // Of what a crash left, half a record at the end is cut off, with a warning. UserError if the
  // file cannot be opened or what it begins with is not metrics: then it stays as it is.
  explicit MetricsFile(const std::filesystem::path& path);
  void step(const StepReport& report) override;
  void validation(const ValidationReport& report) override;
  void stragglers(const StragglerReport& report) override;
  void end(const EndReport& report) override;

 private:
  void write(int64_t batch, const std::string& rest);
  RecordFile file_;
  std::optional<int64_t> last_batch_;  // of the steps of this process
};

}  // namespace tessera
