#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace tessera {

// Lines on standard error: `YYYY-MM-DD HH:MM:SS I [file:line] message`, local time. Thread-safe.
// Only rank 0 prints progress; warnings and errors come from every rank.
enum class LogLevel { kDebug, kInfo, kWarning, kError };

// In the line that training says after the first step of a process: `tessera run` looks for it.
inline constexpr std::string_view kFirstStepDone = "First step done";

void set_log_level(LogLevel level);
// Not printed below the level that was set, unless `always`: an address that is known only by it.
void log_line(LogLevel level, const char* file, int line, std::string_view message,
              bool always = false);
// Prints `message` once in the life of the process.
void log_once(LogLevel level, const char* file, int line, std::string_view message);
// Hears of every line, whether it is printed or not, without its time and place, until it is given
// another or an empty one. It must not print lines itself.
using LogListener = std::function<void(LogLevel level, std::string_view message)>;
void set_log_listener(LogListener listener);
// Of the lines that could not be written and have not been said to be missing: LineWriter::loss().
std::string lost_log_lines();

#define TESSERA_INFO(message) \
  ::tessera::log_line(::tessera::LogLevel::kInfo, __FILE__, __LINE__, message)
#define TESSERA_WARN(message) \
  ::tessera::log_line(::tessera::LogLevel::kWarning, __FILE__, __LINE__, message)
#define TESSERA_WARN_ONCE(message) \
  ::tessera::log_once(::tessera::LogLevel::kWarning, __FILE__, __LINE__, message)

}  // namespace tessera
