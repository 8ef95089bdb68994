#include "data/jinja_tokens.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

namespace tessera {
namespace {

using Kind = JinjaToken::Kind;

constexpr size_t kMostBytes = size_t{1} << 20;
constexpr std::string_view kSpace = " \t\n\r\v\f";

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

class JinjaLexer {
 public:
  JinjaLexer(std::string_view source, std::string_view name) : left_(source), name_(name) {}

  std::vector<JinjaToken> run() {
    if (left_.size() > kMostBytes) fail("is longer than 1 MiB");
    if (left_.ends_with('\n')) left_.remove_suffix(1);
    while (!left_.empty()) {
      const size_t tag = next_tag();
      std::string_view text = left_.substr(0, tag);
      left_.remove_prefix(text.size());
      write(stripped(text));
      if (!left_.empty()) read_tag();
    }
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw UserError(cat("the chat template of '", name_, "' ", what,
                        ": only the templates that docs/data.md names can be used"));
  }

  size_t next_tag() const {
    for (size_t at = 0; (at = left_.find('{', at)) != std::string_view::npos; ++at) {
      const char next = at + 1 < left_.size() ? left_[at + 1] : ' ';
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return left_.size();
  }

  // `text` without what the tags around it take away; left_ begins with the next one.
  std::string_view stripped(std::string_view text) const {
    if (strip_next_) text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    if (left_.empty()) return text;
    if (left_.size() > 2 && left_[2] == '-')
      return text.substr(0, text.find_last_not_of(kSpace) + 1);
    if (left_[1] == '{') return text;
    // White space alone between the beginning of the line and the tag.
    const size_t line = text.rfind('\n') + 1;
    const bool from_line_begin = line > 0 || line_begins_;
    if (from_line_begin && text.find_first_not_of(kSpace, line) == std::string_view::npos)
      return text.substr(0, line);
    return text;
  }

  void write(std::string_view text) {
    if (text.empty()) return;
    tokens_.push_back({Kind::kMark, "{{"});
    tokens_.push_back({Kind::kLiteral, std::string(text)});
    tokens_.push_back({Kind::kMark, "}}"});
  }

  void read_tag() {
    const char kind = left_[1];
    const std::string_view end = kind == '{' ? "}}" : kind == '%' ? "%}" : "#}";
    left_.remove_prefix(2);
    if (left_.starts_with('+')) fail("has a tag with '+'");
    if (left_.starts_with('-')) left_.remove_prefix(1);
    if (kind == '#') {
      const size_t at = left_.find(end);
      if (at == std::string_view::npos) fail("has a comment without an end");
      strip_next_ = at > 0 && left_[at - 1] == '-';
      left_.remove_prefix(at + end.size());
    } else {
      tokens_.push_back({Kind::kMark, kind == '{' ? "{{" : "{%"});
      read_code(end);
      tokens_.push_back({Kind::kMark, std::string(end)});
    }
    line_begins_ = false;
    if (strip_next_) {
      // All of the white space is gone, a line end at its end too.
      const size_t spaces = std::min(left_.find_first_not_of(kSpace), left_.size());
      line_begins_ = spaces > 0 && left_[spaces - 1] == '\n';
    } else if (kind != '{' && left_.starts_with('\n')) {
      left_.remove_prefix(1);
      line_begins_ = true;
    }
  }

  void read_code(std::string_view end) {
    for (;;) {
      left_.remove_prefix(std::min(left_.find_first_not_of(kSpace), left_.size()));
      if (left_.empty()) fail("has a tag without an end");
      strip_next_ = left_[0] == '-' && left_.substr(1).starts_with(end);
      if (strip_next_ || left_.starts_with(end)) {
        left_.remove_prefix(end.size() + (strip_next_ ? 1 : 0));
        return;
      }
      if (left_[0] == '\'' || left_[0] == '"') {
        tokens_.push_back({Kind::kLiteral, read_string()});
      } else if (is_word(left_[0])) {
        size_t size = 1;
        while (size < left_.size() && is_word(left_[size])) ++size;
        tokens_.push_back({Kind::kName, std::string(left_.substr(0, size))});
        left_.remove_prefix(size);
      } else {
        read_operator();
      }
    }
  }

  void read_operator() {
    for (std::string_view mark : {"==", "!=", "<=", ">=", "//", "**"}) {
      if (!left_.starts_with(mark)) continue;
      tokens_.push_back({Kind::kMark, std::string(mark)});
      left_.remove_prefix(mark.size());
      return;
    }
    if (std::string_view("+-*/%~|.,:()[]{}<>=").find(left_[0]) == std::string_view::npos) {
      fail(cat("has the sign '", left_[0], "' in a tag"));
    }
    tokens_.push_back({Kind::kMark, std::string(left_.substr(0, 1))});
    left_.remove_prefix(1);
    if (tokens_.back().text == "]") join_key();
  }

  // x['key'] becomes x.key.
  void join_key() {
    const size_t n = tokens_.size();
    if (n < 4 || tokens_[n - 2].kind != Kind::kLiteral || tokens_[n - 3].text != "[" ||
        tokens_[n - 3].kind != Kind::kMark)
      return;
    const JinjaToken& before = tokens_[n - 4];
    const std::string key = tokens_[n - 2].text;
    const bool indexed = before.kind == Kind::kName ? before.text != "in" && before.text != "if"
                                                    : before.text == "]";
    if (!indexed || before.kind == Kind::kLiteral || key.empty() ||
        std::isdigit(static_cast<unsigned char>(key[0])))
      return;
    for (char c : key)
      if (!is_word(c)) return;
    tokens_.resize(n - 3);
    tokens_.push_back({Kind::kMark, "."});
    tokens_.push_back({Kind::kName, key});
  }

  std::string read_string() {
    const char quote = left_[0];
    std::string text;
    size_t at = 1;
    for (; at < left_.size() && left_[at] != quote; ++at) {
      if (left_[at] != '\\') {
        text += left_[at];
        continue;
      }
      if (++at == left_.size()) break;
      switch (left_[at]) {
        case 'n': text += '\n'; break;
        case 't': text += '\t'; break;
        case 'r': text += '\r'; break;
        case '\\':
        case '\'':
        case '"': text += left_[at]; break;
        default: fail(cat("has the escape '\\", left_[at], "' in a string"));
      }
    }
    if (at >= left_.size()) fail("has a string without an end");
    left_.remove_prefix(at + 1);
    return text;
  }

  std::string_view left_, name_;
  std::vector<JinjaToken> tokens_;
  bool strip_next_ = false;  // the tag before ends in a minus
  bool line_begins_ = true;  // what the tag before took away ends a line
};

}  // namespace

std::vector<JinjaToken> jinja_tokens(std::string_view source, std::string_view name) {
  return JinjaLexer(source, name).run();
}

uint64_t fingerprint_of(std::span<const JinjaToken> tokens, std::span<const int> slots) {
  Hasher hasher;
  int literal = 0;
  for (const JinjaToken& token : tokens) {
    const bool slot = token.kind == Kind::kLiteral && std::ranges::count(slots, literal++) > 0;
    const std::string_view text = slot ? "" : std::string_view(token.text);
    const uint64_t head[2] = {static_cast<uint64_t>(token.kind), text.size()};
    hasher.add(head, sizeof head);
    hasher.add(text.data(), text.size());
  }
  return hasher.digest();
}

}  // namespace tessera
