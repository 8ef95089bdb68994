#include "train/option_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <utility>

// Nested lists and inline tables are parsed by recursion; settings have one level of either.
#define TOML_MAX_NESTED_VALUES 16
#include <toml++/toml.h>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr size_t kMaxBytes = 1 << 20;
// A dotted key makes a table a dot, and tables are destroyed by recursion.
constexpr std::ptrdiff_t kMaxDotsOfLine = 250;

// What set_option() takes for exactly this text: it removes one pair of quotes and outer blanks.
std::string word_for(const std::string& text) {
  bool quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') &&
                text.front() == text.back();
  return quoted || trim(text).size() != text.size() ? cat("'", text, "'") : text;
}

class Reader {
 public:
  explicit Reader(std::string_view path) : path_(path) {}

  std::vector<FileSetting> read(std::string_view text) {
    check_size(text);
    try {
      toml::table root = toml::parse(text);
      read_table(root, /*inside=*/false);
    } catch (const toml::parse_error& error) {
      throw UsageError(cat(place(error.source()), ": ", error.description()));
    }
    // A table of the library is sorted by key.
    std::sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) {
      return std::pair(a.line, a.column) < std::pair(b.line, b.column);
    });
    std::vector<FileSetting> settings;
    for (Found& f : found_) settings.push_back(std::move(f.setting));
    return settings;
  }

 private:
  struct Found {
    uint32_t line, column;
    FileSetting setting;
  };

  std::string place(const toml::source_region& region) const {
    return cat(path_, ":", region.begin.line, ":", region.begin.column);
  }

  void check_size(std::string_view text) const {
    if (text.size() > kMaxBytes) throw UsageError(cat(path_, ": larger than 1 MiB"));
    int64_t line = 0;
    for (std::string_view content : split(text, '\n')) {
      ++line;
      if (std::count(content.begin(), content.end(), '.') > kMaxDotsOfLine) {
        throw UsageError(
            cat(path_, ":", line, ":1: more than ", kMaxDotsOfLine, " dots in one line"));
      }
    }
  }

  void read_table(const toml::table& table, bool inside) {
    for (auto&& [key, value] : table) {
      std::string where = place(key.source());
      std::string name(key.str());
      const toml::table* group = value.as_table();
      if (!group) {
        const toml::source_position& begin = key.source().begin;
        found_.push_back({begin.line, begin.column, {name, words_of(value, name), where}});
      } else if (inside || group->is_inline()) {
        throw UsageError(cat(where, ": ", name.substr(0, 60),
                             inside ? " is a table inside a table: tables group settings, one level"
                                    : " expects a value or a list, not an inline table"));
      } else {
        read_table(*group, /*inside=*/true);
      }
    }
  }

  std::vector<std::string> words_of(const toml::node& value, const std::string& name) const {
    std::vector<std::string> words;
    if (const toml::array* list = value.as_array()) {
      for (const toml::node& element : *list) words.push_back(word_of(element, name));
    } else {
      words.push_back(word_of(value, name));
    }
    return words;
  }

  std::string word_of(const toml::node& value, const std::string& name) const {
    if (auto text = value.as_string()) return word_for(text->get());
    if (auto boolean = value.as_boolean()) return boolean->get() ? "True" : "False";
    if (auto integer = value.as_integer()) return cat(integer->get());
    if (auto number = value.as_floating_point()) return cat(number->get());
    throw UsageError(cat(place(value.source()), ": ", name.substr(0, 60),
                         " expects a string, a number, true or false, or a list of these"));
  }

  std::string path_;
  std::vector<Found> found_;
};

}  // namespace

std::vector<FileSetting> parse_option_file(std::string_view text, std::string_view path) {
  return Reader(path).read(text);
}

// Not read_file(): a pipe has no size, and a device no end.
std::string read_option_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    throw UserError(cat("--config: cannot read '", path, "': ", std::strerror(errno)));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxBytes) {
    throw UserError(cat("--config: '", path, "' is larger than the 1 MiB of a configuration file"));
  }
  return text;
}

}  // namespace tessera
