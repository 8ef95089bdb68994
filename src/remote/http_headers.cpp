#include "remote/http_headers.h"

#include <algorithm>
#include <chrono>

#include "base/parse_number.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr int64_t kLongestWait = int64_t{366} * 86400;

bool is_token_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

// Cuts `text` at the separators outside of "..." and <...>.
std::vector<std::string_view> split_outside_quotes(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  char until = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (until) {
      if (c == '\\' && until == '"') ++i;
      if (c == until) until = 0;
    } else if (c == '"' || c == '<') {
      until = c == '"' ? '"' : '>';
    } else if (c == separator) {
      parts.push_back(trim(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  parts.push_back(trim(text.substr(begin)));
  return parts;
}

std::string_view without_quotes(std::string_view text) {
  bool quoted = text.size() >= 2 && text.front() == '"' && text.back() == '"';
  return quoted ? text.substr(1, text.size() - 2) : text;
}

}  // namespace

const std::string* find_header(const HttpHeaders& headers, std::string_view name) {
  auto found = std::ranges::find(headers, name, &HttpHeaders::value_type::first);
  return found == headers.end() ? nullptr : &found->second;
}

bool add_header_line(HttpHeaders& headers, std::string_view line) {
  size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  if (!std::ranges::all_of(line.substr(0, colon), is_token_character)) return false;
  headers.emplace_back(lower(line.substr(0, colon)), trim(line.substr(colon + 1)));
  return true;
}

std::optional<ContentRange> parse_content_range(std::string_view value) {
  value = trim(value);
  if (lower(value.substr(0, 6)) != "bytes ") return {};
  value = trim(value.substr(6));
  size_t slash = value.find('/');
  if (slash == std::string_view::npos) return {};
  std::string_view part = value.substr(0, slash), total = value.substr(slash + 1);
  ContentRange range;
  if (total != "*" && !(range.total = parse_number<uint64_t>(total))) return {};
  if (part == "*") return range.total ? std::optional(range) : std::nullopt;
  size_t dash = part.find('-');
  if (dash == std::string_view::npos) return {};
  range.first = parse_number<uint64_t>(part.substr(0, dash));
  range.last = parse_number<uint64_t>(part.substr(dash + 1));
  if (!range.first || !range.last || *range.first > *range.last) return {};
  if (range.total && *range.last >= *range.total) return {};
  return range;
}

std::optional<int64_t> parse_http_date(std::string_view value) {
  constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
  if (value.size() != 29 || value.substr(3, 2) != ", " || !value.ends_with(" GMT")) return {};
  for (size_t i : {7u, 11u, 16u}) {
    if (value[i] != ' ') return {};
  }
  if (value[19] != ':' || value[22] != ':') return {};
  auto day = parse_number<uint64_t>(value.substr(5, 2)),
       year = parse_number<uint64_t>(value.substr(12, 4)),
       hour = parse_number<uint64_t>(value.substr(17, 2)),
       minute = parse_number<uint64_t>(value.substr(20, 2)),
       second = parse_number<uint64_t>(value.substr(23, 2));
  size_t month = kMonths.find(value.substr(8, 3));
  if (!day || !year || !hour || !minute || !second || month == std::string_view::npos ||
      month % 3 != 0 || *hour > 23 || *minute > 59 || *second > 60)
    return {};
  std::chrono::year_month_day date{std::chrono::year(static_cast<int>(*year)),
                                   std::chrono::month(static_cast<unsigned>(month / 3 + 1)),
                                   std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok()) return {};
  int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return days * 86400 + static_cast<int64_t>(*hour * 3600 + *minute * 60 + *second);
}

std::optional<int64_t> parse_retry_after(std::string_view value, int64_t now) {
  value = trim(value);
  if (auto seconds = parse_number<uint64_t>(value))
    return static_cast<int64_t>(std::min<uint64_t>(*seconds, kLongestWait));
  auto date = parse_http_date(value);
  if (!date) return {};
  return std::clamp<int64_t>(*date - now, 0, kLongestWait);
}

std::optional<int64_t> parse_rate_limit(std::string_view value) {
  std::optional<int64_t> wait;
  for (std::string_view policy : split_outside_quotes(value, ',')) {
    std::optional<uint64_t> remaining, time;
    for (std::string_view parameter : split_outside_quotes(policy, ';')) {
      if (parameter.starts_with("r=")) remaining = parse_number<uint64_t>(parameter.substr(2));
      if (parameter.starts_with("t=")) time = parse_number<uint64_t>(parameter.substr(2));
    }
    if (remaining != 0u || !time) continue;
    auto seconds = static_cast<int64_t>(std::min<uint64_t>(*time, kLongestWait));
    wait = std::max(wait.value_or(0), seconds);
  }
  return wait;
}

std::optional<std::string> parse_next_link(std::string_view value) {
  for (std::string_view link : split_outside_quotes(value, ',')) {
    auto parts = split_outside_quotes(link, ';');
    std::string_view target = parts[0];
    if (target.size() < 3 || target.front() != '<' || target.back() != '>') continue;
    for (std::string_view parameter : std::span(parts).subspan(1)) {
      size_t equals = parameter.find('=');
      if (equals == std::string_view::npos) continue;
      if (lower(trim(parameter.substr(0, equals))) != "rel") continue;
      // The first rel counts; it may name several relations.
      auto relations = split(without_quotes(trim(parameter.substr(equals + 1))), ' ');
      bool next =
          std::ranges::any_of(relations, [](auto relation) { return lower(relation) == "next"; });
      if (next) return std::string(target.substr(1, target.size() - 2));
      break;
    }
  }
  return {};
}

std::string parse_etag(std::string_view value) {
  value = trim(value);
  bool weak = value.starts_with("W/");
  if (weak) value.remove_prefix(2);
  if (value.size() < 3 || value.front() != '"' || value.back() != '"') return "";
  std::string_view tag = value.substr(1, value.size() - 2);
  bool printable =
      std::ranges::all_of(tag, [](char c) { return c > 0x20 && c < 0x7f && c != '"'; });
  if (!printable || tag.size() > 512) return "";
  return cat(weak ? "W/" : "", tag);
}

}  // namespace tessera
