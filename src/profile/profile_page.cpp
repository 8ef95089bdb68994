#include "profile/profile_page.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/json_text.h"
#include "base/markup.h"
#include "base/text.h"
#include "profile/exchange_arrivals.h"
#include "profile/instruction_text.h"
#include "profile/page_script.h"

namespace tessera {
namespace {

// In a script no text may look like the end of it.
std::string in_script(std::string_view text) {
  std::string result;
  for (const char c : json_quoted(text)) {
    if (c == '<')
      result += "\\u003c";
    else
      result += c;
  }
  return result;
}

// What the script draws, as JSON: each text once, times in microseconds from the first.
class PageData {
 public:
  explicit PageData(std::span<const RankTrace> traces) {
    origin_ = std::numeric_limits<int64_t>::max();
    for (const RankTrace& trace : traces)
      for (const TraceEvent& event : trace.events) origin_ = std::min(origin_, event.begin);
    std::string ranks;
    for (const RankTrace& trace : traces) ranks += cat(ranks.empty() ? "" : ",\n", of(trace));
    std::string texts;
    for (const std::string* text : texts_) texts += cat(texts.empty() ? "" : ",", in_script(*text));
    json_ = cat("{\"texts\":[", texts, "],\n\"ranks\":[", ranks, "],\n\"arrows\":[", arrows(traces),
                "]}");
  }
  const std::string& json() const { return json_; }

 private:
  size_t number(const std::string& text) {
    const auto [at, added] = numbers_.emplace(text, texts_.size());
    if (added) texts_.push_back(&at->first);
    return at->second;
  }
  std::string us(int64_t time) const {
    return format("%.3f", static_cast<double>(time - origin_) * 1e-3);
  }

  std::string of(const RankTrace& trace) {
    std::string events, memory, peaks;
    for (const TraceEvent& e : trace.events) {
      // Kind, begin, duration, step, then texts and numbers of what it is.
      events += cat(
          events.empty() ? "" : ",", "[", static_cast<int>(e.kind), ",", us(e.begin), ",",
          format("%.3f", static_cast<double>(e.end - e.begin) * 1e-3), ",", e.step, ",",
          number(e.op), ",", number(e.phase), ",", number(e.scope), ",", number(e.program), ",",
          format("%.6g,%.6g,%.6g,", e.flops, e.bytes, e.light_seconds * 1e6), number(e.ranks), "]");
    }
    for (const TraceMemory& m : trace.memory)
      memory += cat(memory.empty() ? "" : ",", "[", us(m.at), ",", m.live, "]");
    for (const TracePeak& peak : trace.peaks) {
      std::string live;
      for (const LiveBuffer& buffer : peak.live)
        live += cat(live.empty() ? "" : ",", "[", number(buffer.name), ",", buffer.bytes, "]");
      peaks +=
          cat(peaks.empty() ? "" : ",", "{\"program\":", in_script(peak.program),
              ",\"at\":", in_script(peak.at), ",\"bytes\":", peak.bytes, ",\"live\":[", live, "]}");
    }
    int64_t state = 0;
    for (const LiveBuffer& buffer : trace.state) state += buffer.bytes;
    return cat("{\"rank\":", trace.rank, ",\"host\":", in_script(trace.host), ",\"state\":", state,
               ",\"events\":[", events, "],\n\"memory\":[", memory, "],\n\"peaks\":[", peaks, "]}");
  }

  // From who came last to an exchange to who waited: trace, time, trace, time.
  std::string arrows(std::span<const RankTrace> traces) const {
    const auto last = last_arrivals(traces);
    std::map<std::pair<int64_t, int64_t>, size_t> places;
    for (size_t i = 0; i < traces.size(); ++i) places[{traces[i].first_step, traces[i].rank}] = i;
    std::string text;
    for (size_t i = 0; i < traces.size(); ++i) {
      for (const TraceEvent& event : traces[i].events) {
        if (event.kind != TraceEvent::Kind::kExchange) continue;
        const auto found = last.find(key_of(traces[i], event));
        if (found == last.end() || found->second.rank == traces[i].rank) continue;
        text +=
            cat(text.empty() ? "" : ",", "[", places.at({traces[i].first_step, found->second.rank}),
                ",", us(found->second.begin), ",", i, ",",
                us(std::clamp(found->second.begin, event.begin, event.end)), "]");
      }
    }
    return text;
  }

  int64_t origin_ = 0;
  std::map<std::string, size_t> numbers_;
  std::vector<const std::string*> texts_;
  std::string json_;
};

}  // namespace

std::string profile_page(std::span<const RankTrace> traces, const ProfileReport& report) {
  constexpr size_t kRows = 100;
  return cat(page_head(cat("tessera profile: steps ", report.first_step, " to ", report.last_step)),
             kPageBody, "<pre>", escape_markup(report_text(report, kRows)),
             "</pre>\n<script>\n\"use strict\";\nconst data = ", PageData(traces).json(), ";\n",
             kPageScript, "</script>\n</body></html>\n");
}

}  // namespace tessera
