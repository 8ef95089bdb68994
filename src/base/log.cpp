#include "base/log.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/line_writer.h"
#include "base/log_status.h"
#include "base/terminal_text.h"
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

// Never destroyed, likewise.
std::vector<std::string>& status() {
  static auto& lines = *new std::vector<std::string>;
  return lines;
}

// Never destroyed, likewise.
LogListener& listener() {
  static auto& function = *new LogListener;
  return function;
}

int64_t columns_of(std::string_view line) {
  return std::ranges::count_if(line, [](char c) { return (c & 0xc0) != 0x80; });
}

// Goes back to where the status begins and clears from there. Lines that were as wide as the window
// take more rows where it has become narrower since.
std::string without_status() {
  const int64_t columns = log_columns();
  int64_t rows = 0;
  for (const std::string& line : status())
    rows += std::max<int64_t>(1, (columns_of(line) + columns - 1) / columns);
  return rows > 0 ? cat("\r\x1b[", rows, "A\x1b[J") : "";
}

std::string status_text() {
  if (status().empty()) return "";
  return cat("\x1b[?7l", join(status(), "\n"), "\n\x1b[?7h");  // cut off, not folded
}
}  // namespace

void set_log_level(LogLevel level) {
  std::lock_guard lock(mutex);
  threshold = level;
}

void log_line(LogLevel level, const char* file, int line, std::string_view text, bool always) {
  const std::string message = without_controls(text);  // it may quote anybody's file
  char stamp[32];
  std::time_t now = std::time(nullptr);
  std::tm tm{};
  localtime_r(&now, &tm);
  std::strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &tm);
  const char* base = std::strrchr(file, '/');
  std::lock_guard lock(mutex);
  if (listener()) listener()(level, message);
  if (level < threshold && !always) return;
  writer().write(cat(without_status(), stamp, " ", "DIWE"[static_cast<int>(level)], " [",
                     base ? base + 1 : file, ":", line, "] ", message, "\n", status_text()));
}

void set_log_listener(LogListener wanted) {
  std::lock_guard lock(mutex);
  listener() = std::move(wanted);
}

bool log_is_terminal() {
  const char* kind = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && kind && std::strcmp(kind, "dumb") != 0;
}

int log_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

void set_log_status(std::vector<std::string> lines) {
  std::lock_guard lock(mutex);
  const std::string before = without_status();
  status() = std::move(lines);
  writer().write(before + status_text());
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
