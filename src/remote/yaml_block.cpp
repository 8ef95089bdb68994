#include "remote/yaml_block.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr int kMaxLevels = 16;

[[noreturn]] void refuse(size_t line, std::string_view why) {
  throw UserError(cat("line ", line, ": ", why));
}

// A line without its indentation and comment.
struct Line {
  size_t number = 0, indent = 0;
  std::string_view text;
};

// Where a quoted text that begins at `begin` has ended; npos where it has not.
size_t find_end_of_quoted(std::string_view text, size_t begin) {
  const char quote = text[begin];
  for (size_t at = begin + 1; at < text.size(); ++at) {
    if (quote == '"' && text[at] == '\\') {
      ++at;
    } else if (text[at] == quote) {
      if (quote == '"' || at + 1 == text.size() || text[at + 1] != quote) return at + 1;
      ++at;  // '' is one quote
    }
  }
  return std::string_view::npos;
}

size_t end_of_quoted(std::string_view text, size_t begin, size_t line) {
  const size_t end = find_end_of_quoted(text, begin);
  if (end == std::string_view::npos) refuse(line, "a quoted text does not end in its line");
  return end;
}

std::string unquoted(std::string_view quoted, size_t line) {
  const bool is_double = quoted[0] == '"';
  quoted = quoted.substr(1, quoted.size() - 2);
  std::string text;
  for (size_t at = 0; at < quoted.size(); ++at) {
    if (!is_double && quoted[at] == '\'') ++at;
    if (is_double && quoted[at] == '\\') {
      ++at;
      if (std::string_view("\\\"/").find(quoted[at]) == std::string_view::npos)
        refuse(line, cat("\\", std::string(1, quoted[at]), " in a quoted text is not known here"));
    }
    text.push_back(quoted[at]);
  }
  return text;
}

bool begins_quoted(std::string_view text) {
  return text.starts_with('"') || text.starts_with('\'');
}

// A comment begins behind a blank. Quotes count where a value or a name begins.
std::string_view without_comment(std::string_view text) {
  bool at_begin = true;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '#' && (i == 0 || text[i - 1] == ' ')) return trim(text.substr(0, i));
    if (at_begin && (c == '"' || c == '\''))
      if (const size_t end = find_end_of_quoted(text, i); end != text.npos) i = end - 1;
    at_begin = c == ' ' ? at_begin : c == ':' || c == '-' || c == '[' || c == '{' || c == ',';
  }
  return trim(text);
}

// What is within one line.
class Inline {
 public:
  Inline(std::string_view text, size_t line) : text_(text), line_(line) {}

  YamlValue whole() {
    YamlValue value = this->value(0, "");
    if (at_ < text_.size()) refuse(line_, cat("'", text_.substr(at_, 40), "' behind a value"));
    return value;
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool takes(char c) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  // A plain text ends at one of `ends`.
  std::string scalar(std::string_view ends) {
    skip_blanks();
    if (begins_quoted(text_.substr(at_))) {
      const size_t end = end_of_quoted(text_, at_, line_);
      const std::string_view quoted = text_.substr(at_, end - at_);
      at_ = end;
      skip_blanks();
      return unquoted(quoted, line_);
    }
    const size_t end = std::min(text_.find_first_of(ends.empty() ? "\n" : ends, at_), text_.size());
    const std::string plain(trim(text_.substr(at_, end - at_)));
    at_ = end;
    if (plain.find_first_of("&*!|>%@`") == 0 || plain.find(": ") != plain.npos ||
        plain.ends_with(':') || plain == "-" || plain.starts_with("- ") || plain.starts_with("? "))
      refuse(line_, cat("'", plain.substr(0, 40), "' is not read: quote it, if it is a text"));
    return plain == "null" || plain == "~" ? "" : plain;
  }

  YamlValue value(int depth, std::string_view ends) {
    if (depth == kMaxLevels) refuse(line_, "it has too many levels");
    YamlValue value;
    value.line = line_;
    if (takes('[')) {
      value.kind = YamlValue::Kind::kList;
      while (!takes(']')) {
        value.items.push_back(this->value(depth + 1, ",]}[{"));
        if (!takes(',') && !peeks(']')) refuse(line_, "a list [...] does not end in its line");
      }
    } else if (takes('{')) {
      value.kind = YamlValue::Kind::kMap;
      while (!takes('}')) {
        std::string name = scalar(":,]}[{");
        if (!takes(':')) refuse(line_, "a map {...} has a name without a value");
        if (value.find(name)) refuse(line_, cat("'", name, "' comes twice"));
        YamlValue field = this->value(depth + 1, ",]}[{");
        value.names.push_back(std::move(name));
        value.items.push_back(std::move(field));
        if (!takes(',') && !peeks('}')) refuse(line_, "a map {...} does not end in its line");
      }
    } else {
      value.text = scalar(ends);
      return value;
    }
    skip_blanks();
    return value;
  }
  bool peeks(char c) {
    skip_blanks();
    return at_ < text_.size() && text_[at_] == c;
  }

  std::string_view text_;
  size_t line_, at_ = 0;
};

bool is_item(std::string_view text) { return text == "-" || text.starts_with("- "); }

// Where the colon behind a name is; npos where the line has none.
size_t colon_of(const Line& line) {
  if (line.text.starts_with('[') || line.text.starts_with('{')) return std::string_view::npos;
  size_t at = begins_quoted(line.text) ? end_of_quoted(line.text, 0, line.number) : 0;
  if (at > 0) return at < line.text.size() && line.text[at] == ':' ? at : std::string_view::npos;
  at = line.text.find(": ");
  if (at != std::string_view::npos) return at;
  return line.text.ends_with(':') ? line.text.size() - 1 : at;
}

// What is in lines.
class Block {
 public:
  explicit Block(std::vector<Line> lines) : lines_(std::move(lines)) {}

  YamlValue whole() {
    if (lines_.empty()) return {};
    YamlValue value = this->value(0);
    if (at_ < lines_.size())
      refuse(lines_[at_].number, "it is indented otherwise than what is in front of it");
    return value;
  }

 private:
  // That of the lines from here on with the indentation of the first.
  YamlValue value(int depth) {
    if (depth == kMaxLevels) refuse(lines_[at_].number, "it has too many levels");
    const Line first = lines_[at_];
    if (is_item(first.text)) return list(depth, first);
    if (colon_of(first) != std::string_view::npos) return map(depth, first);
    ++at_;
    return Inline(first.text, first.number).whole();
  }

  YamlValue list(int depth, const Line& first) {
    YamlValue value;
    value.kind = YamlValue::Kind::kList;
    value.line = first.number;
    while (is_at(first.indent) && is_item(lines_[at_].text)) {
      Line& line = lines_[at_];
      const std::string_view rest = line.text.substr(1);
      const size_t begin = rest.find_first_not_of(' ');
      if (begin == std::string_view::npos) {
        ++at_;
        value.items.push_back(is_deeper(first.indent) ? this->value(depth + 1) : YamlValue{});
        continue;
      }
      // The rest of the line is the first line of the item.
      line.indent += 1 + begin;
      line.text = rest.substr(begin);
      value.items.push_back(this->value(depth + 1));
    }
    return value;
  }

  YamlValue map(int depth, const Line& first) {
    YamlValue value;
    value.kind = YamlValue::Kind::kMap;
    value.line = first.number;
    const size_t indent = first.indent;
    while (is_at(indent) && !is_item(lines_[at_].text)) {
      const Line line = lines_[at_++];
      const size_t colon = colon_of(line);
      if (colon == std::string_view::npos) refuse(line.number, "a name without a colon");
      const std::string_view quoted = line.text.substr(0, colon);
      std::string name =
          begins_quoted(quoted) ? unquoted(quoted, line.number) : std::string(trim(quoted));
      if (name.empty() || name.find_first_of("&*!?<") == 0)
        refuse(line.number, cat("the name '", name.substr(0, 40), "' is not read"));
      if (value.find(name)) refuse(line.number, cat("'", name, "' comes twice"));
      YamlValue field;
      field.line = line.number;
      const std::string_view rest = trim(line.text.substr(colon + 1));
      const bool is_list_below = is_at(indent) && is_item(lines_[at_].text);
      if (!rest.empty())
        field = Inline(rest, line.number).whole();
      else if (is_deeper(indent) || is_list_below)
        field = this->value(depth + 1);
      value.names.push_back(std::move(name));
      value.items.push_back(std::move(field));
    }
    return value;
  }

  bool is_at(size_t indent) const { return at_ < lines_.size() && lines_[at_].indent == indent; }
  bool is_deeper(size_t indent) const { return at_ < lines_.size() && lines_[at_].indent > indent; }

  std::vector<Line> lines_;
  size_t at_ = 0;
};

}  // namespace

const YamlValue* YamlValue::find(std::string_view name) const {
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? nullptr : &items[static_cast<size_t>(found - names.begin())];
}

YamlValue yaml_field(std::string_view text, std::string_view name, size_t first_line) {
  std::vector<Line> lines;
  bool inside = false;
  size_t number = first_line;
  for (std::string_view raw : split(text, '\n')) {
    if (raw.ends_with('\r')) raw.remove_suffix(1);
    const size_t indent = std::min(raw.find_first_not_of(' '), raw.size());
    const bool is_top =
        indent == 0 && !raw.empty() && !is_item(raw) && raw.find_first_of("#\t") != 0;
    const bool begins = is_top && raw.starts_with(name) && raw.substr(name.size()).starts_with(':');
    if (is_top && inside && begins) refuse(number, cat("'", name, "' comes twice"));
    if (is_top) inside = begins;
    if (inside) {
      if (raw.substr(indent).starts_with('\t')) refuse(number, "a tab indents it");
      Line line{number, indent, without_comment(raw.substr(indent))};
      if (!line.text.empty()) lines.push_back(line);
    }
    ++number;
  }
  if (lines.empty()) {
    YamlValue none;
    none.kind = YamlValue::Kind::kMap;
    return none;
  }
  YamlValue whole = Block(std::move(lines)).whole();
  return whole.kind == YamlValue::Kind::kMap && whole.find(name) ? *whole.find(name) : YamlValue{};
}

}  // namespace tessera
