#include "options/option_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

// Nested lists and inline tables are parsed by recursion; settings have one level of either.
#define TOML_MAX_NESTED_VALUES 16
// Some broken files fail an assertion of the library before its error.
#define TOML_ASSERT(condition) static_cast<void>(0)
#include <toml++/toml.h>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;
// A dotted key makes a table a dot, and tables are destroyed by recursion.
constexpr std::ptrdiff_t kMaxDotsOfLine = 250;

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// Looks for letters where TOML allows ASCII only: everywhere but in strings and comments. For some
// of them (U+00E9, say) toml++ 3.3 has no defined behaviour, there and behind a backslash that ends
// a line of a string. What is no TOML anyway may be found here or by the library, but the library
// stops at what is wrong before it sees such a letter.
class StrayLetter {
 public:
  explicit StrayLetter(std::string_view text) : text_(text) {}

  // Its first byte.
  std::optional<size_t> find() {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;
    char before = '\n';
    for (; at_ < text_.size() && !found_; before = text_[at_ - 1]) {
      char c = text_[at_];
      if (!is_ascii(c)) return at_;
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == '"' || c == '\'') {
        size_t begin = at_;
        pass_string(c);
        // In the middle of a word: a part of a dotted key, or no string at all.
        if (!is_blank(before) && std::string_view("=[{,").find(before) == std::string::npos)
          look_in(begin);
      } else {
        ++at_;
      }
    }
    return found_;
  }

 private:
  void look_in(size_t begin) {
    for (size_t i = begin; i < at_ && !found_; ++i)
      if (!is_ascii(text_[i])) found_ = i;
  }

  // To behind the string, or to the end of the line (of the text) where it does not end.
  void pass_string(char quote) {
    std::string three(3, quote);
    bool is_long = text_.substr(at_, 3) == three;
    at_ += is_long ? 3 : 1;
    while (at_ < text_.size() && !found_) {
      if (quote == '"' && text_[at_] == '\\') {
        ++at_;
        is_long ? pass_line_end() : void(++at_);
      } else if (is_long && text_.substr(at_, 3) == three) {
        at_ += 3;
        for (int more = 0; more < 2 && text_.substr(at_).starts_with(quote); ++more) ++at_;
        break;
      } else if (!is_long && (text_[at_] == quote || text_[at_] == '\n')) {
        ++at_;
        break;
      } else {
        ++at_;
      }
    }
    at_ = std::min(at_, text_.size());
  }

  // What a backslash in a long string escapes: a character, or blanks with the end of a line.
  void pass_line_end() {
    size_t escaped = at_;
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
    if (at_ == text_.size()) return;
    if (!is_ascii(text_[at_])) found_ = at_;
    if (at_ == escaped) ++at_;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::optional<size_t> found_;
};

// The text with an x for every letter outside of ASCII.
std::string with_ascii_letters(std::string_view text) {
  std::string ascii;
  for (char c : text.substr(text.starts_with("\xef\xbb\xbf") ? 3 : 0)) {
    auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 || byte >= 0xc0) ascii += is_ascii(c) ? c : 'x';  // others continue a letter
  }
  return ascii;
}

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
    check_letters(text);
    try {
      // Only in a text that is TOML is it sure that the library takes for strings what we do.
      static_cast<void>(toml::parse(with_ascii_letters(text)));
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
    if (text.size() > kMaxFileBytes) throw UsageError(cat(path_, ": larger than 1 MiB"));
    int64_t line = 0;
    for (std::string_view content : split(text, '\n')) {
      ++line;
      if (std::count(content.begin(), content.end(), '.') > kMaxDotsOfLine) {
        throw UsageError(
            cat(path_, ":", line, ":1: more than ", kMaxDotsOfLine, " dots in one line"));
      }
    }
  }

  void check_letters(std::string_view text) const {
    std::optional<size_t> at = StrayLetter(text).find();
    if (!at) return;
    std::string_view before = text.substr(0, *at);
    std::string_view line = before.substr(before.rfind('\n') + 1);  // of the first line: from 0
    // The first byte of each letter counts.
    auto column = std::ranges::count_if(line, [](char c) { return (c & 0xc0) != 0x80; });
    throw UsageError(cat(path_, ":", std::ranges::count(before, '\n') + 1, ":", column + 1,
                         ": a letter outside of ASCII may stand in strings and comments only (and "
                         "not right behind a backslash that ends a line)"));
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
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    throw UserError(cat("--config: cannot read '", path, "': ", std::strerror(errno)));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) {
    throw UserError(cat("--config: '", path, "' is larger than the 1 MiB of a configuration file"));
  }
  return text;
}

}  // namespace tessera
