#include "observe/metrics_file.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/text.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLongestLine = 1 << 20;
constexpr std::string_view kRecordBegin = "{\"time\":\"";

// JSON has no NaN: a number that is not finite is null.
std::string number(double x) { return std::isfinite(x) ? cat(x) : "null"; }

std::string share(std::string_view key, std::optional<double> value) {
  return value ? cat(key, *value) : "";
}

bool is_half_record(std::string_view line) {
  return (line.starts_with(kRecordBegin) || kRecordBegin.starts_with(line)) &&
         !nlohmann::json::accept(line);
}

bool is_metrics(std::string_view line) {
  const auto object = nlohmann::json::parse(line, nullptr, false);
  return object.is_object() && object.contains("batch");
}

std::string read_part(const ReadFile& file, uint64_t begin, uint64_t end) {
  std::string text(end - begin, '\0');
  file.read(begin, std::as_writable_bytes(std::span(text)));
  return text;
}

// What the file ends with, as a power cut or a partial copy leaves it, would spoil the next record:
// NULs, half a record, one without its line end.
void mend(const fs::path& path, RecordFile& to) {
  std::error_code error;
  if (path.string().starts_with("/dev/") || !fs::is_regular_file(path, error)) return;
  if (::access(path.c_str(), R_OK) != 0) return;
  const ReadFile file(path);
  const uint64_t size = file.size();
  if (size == 0) return;
  const std::string head = read_part(file, 0, std::min(size, kLongestLine));
  const std::string_view first = std::string_view(head).substr(0, head.find_first_of("\n\0", 0, 2));
  const bool is_line = first.size() < head.size() && head[first.size()] == '\n';
  const bool is_cut = !is_line && first.starts_with(kRecordBegin) && is_half_record(first);
  if (!is_metrics(first) && !is_cut)
    throw UserError(cat("cannot write metrics to '", path.string(),
                        "', which begins with something else: give another --metrics_file, or "
                        "remove that file"));
  uint64_t end = size;
  std::string tail;
  for (size_t nuls = 1; nuls > 0; end -= nuls) {
    tail = read_part(file, end - std::min(end, kLongestLine), end);
    nuls = tail.size() - (tail.find_last_not_of('\0') + 1);
  }
  const std::string_view last = std::string_view(tail).substr(tail.rfind('\n') + 1);
  const bool is_half = !last.empty() && is_half_record(last);
  if (is_half) end -= last.size();
  if (end < size) {
    fs::resize_file(path, end, error);
    if (error)
      throw UserError(cat("cannot write metrics to '", path.string(), "': ", error.message()));
    TESSERA_WARN(cat("'", path.string(), "' ended with half a record, which is cut off"));
  }
  if (!last.empty() && !is_half) to.append("\n");
}

}  // namespace

MetricsFile::MetricsFile(const fs::path& path) : file_(path, "metrics") { mend(path, file_); }

void MetricsFile::write(int64_t batch, const std::string& rest) {
  file_.append(cat("{\"time\":\"", utc_time(), "\",\"batch\":", batch, rest, "}\n"));
}

void MetricsFile::step(const StepReport& r) {
  last_batch_ = r.batch;
  write(
      r.batch,
      cat(",\"epoch\":", r.epoch, ",\"loss\":", number(r.loss),
          r.z_loss ? cat(",\"z_loss\":", number(*r.z_loss)) : "", ",\"learning_rate\":",
          number(r.learning_rate), ",\"gradient_norm\":", number(r.gradient_norm),
          r.loss_scale ? cat(",\"loss_scale\":", number(*r.loss_scale)) : "", ",\"ok\":", r.ok,
          ",\"samples\":", r.samples, ",\"tokens\":", r.tokens, ",\"tokens_seen\":", r.tokens_seen,
          ",\"step_seconds\":", number(r.step_seconds),
          ",\"data_seconds\":", number(r.data_seconds),
          r.exchange_seconds ? cat(",\"exchange_seconds\":", number(*r.exchange_seconds)) : "",
          r.batches_ready ? cat(",\"batches_ready\":", *r.batches_ready) : "",
          r.data_hash ? cat(",\"data_hash\":\"", hex(*r.data_hash), "\"") : "",
          ",\"tokens_per_second\":",
          number(per_second(static_cast<double>(r.tokens), r.step_seconds)),
          ",\"flops\":", number(r.flops), ",\"recomputed_flops\":", number(r.recomputed_flops),
          share(",\"mfu\":", model_flops_utilization(r)),
          share(",\"hfu\":", hardware_flops_utilization(r)), ",\"memory_bytes\":", r.memory_bytes));
}

void MetricsFile::validation(const ValidationReport& r) {
  write(r.batch, cat(",\"epoch\":", r.epoch, ",\"tokens_seen\":", r.tokens_seen,
                     ",\"validation_loss\":", number(r.loss),
                     ",\"validation_perplexity\":", number(r.perplexity)));
}

void MetricsFile::stragglers(const StragglerReport& r) {
  write(r.batch,
        cat(",\"slowest_rank\":", r.rank, ",\"slowest_host\":\"", r.host, "\",\"slowest_phase\":\"",
            r.phase, "\",\"slowest_seconds\":", number(r.seconds),
            ",\"others_seconds\":", number(r.median_seconds), ",\"straggler\":", r.is_straggler));
}

void MetricsFile::end(const EndReport& r) {
  if (!r.failed || !last_batch_) return;
  write(*last_batch_, cat(",\"failure\":", json_quoted(r.failure)));
}

}  // namespace tessera
