#include "observe/wandb_run.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <system_error>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "observe/event_time.h"
#include "observe/protobuf_message.h"
#include "observe/scalars.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Fields of wandb_internal.proto: of Record, and of the messages in it.
enum RecordField : int {
  kNumber = 1,
  kHistory = 2,
  kSummary = 3,
  kRun = 17,
  kExit = 18,
  kFinal = 20,
  kHeader = 21,
  kFooter = 22
};
// Of ConfigItem; of HistoryItem and SummaryItem, whose keys are paths of one word; of all of them.
constexpr int kConfigKey = 1, kPath = 2, kValue = 16;

std::string local_time(const char* pattern) {
  const std::time_t now = std::time(nullptr);
  std::tm tm{};
  ::localtime_r(&now, &tm);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, pattern, &tm));
}

// JSON has no such numbers; wandb writes and reads these.
std::string json_number(double x) {
  if (std::isnan(x)) return "NaN";
  if (std::isinf(x)) return x > 0 ? "Infinity" : "-Infinity";
  return cat(x);
}

ProtobufMessage item(int key_field, std::string_view key, std::string_view json) {
  return ProtobufMessage().bytes(key_field, key).bytes(kValue, json);
}

fs::path new_directory(const fs::path& parent, const std::string& id) {
  const fs::path directory =
      parent / "wandb" / cat("offline-run-", local_time("%Y%m%d_%H%M%S"), "-", id);
  std::error_code error;
  // What `wandb sync` sends along, if anything lies there.
  fs::create_directories(directory / "files", error);
  if (error)
    throw UserError(cat(
        "cannot make '", directory.string(),
        "' for --use_wandb, which keeps its files in the working directory: ", error.message()));
  return directory;
}

}  // namespace

class WandbRun::Record : public ProtobufMessage {
 public:
  explicit Record(RecordField field, const ProtobufMessage& content) { message(field, content); }
};

WandbRun::WandbRun(const fs::path& parent, Options options, int64_t first_step, int64_t ranks)
    : parent_(parent), options_(options.begin(), options.end()), ranks_(ranks) {
  begin(first_step);
}

void WandbRun::begin(int64_t first_step) {
  const std::string id = random_id().substr(0, 8);
  directory_ = new_directory(parent_, id);
  file_ =
      std::make_unique<RecordFile>(directory_ / cat("run-", id, ".wandb"), "the records of W&B");
  TESSERA_INFO(cat("Writing records of W&B, which are not uploaded; to do so: wandb sync ",
                   directory_.lexically_normal().string()));
  start_seconds_ = unix_seconds();
  records_ = 0;
  log_ = {};
  summary_.clear();
  file_->append(log_.header());
  append(Record(kHeader, {}));
  ProtobufMessage config;
  for (const auto& [name, value] : options_)
    config.message(1, item(kConfigKey, name, json_quoted(value)));
  const auto whole = static_cast<uint64_t>(start_seconds_);
  const auto nanoseconds =
      static_cast<uint64_t>((start_seconds_ - static_cast<double>(whole)) * 1e9);
  // RunRecord: 1 run_id, 3 project, 4 config, 13 host, 14 starting_step, 17 start_time.
  ProtobufMessage run;
  run.bytes(1, id).bytes(3, "tessera").message(4, config).bytes(13, host_name());
  if (first_step > 0) run.number(14, static_cast<uint64_t>(first_step) + 1);
  run.message(17, ProtobufMessage().number(1, whole).number(2, nanoseconds));
  append(Record(kRun, run));
}

WandbRun::~WandbRun() { finish_row(); }

void WandbRun::append(const Record& record) {
  if (!file_) return;
  ProtobufMessage numbered = record;
  numbered.number(kNumber, static_cast<uint64_t>(++records_));
  file_->append(log_.frame(numbered.text()));
}

void WandbRun::add(std::string_view key, double value) {
  row_[std::string(key)] = json_number(value);
}

void WandbRun::begin_row(int64_t step) {
  finish_row();
  row_step_ = step;
  std::erase_if(early_, [&](const MemoryReport& r) {
    if (r.counted_to() > step) return false;
    add(r);
    return true;
  });
}

void WandbRun::add(const MemoryReport& r) {
  const double gib = int64_t{1} << 30;
  add(cat("GPUMemoryGB/", r.tag, "/max_allocated"), static_cast<double>(r.peak_allocated) / gib);
  add(cat("CPUMemoryGB/", r.tag, "/total"), static_cast<double>(r.resident) / gib);
}

void WandbRun::step(const StepReport& r) {
  begin_row(r.batch + 1);
  for (const Scalar& scalar : scalars_of(r)) add(scalar.tag, scalar.value);
  const double per_gpu =
      per_second(static_cast<double>(r.tokens), r.step_seconds) / static_cast<double>(ranks_);
  add("loss", r.loss);
  add("gradient norm", r.gradient_norm);
  add("learning rate", r.next_learning_rate);
  add("token seen", static_cast<double>(r.tokens_seen));
  add("throughput (token per gpu per sec)", per_gpu);
  add("gpu reserved memory", static_cast<double>(r.memory_bytes));
  add("gpu allocated memory", static_cast<double>(r.allocated_bytes));
}

// Belongs to the row of the step before it; at the beginning of a run there may be none.
void WandbRun::validation(const ValidationReport& r) {
  if (row_step_ != r.batch + 1) begin_row(r.batch + 1);
  for (const Scalar& scalar : scalars_of(r)) add(scalar.tag, scalar.value);
}

// Of a step that is at work there is no row yet, nor of what is before the first one.
void WandbRun::memory(const MemoryReport& r) {
  if (row_step_ == r.counted_to()) return add(r);
  early_.push_back(r);
}

// Of the same step as the row.
void WandbRun::values(const ValuesReport& r) {
  for (const auto& [tag, norm] : r.norms) add(tag, norm);
}

void WandbRun::finish_row() {
  if (row_step_ < 0) return;
  const double now = unix_seconds();
  add("_timestamp", now);
  add("_runtime", now - start_seconds_);
  add("_step", static_cast<double>(row_step_));
  // HistoryRecord: 1 item, 2 step.
  ProtobufMessage history;
  for (const auto& [key, value] : row_) history.message(1, item(kPath, key, value));
  history.message(2, ProtobufMessage().number(1, static_cast<uint64_t>(row_step_)));
  append(Record(kHistory, history));
  for (auto& [key, value] : row_) summary_.insert_or_assign(key, std::move(value));
  row_.clear();
  row_step_ = -1;
}

void WandbRun::write_summary() {
  ProtobufMessage summary;
  for (const auto& [key, value] : summary_) summary.message(1, item(kPath, key, value));
  append(Record(kSummary, summary));
}

void WandbRun::finish(bool failed) {
  finish_row();
  write_summary();
  // RunExitRecord: 1 exit_code, 2 runtime in seconds.
  ProtobufMessage exit;
  if (failed) exit.number(1, 1);
  exit.number(2, static_cast<uint64_t>(std::max(0.0, unix_seconds() - start_seconds_)));
  append(Record(kExit, exit));
  append(Record(kFinal, {}));
  append(Record(kFooter, {}));
}

void WandbRun::rewound(int64_t steps) {
  finish(false);
  file_.reset();
  early_.clear();
  try {
    begin(steps);
  } catch (const UserError& error) {
    TESSERA_WARN(cat(error.what(), "; training goes on without"));
  }
}

void WandbRun::end(const EndReport& r) { finish(r.failed); }

}  // namespace tessera
