#include "observe/tensorboard.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "observe/event_time.h"
#include "observe/tensorboard_events.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// TensorBoard reads the files of a directory in the order of their names.
fs::path new_file(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error)
    throw UserError(
        cat("cannot make '", directory.string(), "' for TensorBoard: ", error.message()));
  const std::string name =
      format("events.out.tfevents.%010lld.", static_cast<long long>(unix_seconds())) +
      cat(host_name(), ".", ::getpid(), ".");
  int number = 0;
  while (fs::exists(directory / cat(name, number), error)) ++number;
  return directory / cat(name, number);
}

// In a table of Markdown.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c == '\n' ? ' ' : c;
  }
  return escaped;
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const fs::path& directory, int64_t first_step)
    : file_(new_file(directory), "TensorBoard's events"),
      first_step_(first_step),
      last_step_(first_step) {
  file_.append(version_record(unix_seconds()));
}

void TensorBoardWriter::arguments(std::span<const std::pair<std::string, std::string>> options) {
  std::string table = "| # | Arguments | Value |\n|---|---|---|\n";
  int number = 0;
  for (const auto& [name, value] : options)
    table += cat("| ", ++number, " | ", cell(name), " | ", cell(value), " |\n");
  file_.append(text_record(unix_seconds(), first_step_, "Arguments", table));
}

void TensorBoardWriter::network_test(std::span<const double> bandwidths) {
  const auto [least, greatest] = std::ranges::minmax(bandwidths);
  const double sum = std::accumulate(bandwidths.begin(), bandwidths.end(), 0.0);
  const Scalar scalars[] = {
      {"NCCLTest/avg_bus_bandwidth/min", least},
      {"NCCLTest/avg_bus_bandwidth/mean", sum / static_cast<double>(bandwidths.size())},
      {"NCCLTest/avg_bus_bandwidth/max", greatest}};
  file_.append(scalars_record(unix_seconds(), first_step_, scalars));
}

void TensorBoardWriter::step(const StepReport& r) {
  last_step_ = r.batch + 1;
  file_.append(scalars_record(unix_seconds(), last_step_, scalars_of(r)));
}

void TensorBoardWriter::validation(const ValidationReport& r) {
  file_.append(scalars_record(unix_seconds(), r.batch + 1, scalars_of(r)));
}

void TensorBoardWriter::memory(const MemoryReport& r) {
  const std::pair<std::string, int64_t> values[] = {
      {cat("GPUMemoryGB/", r.tag, "/allocated"), r.allocated},
      {cat("GPUMemoryGB/", r.tag, "/max_allocated"), r.peak_allocated},
      {cat("GPUMemoryGB/", r.tag, "/reserved"), r.reserved},
      {cat("GPUMemoryGB/", r.tag, "/max_reserved"), r.reserved},
      {cat("CPUMemoryGB/", r.tag, "/torch"), r.host_tensors},
      {cat("CPUMemoryGB/", r.tag, "/total"), r.resident},
      {cat("CPUMemoryGB/", r.tag, "/delta"), r.resident_change},
      {cat("CPUMemoryGB/", r.tag, "/base"), r.first_resident}};
  std::vector<Scalar> scalars;
  for (const auto& [tag, bytes] : values)
    scalars.push_back({tag, static_cast<double>(bytes) / (int64_t{1} << 30)});
  file_.append(scalars_record(unix_seconds(), r.counted_to(), scalars));
}

void TensorBoardWriter::values(const ValuesReport& r) {
  const double now = unix_seconds();
  for (const ValuesReport::Values& parameter : r.parameters) {
    if (parameter.values.count() > 0)
      file_.append(histogram_record(now, r.batch + 1, parameter.tag, parameter.values));
  }
  std::vector<Scalar> norms;
  for (const auto& [tag, norm] : r.norms) norms.push_back({tag, norm});
  file_.append(scalars_record(now, r.batch + 1, norms));
}

void TensorBoardWriter::rewound(int64_t steps) {
  last_step_ = steps;
  file_.append(restart_record(unix_seconds(), steps + 1));
}

void TensorBoardWriter::end(const EndReport& r) {
  const Scalar scalars[] = {{"Perf/runtime/total", r.seconds / 60},
                            {"Perf/runtime/train", r.training_seconds / 60}};
  file_.append(scalars_record(unix_seconds(), last_step_, scalars));
}

}  // namespace tessera
