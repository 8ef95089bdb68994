#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// An option of a command that shares none with training.
struct OwnOption {
  std::string_view name;   // with underscores; hyphens mean the same
  std::string_view alias;  // one letter, behind one dash, or empty
  std::string_view value;  // what --help calls it
  std::string_view help;
  std::function<void(const std::string& value)> set = {};  // UsageError for another form
  bool repeats = false;                                    // may be given several times
};

// Sets what `arguments` ask for: --name value, --name=value, -n value. False for --help, which
// prints `introduction` and the options. UsageError for anything else, words too unless they are
// asked for.
bool parse_own_options(std::span<const OwnOption> options, std::span<const std::string> arguments,
                       std::string_view introduction, std::vector<std::string>* words = nullptr);

// The value as a whole number of these; of bytes also "64K", "16M", "2G" (1,024 each).
int64_t whole_number(const OwnOption& option, const std::string& value, int64_t lowest,
                     int64_t highest = std::numeric_limits<int64_t>::max());
int64_t byte_count(const OwnOption& option, const std::string& value, int64_t lowest);
// The value, which must be one of the words.
const std::string& one_of(const OwnOption& option, const std::string& value,
                          std::initializer_list<std::string_view> words);

}  // namespace tessera
