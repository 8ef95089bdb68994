#include "observe/tensorboard.h"

#include <unistd.h>

#include <chrono>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "observe/tensorboard_events.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

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
    : file_(new_file(directory), "TensorBoard's events"), first_step_(first_step) {
  file_.append(version_record(unix_seconds()));
  file_.append(restart_record(unix_seconds(), first_step + 1));
}

void TensorBoardWriter::arguments(std::span<const std::pair<std::string, std::string>> options) {
  std::string table = "| # | Arguments | Value |\n|---|---|---|\n";
  int number = 0;
  for (const auto& [name, value] : options)
    table += cat("| ", ++number, " | ", cell(name), " | ", cell(value), " |\n");
  file_.append(text_record(unix_seconds(), first_step_, "Arguments", table));
}

void TensorBoardWriter::step(const StepReport& r) {
  const double flops = per_second(r.flops, r.step_seconds);
  std::vector<TensorBoardScalar> scalars{
      {"Loss/train", r.loss},
      {"LR/learning_rate", r.learning_rate},
      {"Norms/grad_norm", r.gradient_norm},
      {"Perf/SeqPerSec", per_second(static_cast<double>(r.samples), r.step_seconds)},
      {"Perf/TokensPerSec", per_second(static_cast<double>(r.tokens), r.step_seconds)},
      {"Perf/ModelTFLOPs", flops / 1e12},
      {"Perf/step_seconds", r.step_seconds},
      {"Perf/data_seconds", r.data_seconds},
      {"Memory/resident_GiB", static_cast<double>(r.memory_bytes) / (int64_t{1} << 30)},
      {"Data/epoch", static_cast<double>(r.epoch)},
      {"Data/tokens_seen", static_cast<double>(r.tokens_seen)}};
  if (r.peak_flops > 0) scalars.push_back({"Perf/share_of_peak", flops / r.peak_flops});
  if (r.z_loss) scalars.push_back({"Loss/z_loss", *r.z_loss});
  if (r.loss_scale) scalars.push_back({"Loss/scale", *r.loss_scale});
  if (r.batches_ready)
    scalars.push_back({"Data/batches_ready", static_cast<double>(*r.batches_ready)});
  file_.append(scalars_record(unix_seconds(), r.batch + 1, scalars));
}

void TensorBoardWriter::validation(const ValidationReport& r) {
  const TensorBoardScalar scalars[] = {{"Loss/val", r.loss}, {"Loss/perplexity", r.perplexity}};
  file_.append(scalars_record(unix_seconds(), r.batch + 1, scalars));
}

}  // namespace tessera
