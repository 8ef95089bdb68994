#include "apps/own_options.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <set>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"

namespace tessera {
namespace {

std::string with_underscores(std::string_view name) {
  std::string text(name);
  std::ranges::replace(text, '-', '_');
  return text;
}

void print_options(std::span<const OwnOption> options, std::string_view introduction) {
  std::string text(introduction);
  for (const OwnOption& option : options) {
    std::string spelling = cat("--", option.name, " ", option.value);
    if (!option.alias.empty()) spelling = cat("-", option.alias, ", ", spelling);
    text += format("  %-32s %s\n", spelling.c_str(), std::string(option.help).c_str());
  }
  std::fputs(text.c_str(), stdout);
}

[[noreturn]] void refuse(const OwnOption& option, const std::string& value,
                         const std::string& what) {
  throw UsageError(cat("--", option.name, " takes ", what, ": it is '", value, "'"));
}

}  // namespace

bool parse_own_options(std::span<const OwnOption> options, std::span<const std::string> arguments,
                       std::string_view introduction, std::vector<std::string>* words) {
  std::set<std::string_view> given;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--help" || word == "-h") {
      print_options(options, introduction);
      return false;
    }
    if (words && (!word.starts_with("-") || word == "-")) {
      words->push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    const std::string spelling = word.substr(0, equals);
    auto is_meant = [&](const OwnOption& option) {
      return (spelling.starts_with("--") && with_underscores(spelling.substr(2)) == option.name) ||
             (!option.alias.empty() && spelling == cat("-", option.alias));
    };
    const auto option = std::ranges::find_if(options, is_meant);
    if (option == options.end()) {
      std::vector<std::string> names;
      for (const OwnOption& known : options) names.emplace_back(known.name);
      const std::string close =
          spelling.starts_with("--") ? nearest(with_underscores(spelling.substr(2)), names) : "";
      throw UsageError(cat("unknown option ", spelling,
                           close.empty() ? "" : cat("; did you mean --", close, "?")));
    }
    if (!given.insert(option->name).second && !option->repeats)
      throw UsageError(cat("--", option->name, " is given twice"));
    if (equals == std::string::npos &&
        (i + 1 == arguments.size() || arguments[i + 1].starts_with("--")))
      throw UsageError(cat(spelling, " needs a value: ", option->value));
    option->set(equals == std::string::npos ? arguments[++i] : word.substr(equals + 1));
  }
  return true;
}

int64_t whole_number(const OwnOption& option, const std::string& value, int64_t lowest,
                     int64_t highest) {
  const auto number = parse_number<int64_t>(value);
  if (!number || *number < lowest || *number > highest) {
    const bool bounded = highest < std::numeric_limits<int64_t>::max();
    refuse(option, value,
           cat("a whole number from ", lowest, bounded ? cat(" to ", highest) : " on"));
  }
  return *number;
}

int64_t byte_count(const OwnOption& option, const std::string& value, int64_t lowest) {
  int64_t number = 0;
  auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  std::string unit = lower(std::string(end, value.data() + value.size()));
  if (unit.ends_with("ib") || unit.ends_with("b")) unit.resize(unit.find_first_of("ib"));
  const int shift = unit.empty() ? 0 : unit == "k" ? 10 : unit == "m" ? 20 : unit == "g" ? 30 : -1;
  if (error != std::errc() || shift < 0 || number > (int64_t{1} << 40) >> shift ||
      number << shift < lowest)
    refuse(option, value, cat("bytes from ", lowest, " to 1 TiB, such as 64M"));
  return number << shift;
}

const std::string& one_of(const OwnOption& option, const std::string& value,
                          std::initializer_list<std::string_view> words) {
  if (std::ranges::find(words, value) == words.end()) refuse(option, value, join(words, " or "));
  return value;
}

}  // namespace tessera
