#include "launch/repeated_warnings.h"

#include <algorithm>

#include "base/text.h"

namespace tessera {
namespace {

// What ranks notice together they say within this time.
constexpr std::chrono::milliseconds kTogether{500};
constexpr std::chrono::seconds kQuiet{60};
// Different warnings that are kept in mind.
constexpr size_t kMost = 1000;

// "2026-01-31 12:00:00 W [file.cpp:12] message" without the time; "" for other lines.
std::string_view warning_of(std::string_view line) {
  constexpr size_t kStamp = 20;  // "2026-01-31 12:00:00 "
  const bool is_one = line.size() > kStamp + 3 && line[4] == '-' && line[13] == ':' &&
                      line.substr(kStamp, 3) == "W [";
  return is_one ? line.substr(kStamp) : "";
}

}  // namespace

bool RepeatedWarnings::take(int rank, std::string_view line, TimePoint now) {
  const std::string_view text = warning_of(line);
  if (text.empty()) return false;
  auto found = warnings_.find(text);
  if (found == warnings_.end()) {
    if (warnings_.size() >= kMost) return false;
    found = warnings_.emplace(text, Warning{}).first;
  }
  Warning& warning = found->second;
  if (warning.times++ == 0) {
    warning.rank = rank;
    warning.line = line;
    warning.number = ++count_;
    if (!warning.shown) warning.due = now + kTogether;
  }
  warning.ranks.insert(rank);
  return true;
}

void RepeatedWarnings::release(int rank, TimePoint now) {
  for (auto& [text, warning] : warnings_)
    if (warning.ranks.contains(rank)) warning.due = std::min(warning.due, now);
}

std::vector<std::string> RepeatedWarnings::due(TimePoint now, bool all) {
  std::map<int64_t, std::string> in_order;
  for (auto at = warnings_.begin(); at != warnings_.end();) {
    Warning& warning = at->second;
    const bool ends = all || now >= warning.due;
    if (warning.times == 0) {
      // After a quiet minute it is new again.
      at = ends ? warnings_.erase(at) : std::next(at);
      continue;
    }
    if (ends) {
      std::string count;
      if (warning.ranks.size() > 1) count = cat(" (on ", warning.ranks.size(), " ranks)");
      if (warning.times > static_cast<int>(warning.ranks.size()) || warning.shown)
        count =
            cat(" (", warning.times, warning.shown ? " times more" : " times",
                warning.ranks.size() > 1 ? cat(", on ", warning.ranks.size(), " ranks") : "", ")");
      in_order[warning.number] = cat("[rank ", warning.rank, "] ", warning.line, count);
      warning.ranks.clear();
      warning.times = 0;
      warning.shown = true;
      warning.due = now + kQuiet;
    }
    ++at;
  }
  std::vector<std::string> lines;
  for (auto& [number, line] : in_order) lines.push_back(std::move(line));
  return lines;
}

RepeatedWarnings::TimePoint RepeatedWarnings::next() const {
  TimePoint first = TimePoint::max();
  for (const auto& [text, warning] : warnings_)
    if (warning.times > 0) first = std::min(first, warning.due);
  return first;
}

}  // namespace tessera
