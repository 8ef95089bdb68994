#include "base/log.h"

#include <unistd.h>

#include <cstring>
#include <ctime>
#include <mutex>
#include <set>
#include <string>

#include "base/line_writer.h"
#include "base/text.h"

namespace tessera {
namespace {
std::mutex mutex;
LogLevel threshold = LogLevel::kInfo;
std::set<std::string, std::less<>>& seen() {
  static std::set<std::string, std::less<>> messages;
  return messages;
}

// Never destroyed: threads write to the end.
LineWriter& writer() {
  static LineWriter& standard_error = *new LineWriter(STDERR_FILENO, "tessera: ");
  return standard_error;
}
}  // namespace

void set_log_level(LogLevel level) {
  std::lock_guard lock(mutex);
  threshold = level;
}

void log_line(LogLevel level, const char* file, int line, std::string_view message) {
  char stamp[32];
  std::time_t now = std::time(nullptr);
  std::tm tm{};
  localtime_r(&now, &tm);
  std::strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &tm);
  const char* base = std::strrchr(file, '/');
  std::lock_guard lock(mutex);
  if (level < threshold) return;
  writer().write(cat(stamp, " ", "DIWE"[static_cast<int>(level)], " [", base ? base + 1 : file, ":",
                     line, "] ", message, "\n"));
}

std::string lost_log_lines() {
  std::lock_guard lock(mutex);
  return writer().loss();
}

void log_once(LogLevel level, const char* file, int line, std::string_view message) {
  {
    std::lock_guard lock(mutex);
    if (!seen().emplace(message).second) return;
  }
  log_line(level, file, line, message);
}

}  // namespace tessera
