#pragma once
#include <stdexcept>
#include <string>

namespace tessera {

// What went wrong decides the class; the program's exit status follows from it.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Something the user gave is wrong (a flag, a shape, a file). Says what to do. Exit status 1.
struct UserError : Error {
  using Error::Error;
};

// The command line itself is wrong. Exit status 2.
struct UsageError : UserError {
  using UserError::UserError;
};

// A rule of the program is broken: a bug. Asks for a report. Exit status 1.
struct InternalError : Error {
  using Error::Error;
};

// A device or its library failed.
struct DeviceError : Error {
  using Error::Error;
};

// A collective failed or ran past its deadline; names the rank.
struct CommError : Error {
  using Error::Error;
};

[[noreturn]] void internal_error(const char* file, int line, const char* condition,
                                 const std::string& detail);

// Checks a rule of the program itself (never the user's input).
#define TESSERA_CHECK(condition, ...)                                                      \
  do {                                                                                     \
    if (!(condition)) [[unlikely]]                                                         \
      ::tessera::internal_error(__FILE__, __LINE__, #condition, std::string{__VA_ARGS__}); \
  } while (false)

}  // namespace tessera
