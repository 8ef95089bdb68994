#pragma once
#include <gtest/gtest.h>

#include <source_location>
#include <string>
#include <string_view>
#include <typeinfo>

#include "base/error.h"
#include "base/text.h"

namespace tessera {

// All failures are reported at the line of the caller.
using Caller = std::source_location;

inline void fail_at(Caller caller, const std::string& why) {
  ADD_FAILURE_AT(caller.file_name(), static_cast<int>(caller.line())) << why;
}

// The message of the E that `action` must throw; a class derived from E does not count.
template <class E, class Action>
std::string message_of(Action&& action, Caller caller = Caller::current()) {
  try {
    action();
  } catch (const E& error) {
    if (typeid(error) != typeid(E))
      fail_at(caller, cat(typeid(error).name(), " was thrown: ", error.what()));
    return error.what();
  }
  fail_at(caller, "nothing was thrown");
  return "";
}

template <class Action>
std::string user_error(Action&& action, Caller caller = Caller::current()) {
  return message_of<UserError>(action, caller);
}

inline void expect_contains(std::string_view text, std::string_view part,
                            Caller caller = Caller::current()) {
  if (text.find(part) == std::string_view::npos)
    fail_at(caller, cat("'", part, "' not in: ", text));
}

inline void expect_lacks(std::string_view text, std::string_view part,
                         Caller caller = Caller::current()) {
  if (text.find(part) != std::string_view::npos) fail_at(caller, cat("'", part, "' in: ", text));
}

}  // namespace tessera
