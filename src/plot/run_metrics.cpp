#include "plot/run_metrics.h"

#include <simdjson.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/interruption.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr size_t kLongestLine = 1 << 20;

// Where a step is, or is to be.
std::ptrdiff_t place_of(const Series& series, double step) {
  return std::ranges::lower_bound(series.steps, step) - series.steps.begin();
}

void forget_from(Series& series, double step) {
  const auto kept = static_cast<size_t>(place_of(series, step));
  series.steps.resize(kept);
  series.values.resize(kept);
}

// Almost always behind all others.
void put(Series& series, double step, double value) {
  const std::ptrdiff_t place = place_of(series, step);
  const auto at = series.steps.begin() + place;
  if (at != series.steps.end() && *at == step) {
    series.values[static_cast<size_t>(place)] = value;
  } else {
    series.steps.insert(at, step);
    series.values.insert(series.values.begin() + place, value);
  }
}

}  // namespace

RunMetrics::RunMetrics(const ByteSource& file, std::span<const std::string> keys) {
  std::string text;
  int64_t number = 0;
  for (uint64_t at = 0; at < file.size();) {
    check_interruption();
    const size_t kept = text.size();
    const uint64_t bytes = std::min<uint64_t>(file.size() - at, kLongestLine);
    text.resize(kept + bytes);
    file.read(at, std::as_writable_bytes(std::span(text).subspan(kept)));
    at += bytes;
    size_t begin = 0;
    for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const std::string where = cat("'", file.name(), "', line ", ++number);
      take(std::string_view(text).substr(begin, end - begin), keys, where);
    }
    text.erase(0, begin);
    if (text.size() > kLongestLine)
      throw UserError(cat("'", file.name(), "', line ", number + 1,
                          " is longer than 1 MiB: this is no file of --metrics_file"));
  }
}

void RunMetrics::take(std::string_view line, std::span<const std::string> keys,
                      const std::string& where) {
  if (trim(line).empty()) return;
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  int64_t batch = 0;
  if (parser.parse(simdjson::padded_string(line)).get(object) != simdjson::SUCCESS ||
      object["batch"].get(batch) != simdjson::SUCCESS || batch < 0)
    throw UserError(
        cat(where, " is not one that --metrics_file wrote: give a file of that option"));
  const double step = static_cast<double>(batch) + 1;
  // A step that does not follow the last one is done again, or of a new run.
  if (object["loss"].error() == simdjson::SUCCESS) {
    if (batch <= last_step_)
      for (auto& [name, series] : series_) forget_from(series, step);
    last_step_ = batch;
  }
  for (const auto& [key, value] : object) {
    double number = std::numeric_limits<double>::quiet_NaN();
    if (value.get(number) != simdjson::SUCCESS && !value.is_null()) continue;
    const std::string name(key);
    seen_.insert(name);
    if (std::ranges::find(keys, name) != keys.end()) put(series_[name], step, number);
  }
}

Series RunMetrics::series(const std::string& key) const {
  const auto found = series_.find(key);
  Series series = found == series_.end() ? Series() : found->second;
  series.name = key;
  return series;
}

}  // namespace tessera
