#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "options/option_table.h"
#include "remote/url.h"

// From the words of the command line to a checked field.
namespace tessera {
namespace {

// Values stand in messages; a whole file pasted by mistake should not.
std::string shown(std::string_view value) {
  return value.size() <= 80 ? cat("'", value, "'") : cat("'", value.substr(0, 77), "...'");
}

std::string_view without_quotes(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') &&
      text.front() == text.back()) {
    return text.substr(1, text.size() - 2);
  }
  return text;
}

std::string_view unquoted(std::string_view text) { return without_quotes(trim(text)); }

bool is_none(std::string_view text) { return lower(text) == "none"; }

std::optional<double> parse_real(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto value = parse_number<double>(text);
  return value && !std::isnan(*value) ? value : std::nullopt;
}

// Also "2e6" and "1.0": a number in any notation that is an integer below 2^53.
std::optional<int64_t> parse_integer(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  if (auto value = parse_number<int64_t>(text)) return value;
  auto number = parse_real(text);
  if (!number || std::abs(*number) >= 0x1p53 || *number != std::floor(*number)) return std::nullopt;
  return static_cast<int64_t>(*number);
}

// "80GiB", "512 MB", "1.5g", "1000": one letter alone means a power of 1024.
std::optional<int64_t> parse_bytes(std::string_view text) {
  if (auto plain = parse_integer(text)) return plain;
  size_t digits = text.find_first_not_of("0123456789.");
  auto number = parse_real(text.substr(0, digits));
  if (!number || digits == std::string_view::npos) return std::nullopt;
  std::string unit = lower(trim(text.substr(digits)));
  double scale = 1;
  if (unit != "b") {
    size_t power = unit.empty() ? std::string_view::npos : std::string_view("kmgtp").find(unit[0]);
    if (power == std::string_view::npos) return std::nullopt;
    std::string_view rest = std::string_view(unit).substr(1);
    if (!rest.empty() && rest != "b" && rest != "ib") return std::nullopt;
    scale = std::pow(rest == "b" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
  }
  double bytes = std::floor(*number * scale);
  if (!(bytes < 0x1p62)) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

// At commas outside of brackets, which belong to a pattern.
std::vector<std::string_view> split_patterns(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[' || text[i] == ']') inside = text[i] == '[';
    if (text[i] != ',' || inside) continue;
    parts.push_back(trim(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  parts.push_back(trim(text.substr(begin)));
  return parts;
}

class Setter {
 public:
  Setter(RunConfig& config, const OptionRow& row, const std::vector<std::string>& words,
         std::string_view spelling)
      : config_(config), row_(row), words_(words), spelling_(spelling) {}

  void operator()(bool RunConfig::*field) const {
    auto value = parse_boolean(unquoted(first()));
    if (!value) fail("True, False, 1 or 0");
    config_.*field = *value;
  }
  void operator()(int64_t RunConfig::*field) const {
    config_.*field = integer(text_or_none_value());
  }
  void operator()(double RunConfig::*field) const { config_.*field = number(text_or_none_value()); }
  void operator()(std::optional<int64_t> RunConfig::*field) const {
    std::string_view text = unquoted(first());
    if (is_none(text) || lower(text) == "inf") {
      config_.*field = std::nullopt;
    } else {
      config_.*field = integer(text);
    }
  }
  void operator()(std::optional<double> RunConfig::*field) const {
    std::string_view text = unquoted(first());
    if (is_none(text)) {
      config_.*field = std::nullopt;
    } else {
      config_.*field = number(text);
    }
  }
  void operator()(std::string RunConfig::*field) const {
    std::string_view text = without_quotes(first());  // blanks may be meant, in a prompt above all
    if (!row_.values.empty()) {
      config_.*field = enumerator(text);
    } else if (is_none(text)) {
      config_.*field = "";
    } else if (row_.form == ValueForm::kLayerChoice && !parse_layer_share(text)) {
      fail("an integer, a fraction below 1, or p/q");
    } else {
      config_.*field = std::string(text);
    }
  }
  void operator()(std::vector<std::string> RunConfig::*field) const {
    std::vector<std::string> values;
    for (const std::string& word : words_) {
      if (row_.form == ValueForm::kCommaList) {
        for (std::string_view part : split_patterns(unquoted(word))) values.emplace_back(part);
      } else {
        values.push_back(checked_word(unquoted(word)));
      }
    }
    if (values.size() == 1 && (values[0].empty() || is_none(values[0]))) values.clear();
    config_.*field = std::move(values);
  }

 private:
  const std::string& first() const {
    TESSERA_CHECK(!words_.empty());
    return words_.front();
  }
  std::string_view text_or_none_value() const {
    std::string_view text = unquoted(first());
    return is_none(text) && !row_.none.empty() ? row_.none : text;
  }
  [[noreturn]] void fail(std::string_view expected) const { fail(expected, first()); }
  [[noreturn]] void fail(std::string_view expected, std::string_view found) const {
    throw UsageError(cat(spelling_, " expects ", expected, ": it is ", shown(found)));
  }
  // A word of a list.
  std::string checked_word(std::string_view word) const {
    if (row_.form == ValueForm::kIntervals && !parse_checkpoint_interval(word))
      fail("a number of steps, a time (600s, 10m, 2h), or both (1000,10m)", word);
    if (row_.form != ValueForm::kCounts || is_none(word) || lower(word) == "inf")
      return row_.form == ValueForm::kCounts ? "None" : std::string(word);
    auto count = parse_integer(word);
    if (!count) fail("an integer or None", word);
    if (static_cast<double>(*count) < row_.minimum)
      fail(cat("a value of at least ", row_.minimum), word);
    return cat(*count);
  }
  void check_range(double value) const {
    bool low = value < row_.minimum;
    bool high = row_.below_maximum ? value >= row_.maximum : value > row_.maximum;
    if (!low && !high) return;
    bool bounded = row_.maximum < std::numeric_limits<double>::infinity();
    std::string upper = cat(row_.below_maximum ? "below " : "at most ", row_.maximum);
    fail(bounded ? cat("a value of at least ", row_.minimum, " and ", upper)
                 : cat("a value of at least ", row_.minimum));
  }
  int64_t integer(std::string_view text) const {
    bool bytes = row_.form == ValueForm::kBytes;
    auto value = bytes ? parse_bytes(text) : parse_integer(text);
    if (!value) fail(bytes ? "a number of bytes, for example 80GiB" : "an integer");
    check_range(static_cast<double>(*value));
    return *value;
  }
  double number(std::string_view text) const {
    auto value = parse_real(text);
    if (!value) fail("a number");
    if (std::isinf(*value) && !row_.infinity) fail("a finite number");
    check_range(*value);
    return *value;
  }
  std::string enumerator(std::string_view text) const {
    std::string wanted = lower(unquoted(text));
    std::vector<std::string> known;
    for (const OptionValue& value : row_.values) {
      if (value.name == wanted) return std::string(value.name);
      for (std::string_view synonym : value.synonyms) {
        if (synonym == wanted) return std::string(value.name);
      }
      known.emplace_back(value.name);
      known.insert(known.end(), value.synonyms.begin(), value.synonyms.end());
    }
    std::string close = nearest(wanted, known);
    std::string hint = close.empty() ? "" : cat("; did you mean ", close, "?");
    throw UsageError(
        cat(spelling_, " expects one of ", join(known, ", "), ": it is ", shown(text), hint));
  }

  RunConfig& config_;
  const OptionRow& row_;
  const std::vector<std::string>& words_;
  std::string_view spelling_;
};

}  // namespace

// An integer >= 0, a fraction in (0, 1), or p/q with 0 < p <= q.
std::optional<LayerShare> parse_layer_share(std::string_view text) {
  size_t slash = text.find('/');
  if (slash == std::string_view::npos) {
    auto number = parse_real(text);
    auto every = parse_integer(text);
    if (!number || *number < 0 || (*number >= 1 && !every)) return std::nullopt;
    if (every) return LayerShare{1, std::max(1.0, static_cast<double>(*every))};
    return LayerShare{*number, 1};
  }
  auto p = parse_integer(text.substr(0, slash)), q = parse_integer(text.substr(slash + 1));
  if (!p || !q || *p <= 0 || *p > *q) return std::nullopt;
  return LayerShare{static_cast<double>(*p), static_cast<double>(*q)};
}

std::optional<CheckpointInterval> parse_checkpoint_interval(std::string_view text) {
  CheckpointInterval interval;
  for (std::string_view part : split(text, ',')) {
    part = trim(part);
    if (auto steps = parse_integer(part)) {
      if (*steps < 1 || interval.steps > 0) return {};
      interval.steps = *steps;
      continue;
    }
    constexpr std::string_view kUnits = "smhd";
    constexpr double kSeconds[] = {1, 60, 3600, 86400};
    const size_t unit = part.empty() ? kUnits.npos : kUnits.find(part.back());
    if (unit == kUnits.npos || interval.seconds > 0) return {};
    auto number = parse_real(part.substr(0, part.size() - 1));
    if (!number || !(*number > 0) || *number > 1e6) return {};
    interval.seconds = *number * kSeconds[unit];
  }
  return interval;
}

std::optional<bool> parse_boolean(std::string_view text) {
  std::string word = lower(trim(text));
  if (word == "true") return true;
  if (word == "false") return false;
  const auto value = parse_number<int64_t>(word);
  return value ? std::optional(*value > 0) : std::nullopt;
}

void set_option(RunConfig& config, const OptionRow& row, const std::vector<std::string>& words,
                std::string_view spelling) {
  for (const std::string& word : words) {
    if (!is_masked_url(unquoted(word))) continue;
    throw UsageError(cat(spelling, ": '", unquoted(word), "' lacks what may hold a secret, which ",
                         "records of options leave out: give the whole address"));
  }
  std::visit(Setter(config, row, words, spelling), row.field);
}

}  // namespace tessera
