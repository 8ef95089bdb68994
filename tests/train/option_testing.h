#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "train/option_parser.h"

namespace tessera::option_testing {

// parse_options without the environment of the test run.
inline ParsedOptions parse(const std::vector<std::string>& arguments,
                           OptionScope scope = OptionScope::kPlan) {
  return parse_options(arguments, scope, [](const char*) { return std::nullopt; });
}

// The message of the Expected that `action` must throw; a class derived from it does not count.
template <class Expected, class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const Expected& error) {
    EXPECT_EQ(typeid(error), typeid(Expected)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

inline std::string usage_error(const std::vector<std::string>& arguments,
                               OptionScope scope = OptionScope::kPlan) {
  return message_of<UsageError>([&] { parse(arguments, scope); });
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' not in: " << text;
}

inline bool any_contains(const std::vector<std::string>& lines, const std::string& part) {
  for (const std::string& line : lines) {
    if (line.find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace tessera::option_testing
