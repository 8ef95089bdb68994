#include "profile/trace_merge.h"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/interruption.h"
#include "base/text.h"
#include "profile/clock_alignment.h"
#include "profile/exchange_arrivals.h"
#include "profile/trace_reader.h"

namespace tessera {
namespace {

constexpr size_t kWrittenAtOnce = 1 << 20;

// Microseconds, to the nanosecond; also of what was before rank 0's clock began.
std::string us(int64_t nanoseconds) {
  const long long whole = std::abs(nanoseconds) / 1000, rest = std::abs(nanoseconds) % 1000;
  return format("%s%lld.%03lld", nanoseconds < 0 ? "-" : "", whole, rest);
}

class Merger {
 public:
  Merger(std::span<const std::string> paths, const std::filesystem::path& to)
      : files_(trace_files(paths)), traces_(read_traces(paths)), out_(to) {
    for (const RankTrace& trace : traces_) {
      if (trace.first_step != traces_[0].first_step)
        throw UserError(cat("there are traces from step ", traces_[0].first_step, " and from step ",
                            trace.first_step, " on: give the files of one cycle, as in rank*.",
                            traces_[0].first_step, ".pt.trace.json"));
    }
  }

  MergedTraces merge() {
    text_ = "{\"displayTimeUnit\":\"ms\",\n\"tessera\":{\"version\":1,\"ranks\":[";
    bool first = true;
    each_file([&](simdjson::dom::object root) {
      for (simdjson::dom::element rank : simdjson::dom::array(root["tessera"]["ranks"])) {
        text_ += first ? "\n" : ",\n";
        first = false;
        copy_rank(simdjson::dom::object(rank));
      }
    });
    text_ += "]},\n\"traceEvents\":[\n";
    each_file([&](simdjson::dom::object root) {
      for (simdjson::dom::element event : simdjson::dom::array(root["traceEvents"]))
        copy_event(simdjson::dom::object(event));
    });
    MergedTraces result{traces_.size(), draw_arrows()};
    text_ += "\n]}\n";
    out_.write(text_);
    out_.commit();
    return result;
  }

 private:
  // read_traces() has found that they are what they should be.
  template <class F>
  void each_file(F f) {
    for (const std::filesystem::path& file : files_) {
      check_interruption();
      simdjson::dom::parser parser;
      simdjson::dom::element root;
      const auto error = parser.parse(simdjson::padded_string(read_file(file))).get(root);
      if (error != simdjson::SUCCESS || !root.is_object())
        throw UserError(cat("'", file.string(), "' has changed while it was read"));
      clocks_ = clocks_of(root);
      f(simdjson::dom::object(root));
    }
  }

  static std::map<int64_t, std::vector<ClockOffset>> clocks_of(simdjson::dom::element root) {
    std::map<int64_t, std::vector<ClockOffset>> clocks;
    for (simdjson::dom::element rank : simdjson::dom::array(root["tessera"]["ranks"])) {
      std::vector<ClockOffset>& list = clocks[int64_t(rank["rank"])];
      for (simdjson::dom::element offset : simdjson::dom::array(rank["clock"]))
        list.push_back({nanoseconds(offset["at_us"]), nanoseconds(offset["offset_us"]),
                        nanoseconds(offset["error_us"])});
    }
    return clocks;
  }
  static int64_t nanoseconds(double microseconds) { return std::llround(microseconds * 1e3); }

  // All fields but its clock, of which the error stays.
  void copy_rank(simdjson::dom::object rank) {
    int64_t error = 0;
    for (const ClockOffset& offset : clocks_[int64_t(rank["rank"])])
      error = std::max(error, offset.error);
    text_ += "{";
    for (const auto field : rank)
      if (field.key != "clock")
        text_ += cat("\"", field.key, "\":", simdjson::minify(field.value), ",");
    text_ += cat("\"clock\":[{\"at_us\":0,\"offset_us\":0,\"error_us\":", us(error), "}]}");
  }

  void copy_event(simdjson::dom::object event) {
    std::string line;
    for (const auto field : event) {
      line += cat(line.empty() ? "{" : ",", "\"", field.key, "\":");
      line +=
          field.key == "ts"
              ? us(aligned_time(nanoseconds(double(field.value)), clocks_[int64_t(event["pid"])]))
              : std::string(simdjson::minify(field.value));
    }
    put(line + "}");
  }

  size_t draw_arrows() {
    size_t arrows = 0;
    const auto last = last_arrivals(traces_);
    std::map<ExchangeKey, int64_t> lane;
    for (const RankTrace& trace : traces_)
      for (const TraceEvent& event : trace.events)
        if (event.kind == TraceEvent::Kind::kExchange) lane[key_of(trace, event)] = event.lane;
    for (const RankTrace& trace : traces_) {
      for (const TraceEvent& event : trace.events) {
        if (event.kind != TraceEvent::Kind::kExchange) continue;
        const auto found = last.find(key_of(trace, event));
        if (found == last.end() || found->second.rank == trace.rank) continue;
        const std::string arrow =
            cat("\"name\":\"last to come\",\"cat\":\"exchange\",\"id\":", ++arrows);
        const int64_t arrives =
            std::clamp(found->second.begin, event.begin, std::max(event.begin, event.end - 1));
        put(cat("{\"ph\":\"s\",", arrow, ",\"pid\":", found->second.rank,
                ",\"tid\":", lane[found->first], ",\"ts\":", us(found->second.begin), "}"));
        put(cat("{\"ph\":\"f\",\"bp\":\"e\",", arrow, ",\"pid\":", trace.rank,
                ",\"tid\":", event.lane, ",\"ts\":", us(arrives), "}"));
      }
    }
    return arrows;
  }

  void put(const std::string& event) {
    if (any_) text_ += ",\n";
    any_ = true;
    text_ += event;
    if (text_.size() < kWrittenAtOnce) return;
    out_.write(text_);
    text_.clear();
  }

  std::vector<std::filesystem::path> files_;
  std::vector<RankTrace> traces_;
  AtomicFile out_;
  std::string text_;  // not written yet
  bool any_ = false;
  std::map<int64_t, std::vector<ClockOffset>> clocks_;  // of the ranks of the file that is read
};

}  // namespace

MergedTraces merge_traces(std::span<const std::string> paths, const std::filesystem::path& to) {
  return Merger(paths, to).merge();
}

}  // namespace tessera
