#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// One key of a configuration file, and what it says in words of a command line.
struct FileSetting {
  std::string key;                 // as it is written there
  std::vector<std::string> words;  // its value, or those of its list, as set_option() takes them
  std::string where;               // "run.toml:3:1": file, line, column
};

// The settings of a configuration file, by their place in it. TOML (https://toml.io, v1.0): a key
// is the name of an option, a value a string, number, boolean or a list of these. Strings stand for
// themselves, without a second layer of quotes. A table groups settings; its name says nothing.
// Nothing is known of options here. UsageError "PATH:LINE:COLUMN: ...": no TOML, a table inside a
// table or a list, a date, text larger than 1 MiB or nested deeper than any configuration.
std::vector<FileSetting> parse_option_file(std::string_view text, std::string_view path);

// The text of such a file. UserError: it cannot be read, or is larger than 1 MiB.
std::string read_option_file(const std::string& path);

}  // namespace tessera
