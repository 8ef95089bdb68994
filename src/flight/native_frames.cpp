#include <cxxabi.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "base/program_output.h"
#include "base/text.h"
#include "flight/postmortem.h"

namespace tessera {
namespace {

constexpr size_t kMostFrames = 64, kMostThreads = 1024;
// Of addresses that are asked for in one go.
constexpr size_t kAskedAtOnce = 400;

// Without the arguments where they are long.
std::string shortened(std::string function) {
  constexpr size_t kLongest = 80;
  const size_t open = function.find('(', 1);
  if (function.size() > kLongest && open != std::string::npos && !function.starts_with("std::"))
    function = function.substr(0, open) + "(...)";
  return function;
}

std::string readable(const std::string& symbol) {
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 && name ? shortened(name.get()) : symbol;
}

// "#3 0x55d0 /usr/bin/tessera+0x1234 SYMBOL"
std::string frame_of(std::string_view line) {
  const std::vector<std::string_view> words = split(line, ' ');
  if (words.size() < 3) return std::string(line);
  const std::string_view place = words[2];
  if (words.size() > 3 && !place.starts_with("(")) {
    const size_t plus = place.rfind('+');
    return cat(readable(std::string(words[3])), " in ",
               std::filesystem::path(std::string(place.substr(0, plus))).filename().string());
  }
  return words.size() > 3 ? std::string(line.substr(line.find(place))) : std::string(place);
}

// Whether a frame is yet to be named: MODULE+0xOFFSET, whole.
bool is_place(const std::string& frame) {
  const size_t plus = frame.rfind("+0x");
  return plus != std::string::npos && frame.starts_with("/") &&
         frame.find_first_not_of("0123456789abcdef", plus + 3) == std::string::npos;
}

using Names = std::map<std::string, std::string>;  // by place

// What is asked for: of the outer frames, which say where they go on, the call before it.
std::string place_of_call(const std::string& place, size_t frame) {
  const size_t plus = place.rfind('+');
  uint64_t offset = 0;
  const char* end = place.data() + place.size();
  std::from_chars(place.data() + plus + 3, end, offset, 16);
  if (frame == 0 || offset == 0) return place;
  return cat(place.substr(0, plus), "+0x", hex(offset - 1));
}

void ask(const std::string& module, const std::vector<std::string>& offsets, Names& names) {
  std::vector<std::string> words{"addr2line", "-f", "-C", "-s", "-e", module};
  words.insert(words.end(), offsets.begin(), offsets.end());
  std::optional<ProgramOutput> answer;
  try {
    answer = program_output(words, std::chrono::seconds(60));
  } catch (const DeviceError&) {
    return;
  }
  if (!answer || answer->status != 0) return;
  std::string_view text = answer->out;
  for (const std::string& offset : offsets) {
    const std::string function(take_line(text)), line(take_line(text));
    if (function.empty() || function == "??") continue;
    // Of a library without names of its own functions it would be the nearest that others see.
    if (line.starts_with("?") && module.find(".so") != std::string::npos) continue;
    const std::string file = line.starts_with("?") ? "" : cat(" at ", line);
    names[cat(module, "+", offset)] =
        cat(shortened(function), file, " in ", std::filesystem::path(module).filename().string());
  }
}

}  // namespace

NativeReport read_report(std::string_view text) {
  if (const size_t last = text.rfind("== report of rank "); last != std::string_view::npos)
    text.remove_prefix(last);
  NativeReport report;
  while (!text.empty()) {
    std::string_view line = take_line(text);
    if (line.starts_with("reason: ")) report.reason = line.substr(8);
    if (line.starts_with("thread ") && report.stacks.size() < kMostThreads) {
      report.stacks.push_back({std::string(line.substr(7)), {}});
    } else if (line.starts_with("  #") && !report.stacks.empty()) {
      std::vector<std::string>& frames = report.stacks.back().frames;
      if (frames.size() < kMostFrames) frames.push_back(frame_of(line.substr(2)));
    }
  }
  return report;
}

void name_frames(std::vector<NativeReport>& reports) {
  std::map<std::string, std::vector<std::string>> asked;
  Names names;
  for (const NativeReport& report : reports)
    for (const NativeStack& stack : report.stacks)
      for (size_t k = 0; k < stack.frames.size(); ++k) {
        if (!is_place(stack.frames[k])) continue;
        const std::string place = place_of_call(stack.frames[k], k);
        if (!names.try_emplace(place, stack.frames[k]).second) continue;
        const size_t plus = place.rfind('+');
        asked[place.substr(0, plus)].push_back(place.substr(plus + 1));
      }
  for (const auto& [module, offsets] : asked) {
    for (size_t i = 0; i < offsets.size(); i += kAskedAtOnce) {
      const size_t end = std::min(offsets.size(), i + kAskedAtOnce);
      ask(module,
          {offsets.begin() + static_cast<std::ptrdiff_t>(i),
           offsets.begin() + static_cast<std::ptrdiff_t>(end)},
          names);
    }
  }
  for (NativeReport& report : reports)
    for (NativeStack& stack : report.stacks)
      for (size_t k = 0; k < stack.frames.size(); ++k) {
        std::string& frame = stack.frames[k];
        if (is_place(frame)) frame = names[place_of_call(frame, k)];
      }
}

}  // namespace tessera
