#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "observe/record_file.h"
#include "observe/reports.h"
#include "observe/wandb_log.h"

namespace tessera {

// What a run tells as Weights & Biases keeps it offline: a directory
// `PARENT/wandb/offline-run-YYYYMMDD_HHMMSS-ID` with `run-ID.wandb`, which `wandb sync` sends to a
// server. Nothing is sent from here. The history has a row a step, validations in it; keys are
// TensorBoard's tags and those of docs/metrics.md. Steps of a history only ever grow: where a run
// goes back, that directory ends and another begins, as for a resumed run; the log names each.
class WandbRun final : public MetricsSink {
 public:
  using Options = std::span<const std::pair<std::string, std::string>>;
  // `first_step`: the steps done before. `ranks`: as of RunReport. UserError where the directory or
  // the file cannot be made.
  WandbRun(const std::filesystem::path& parent, Options options, int64_t first_step, int64_t ranks);
  ~WandbRun() override;
  // Of the steps that come.
  const std::filesystem::path& directory() const { return directory_; }
  void step(const StepReport& report) override;
  void validation(const ValidationReport& report) override;
  void memory(const MemoryReport& report) override;
  void values(const ValuesReport& report) override;
  void rewound(int64_t steps) override;
  void end(const EndReport& report) override;

 private:
  class Record;
  void begin(int64_t first_step);
  void finish(bool failed);
  void append(const Record& record);
  void add(std::string_view key, double value);
  void add(const MemoryReport& report);
  void begin_row(int64_t step);
  void finish_row();
  void write_summary();

  const std::filesystem::path parent_;
  const std::vector<std::pair<std::string, std::string>> options_;
  const int64_t ranks_;
  std::filesystem::path directory_;
  std::unique_ptr<RecordFile> file_;  // null: nothing is written any more
  WandbLog log_;
  int64_t records_ = 0;
  double start_seconds_ = 0;
  // The row of the last step, which is written when the next one begins.
  int64_t row_step_ = -1;
  std::map<std::string, std::string> row_, summary_;  // values as JSON
  std::vector<MemoryReport> early_;                   // of rows that have not begun
};

}  // namespace tessera
