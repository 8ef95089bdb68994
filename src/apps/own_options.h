#pragma once
#include <cstdint>
#include <cstdio>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/command_option.h"

namespace tessera {

// What the options of a command take beside its own words.
struct OwnWords {
  std::string_view repeated = {};             // the option that may be given several times
  std::vector<std::string>* words = nullptr;  // where words that are no options go; null: refused
};

// Sets what `arguments` ask for. False for --help, which prints `introduction` and the options.
// UsageError for what is unknown or given twice.
template <class Told>
bool parse_own_options(std::span<const CommandOption<Told>> table,
                       std::span<const std::string> arguments, std::string_view introduction,
                       Told& told, const OwnWords& own = {}) {
  std::set<std::string_view> given;
  while (!arguments.empty() && !is_help(arguments[0])) {
    if (own.words && (arguments[0] == "-" || !arguments[0].starts_with("-"))) {
      own.words->push_back(arguments[0]);
      arguments = arguments.subspan(1);
      continue;
    }
    const std::string_view name = take_option(table, arguments, told);
    if (!given.insert(name).second && name != own.repeated)
      throw UsageError(cat("--", name, " is given twice"));
  }
  if (arguments.empty()) return true;
  std::fputs(cat(introduction, option_lines(texts(table))).c_str(), stdout);
  return false;
}

constexpr int64_t kNoMaximum = std::numeric_limits<int64_t>::max();

inline double seconds(const std::string& value, const std::string& spelling) {
  return static_cast<double>(number<int64_t>(value, 1, kNoMaximum, spelling));
}
// A number of bytes, also "64K", "16M", "2G" (1,024 each).
int64_t byte_count(const std::string& value, int64_t lowest, const std::string& spelling);

}  // namespace tessera
