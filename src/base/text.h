#pragma once
#include <charconv>
#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

namespace detail {
inline void append(std::string& s, std::string_view v) { s.append(v); }
inline void append(std::string& s, const char* v) { s.append(v); }
inline void append(std::string& s, const std::string& v) { s.append(v); }
inline void append(std::string& s, char v) { s.push_back(v); }
inline void append(std::string& s, bool v) { s.append(v ? "true" : "false"); }
template <std::integral T>
void append(std::string& s, T v) {
  char buffer[24];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, v).ptr;
  s.append(buffer, end);
}
// Shortest decimal that reads back as the same number.
template <std::floating_point T>
void append(std::string& s, T v) {
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, v).ptr;
  s.append(buffer, end);
}
}  // namespace detail

// Joins its arguments into one string: cat("layer ", 3, ": ", 0.5).
template <class... T>
std::string cat(const T&... parts) {
  std::string s;
  (detail::append(s, parts), ...);
  return s;
}

template <class Range>
std::string join(const Range& items, std::string_view separator) {
  std::string s;
  bool first = true;
  for (const auto& item : items) {
    if (!first) s.append(separator);
    first = false;
    detail::append(s, item);
  }
  return s;
}

// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

// The first five: "a, b, c, d, e and 3 more".
std::string some_of(std::span<const std::string> items);
std::vector<std::string_view> split(std::string_view text, char separator);
// Removes the first line from `text` and returns it without its end, LF or CR LF.
std::string_view take_line(std::string_view& text);
std::string_view trim(std::string_view text);
std::string lower(std::string_view text);

// "1.50 GiB", "640.0 MiB", "12 B": binary units.
std::string format_bytes(int64_t bytes);
// "6.89 B", "124.44 M", "831": decimal units.
std::string format_count(double n);
// "1h02m", "3m05s", "12s"
std::string format_duration(double seconds);

// The candidate with the smallest edit distance to `word` (swapped neighbours count once), or "" if
// none is close enough to be what the user meant (distance at most a third of the longer word, at
// least 1).
std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace tessera
