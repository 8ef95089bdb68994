#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "observe/record_file.h"
#include "observe/reports.h"

namespace tessera {

// What a run tells, as TensorBoard shows it: scalars of steps and validations over the number of
// steps done (docs/metrics.md has the tags), and options as a table.
class TensorBoardWriter final : public MetricsSink {
 public:
  // Begins a file of its own in the directory, which is made where it is missing. `first_step`: the
  // steps done before. UserError where the directory or file cannot be made.
  TensorBoardWriter(const std::filesystem::path& directory, int64_t first_step);
  void arguments(std::span<const std::pair<std::string, std::string>> options);
  // Least, mean and greatest of these GB/s, which a test of the network measured; not empty.
  void network_test(std::span<const double> bandwidths);
  void step(const StepReport& report) override;
  void validation(const ValidationReport& report) override;
  void memory(const MemoryReport& report) override;
  void values(const ValuesReport& report) override;
  // What was told of later steps, in earlier files of the directory too, is not shown any more.
  void rewound(int64_t steps) override;
  void end(const EndReport& report) override;

 private:
  RecordFile file_;
  int64_t first_step_, last_step_;
};

}  // namespace tessera
