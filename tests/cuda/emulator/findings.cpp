#include "findings.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>

namespace tessera::emulated_gpu {
namespace {

struct Finding {
  std::string detail;
  int64_t times = 0;
};
std::mutex guard;
std::map<std::string, Finding>& all() {
  static std::map<std::string, Finding> map;
  return map;
}

}  // namespace

void found(const std::string& rule, const std::string& detail) {
  const std::lock_guard lock(guard);
  Finding& finding = all()[rule];
  if (finding.times++ == 0) finding.detail = detail;
}

std::vector<std::string> findings() {
  const std::lock_guard lock(guard);
  std::vector<std::string> texts;
  for (const auto& [rule, finding] : all()) {
    std::string text = rule;
    if (!finding.detail.empty()) text += " (" + finding.detail + ")";
    if (finding.times > 1) text += " [" + std::to_string(finding.times) + " times]";
    texts.push_back(text);
  }
  return texts;
}

void clear_findings() {
  const std::lock_guard lock(guard);
  all().clear();
}

std::string source_line(const void* instruction) {
  Dl_info library{};
  if (!dladdr(instruction, &library) || !library.dli_fbase) return "unknown place";
  // The address that a call returns to is behind it.
  const auto offset =
      reinterpret_cast<uintptr_t>(instruction) - reinterpret_cast<uintptr_t>(library.dli_fbase) - 1;
  char number[32];
  std::snprintf(number, sizeof number, "+0x%zx", static_cast<size_t>(offset));
  static std::mutex one_at_a_time;
  static std::map<uintptr_t, std::string> known;
  const std::lock_guard lock(one_at_a_time);
  std::string& text = known[offset];
  if (!text.empty()) return text;
  text = number;
  const std::string command =
      "addr2line -s -e '" + std::string(library.dli_fname) + "' " + (number + 1) + " 2>/dev/null";
  if (FILE* pipe = popen(command.c_str(), "r")) {
    char line[512] = "";
    if (std::fgets(line, sizeof line, pipe) && line[0] != '?') {
      text = line;
      while (!text.empty() && text.back() == '\n') text.pop_back();
      if (const size_t note = text.find(" ("); note != std::string::npos) text.resize(note);
    }
    pclose(pipe);
  }
  return text;
}

}  // namespace tessera::emulated_gpu
