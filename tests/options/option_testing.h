#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "options/option_parser.h"
#include "tests/base/error_expectation.h"

namespace tessera::option_testing {

// parse_options without the environment of the test run.
inline ParsedOptions parse(const std::vector<std::string>& arguments,
                           OptionScope scope = OptionScope::kPlan) {
  return parse_options(arguments, scope, [](const char*) { return std::nullopt; });
}

inline std::string usage_error(const std::vector<std::string>& arguments,
                               OptionScope scope = OptionScope::kPlan) {
  return message_of<UsageError>([&] { parse(arguments, scope); });
}

inline bool any_contains(const std::vector<std::string>& lines, const std::string& part) {
  for (const std::string& line : lines) {
    if (line.find(part) != std::string::npos) return true;
  }
  return false;
}

// parse() with these texts as the files of --config=a.toml, --config=b.toml.
inline ParsedOptions parse_files(const std::vector<std::string>& texts,
                                 std::vector<std::string> arguments = {},
                                 OptionScope scope = OptionScope::kPlan) {
  for (size_t i = 0; i < texts.size(); ++i) {
    arguments.push_back(cat("--config=", std::string(1, static_cast<char>('a' + i)), ".toml"));
  }
  return parse_options(
      arguments, scope, [](const char*) { return std::nullopt; },
      [&](const std::string& path) { return texts.at(static_cast<size_t>(path[0] - 'a')); });
}

// A valid value of the row that is not its default, or "" if there is only one value.
inline std::string other_value(const OptionRow& row) {
  std::string current = value_text(RunConfig{}, row);
  for (const OptionValue& value : row.values) {
    if (value.name != current) return std::string(value.name);
  }
  if (!row.values.empty()) return "";
  std::string type = type_name(row);
  if (type == "bool") return current == "True" ? "False" : "True";
  if (type == "float") return row.maximum <= 1 ? "0.0625" : "0.3";
  if (type == "int" || type == "bytes") return "17";
  if (row.form == ValueForm::kCounts || row.form == ValueForm::kIntervals) return "17";
  return row.form == ValueForm::kLayerChoice ? "1/7" : "some words";
}

}  // namespace tessera::option_testing
