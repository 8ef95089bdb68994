#include "profile/trace_reader.h"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/interruption.h"
#include "base/text.h"
#include "profile/clock_alignment.h"

namespace tessera {
namespace {

namespace json = simdjson::dom;

// Far beyond what clocks say, in microseconds; sums of some in nanoseconds fit into 64 bits.
constexpr double kLargest = 2e14;
constexpr int64_t kMostRanks = 1 << 20;
// Of a buffer; and how many of them a list may have.
constexpr int64_t kMostBytes = int64_t{1} << 50;
constexpr size_t kMostBuffers = 1000;

class Reader {
 public:
  explicit Reader(const ByteSource& file) : name_(file.name()) {
    simdjson::padded_string text(file.size());
    if (file.size() > 0) file.read(0, std::as_writable_bytes(std::span(text.data(), text.size())));
    json::object root;
    if (const auto error = parser_.parse(text).get(root); error != simdjson::SUCCESS)
      refuse(simdjson::error_message(error));
    json::object own;
    if (root["tessera"].get(own) != simdjson::SUCCESS || integer(own, "version", 0, 1 << 20) != 1)
      refuse("it has no \"tessera\" of version 1");
    for (const json::element rank : array(own, "ranks")) take_rank(object(rank));
    for (const json::element event : array(root, "traceEvents")) take_event(object(event));
    for (auto& [rank, place] : ranks_) set_steps(traces_[place]);
  }

  std::vector<RankTrace> take() { return std::move(traces_); }

 private:
  [[noreturn]] void refuse(const std::string& reason) const {
    throw UserError(cat("'", name_, "' is no trace that --use_profiler wrote: ", reason));
  }

  json::object object(json::element element) const {
    json::object result;
    if (element.get(result) != simdjson::SUCCESS) refuse("an object is missing");
    return result;
  }
  json::array array(json::object from, const char* key) const {
    json::array result;
    if (from[key].get(result) != simdjson::SUCCESS) refuse(cat("no list \"", key, "\""));
    return result;
  }
  double number(json::object from, const char* key, std::optional<double> otherwise = {}) const {
    double value = 0;
    const auto error = from[key].get(value);
    if (error == simdjson::NO_SUCH_FIELD && otherwise) return *otherwise;
    if (error != simdjson::SUCCESS || !(std::abs(value) <= kLargest))
      refuse(cat("\"", key, "\" is missing or no number"));
    return value;
  }
  // Of costs: any size.
  double amount(json::object from, const char* key) const {
    double value = 0;
    return from[key].get(value) == simdjson::SUCCESS && value >= 0 ? value : 0;
  }
  int64_t integer(json::object from, const char* key, int64_t least, int64_t most) const {
    int64_t value = 0;
    if (from[key].get(value) != simdjson::SUCCESS || value < least || value > most)
      refuse(cat("\"", key, "\" is missing or out of range"));
    return value;
  }
  std::string text(json::object from, const char* key) const {
    std::string_view value;
    return from[key].get(value) == simdjson::SUCCESS ? std::string(value) : std::string();
  }
  int64_t nanoseconds(json::object from, const char* key) const {
    return static_cast<int64_t>(std::llround(number(from, key) * 1e3));
  }

  std::vector<LiveBuffer> buffers(json::object from, const char* key) const {
    std::vector<LiveBuffer> list;
    for (const json::element element : array(from, key)) {
      if (list.size() == kMostBuffers) refuse(cat("\"", key, "\" is too long"));
      const json::object buffer = object(element);
      list.push_back({text(buffer, "name"), integer(buffer, "bytes", 0, kMostBytes)});
    }
    return list;
  }

  void take_rank(json::object from) {
    RankTrace trace;
    trace.rank = integer(from, "rank", 0, kMostRanks);
    trace.world_size = integer(from, "world_size", trace.rank + 1, kMostRanks + 1);
    trace.host = text(from, "host");
    trace.run = text(from, "run");
    trace.first_step = integer(from, "first_step", 0, int64_t{1} << 60);
    trace.lost = integer(from, "lost", 0, int64_t{1} << 60);
    trace.state = buffers(from, "state");
    for (const json::element element : array(from, "peaks")) {
      const json::object peak = object(element);
      trace.peaks.push_back({text(peak, "program"), text(peak, "at"),
                             integer(peak, "bytes", 0, kMostBytes), buffers(peak, "live")});
    }
    std::vector<ClockOffset> clock;
    for (const json::element element : array(from, "clock")) {
      const json::object offset = object(element);
      clock.push_back({nanoseconds(offset, "at_us"), nanoseconds(offset, "offset_us"),
                       nanoseconds(offset, "error_us")});
      trace.clock_error =
          std::max(trace.clock_error, static_cast<double>(clock.back().error) * 1e-9);
    }
    if (clock.size() > 2) refuse("\"clock\" has more than two entries");
    if (!ranks_.emplace(trace.rank, traces_.size()).second) refuse("a rank stands in it twice");
    traces_.push_back(std::move(trace));
    clocks_.push_back(std::move(clock));
  }

  void take_event(json::object from) {
    if ((++events_ & 0xFFFF) == 0) check_interruption();
    const std::string ph = text(from, "ph");
    if (ph != "X" && ph != "C") return;
    const auto found = ranks_.find(integer(from, "pid", 0, kMostRanks));
    if (found == ranks_.end()) refuse("an event is of a rank that it does not name");
    RankTrace& trace = traces_[found->second];
    const int64_t at = nanoseconds(from, "ts");
    auto aligned = [&](int64_t time) { return aligned_time(time, clocks_[found->second]); };
    json::object arguments;
    if (from["args"].get(arguments) != simdjson::SUCCESS) refuse("an event has no \"args\"");
    if (ph == "C") {
      trace.memory.push_back({aligned(at), integer(arguments, "live", 0, kMostBytes)});
      return;
    }
    static const std::map<std::string, TraceEvent::Kind> kKinds{
        {"user_annotation", TraceEvent::Kind::kStep},
        {"data", TraceEvent::Kind::kData},
        {"cpu_op", TraceEvent::Kind::kOp},
        {"begin", TraceEvent::Kind::kBegin},
        {"wait", TraceEvent::Kind::kWait},
        {"exchange", TraceEvent::Kind::kExchange}};
    const auto kind = kKinds.find(text(from, "cat"));
    if (kind == kKinds.end()) return;
    TraceEvent event;
    event.kind = kind->second;
    event.lane = integer(from, "tid", 0, 1 << 20);
    const double duration = number(from, "dur");
    if (duration < 0) refuse("\"dur\" is negative");
    event.begin = aligned(at);
    event.end = event.begin + static_cast<int64_t>(std::llround(duration * 1e3));
    if (event.kind == TraceEvent::Kind::kStep) {
      event.step = integer(arguments, "step", 0, int64_t{1} << 60);
    } else if (event.kind != TraceEvent::Kind::kData) {
      event.op = text(arguments, "op");
      event.phase = text(arguments, "phase");
      event.scope = text(arguments, "scope");
      event.program = text(arguments, "program");
      event.layer = static_cast<int64_t>(std::clamp(number(arguments, "layer", -1), -1.0, 1e9));
      event.flops = amount(arguments, "flops");
      event.bytes =
          amount(arguments, event.kind == TraceEvent::Kind::kExchange ? "bytes_sent" : "bytes");
      event.light_seconds = amount(arguments, "light_us") * 1e-6;
      event.ranks = text(arguments, "ranks");
      event.axes = text(arguments, "axes");
      event.sequence =
          static_cast<int64_t>(std::clamp(number(arguments, "sequence", -1), -1.0, 1e15));
    }
    trace.events.push_back(std::move(event));
  }

  static void set_steps(RankTrace& trace) {
    std::map<int64_t, const TraceEvent*> steps;  // by begin
    for (const TraceEvent& event : trace.events)
      if (event.kind == TraceEvent::Kind::kStep) steps[event.begin] = &event;
    for (TraceEvent& event : trace.events) {
      if (event.kind == TraceEvent::Kind::kStep) continue;
      const auto behind = steps.upper_bound(event.begin);
      if (behind == steps.begin()) continue;
      const TraceEvent& step = *std::prev(behind)->second;
      if (event.begin < step.end || event.begin == step.begin) event.step = step.step;
    }
  }

  std::string name_;
  json::parser parser_;
  std::vector<RankTrace> traces_;
  std::vector<std::vector<ClockOffset>> clocks_;  // of each of them
  std::map<int64_t, size_t> ranks_;
  int64_t events_ = 0;
};

}  // namespace

std::vector<RankTrace> read_trace(const ByteSource& file) { return Reader(file).take(); }

std::vector<std::filesystem::path> trace_files(std::span<const std::string> paths) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.emplace_back(path);
      continue;
    }
    const size_t before = files.size();
    for (const auto& entry : fs::directory_iterator(path)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("rank") && name.ends_with(".pt.trace.json"))
        files.push_back(entry.path());
    }
    if (files.size() == before)
      throw UserError(cat("there is no trace in '", path,
                          "': give the --profile_dir of a run with --use_profiler"));
    // Rank 10 behind rank 2.
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end(),
              [](const fs::path& a, const fs::path& b) {
                const std::string x = a.filename().string(), y = b.filename().string();
                return x.size() != y.size() ? x.size() < y.size() : x < y;
              });
  }
  return files;
}

std::vector<RankTrace> read_traces(std::span<const std::string> paths) {
  std::vector<RankTrace> all;
  std::set<std::pair<int64_t, int64_t>> seen;
  const std::vector<std::filesystem::path> files = trace_files(paths);
  for (const std::filesystem::path& file : files) {
    for (RankTrace& trace : read_trace(ReadFile(file))) {
      if (!all.empty() && trace.world_size != all[0].world_size)
        throw UserError(cat("'", file.string(), "' is of a job of ", trace.world_size,
                            " ranks, another trace of one of ", all[0].world_size,
                            ": give the traces of one run"));
      if (!all.empty() && trace.run != all[0].run)
        throw UserError(
            cat("'", file.string(), "' is of another run than '", files[0].string(),
                "': give the files of one run, or each run a --profile_dir of its own"));
      if (!seen.emplace(trace.first_step, trace.rank).second)
        throw UserError(cat("rank ", trace.rank, " from step ", trace.first_step,
                            " on is there twice, again in '", file.string(),
                            "': give a merged trace or those that it is made of"));
      all.push_back(std::move(trace));
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const RankTrace& a, const RankTrace& b) {
    return std::pair(a.first_step, a.rank) < std::pair(b.first_step, b.rank);
  });
  return all;
}

}  // namespace tessera
