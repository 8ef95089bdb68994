#include "base/text.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <utility>

namespace tessera {

std::string format(const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  va_list again;
  va_copy(again, args);
  int n = std::vsnprintf(nullptr, 0, pattern, args);
  va_end(args);
  std::string s(n > 0 ? static_cast<size_t>(n) : 0, '\0');
  std::vsnprintf(s.data(), s.size() + 1, pattern, again);
  va_end(again);
  return s;
}

std::string some_of(std::span<const std::string> items) {
  const auto shown = items.first(std::min<size_t>(items.size(), 5));
  const size_t more = items.size() - shown.size();
  return cat(join(shown, ", "), more > 0 ? cat(" and ", more, " more") : "");
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  for (;;) {
    size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::string_view take_line(std::string_view& text) {
  size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\v\f";
  size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::string lower(std::string_view text) {
  std::string s(text);
  for (char& c : s) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return s;
}

std::string format_bytes(int64_t bytes) {
  if (bytes < 0) return "-" + format_bytes(-bytes);
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? format("%lld B", static_cast<long long>(bytes))
                   : format("%.*f %s", value < 10 ? 2 : 1, value, kUnits[unit]);
}

std::string format_count(double n) {
  constexpr const char* kUnits[] = {"", " K", " M", " B", " T"};
  int unit = 0;
  while (std::abs(n) >= 1000 && unit < 4) {
    n /= 1000;
    ++unit;
  }
  return unit == 0 ? format("%.0f", n) : format("%.2f%s", n, kUnits[unit]);
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  long long s = std::llround(seconds);
  if (s >= 3600) return format("%lldh%02lldm", s / 3600, s / 60 % 60);
  if (s >= 60) return format("%lldm%02llds", s / 60, s % 60);
  return format("%llds", s);
}

namespace {

// Insertions, deletions, substitutions and swaps of neighbours that turn one into the other.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j - 1] + (a[i - 1] != b[j - 1]), last[j] + 1, row[j - 1] + 1});
      bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  size_t best_distance = ~size_t{0};
  std::string best;
  for (const std::string& candidate : candidates) {
    size_t distance = edit_distance(word, candidate);
    size_t limit = std::max<size_t>(1, std::max(word.size(), candidate.size()) / 3);
    if (distance <= limit && distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace tessera
