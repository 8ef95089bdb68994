#pragma once
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace tessera::config_testing {

// The message of the UserError that `action` must throw.
template <class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no UserError";
  return "";
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' not in: " << text;
}

}  // namespace tessera::config_testing
