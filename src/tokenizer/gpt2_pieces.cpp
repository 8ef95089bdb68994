#include "tokenizer/gpt2_pieces.h"

#include <utf8proc.h>

#include <array>
#include <cstdint>

namespace tessera {
namespace {

enum class Kind : uint8_t { kLetter, kNumber, kSpace, kOther };

struct Character {
  Kind kind;
  size_t size;
};

bool is_white_space(utf8proc_int32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

struct Range {
  utf8proc_int32_t first, last;
  Kind kind;
};

// The letters and numbers that Unicode 15.1 and 16.0 added: libutf8proc 2.8 has 15.0.
constexpr Range kNewer[] = {{0x1C89, 0x1C8A, Kind::kLetter},   {0xA7CB, 0xA7CD, Kind::kLetter},
                            {0xA7DA, 0xA7DC, Kind::kLetter},   {0x105C0, 0x105F3, Kind::kLetter},
                            {0x10D40, 0x10D49, Kind::kNumber}, {0x10D4A, 0x10D65, Kind::kLetter},
                            {0x10D6F, 0x10D85, Kind::kLetter}, {0x10EC2, 0x10EC4, Kind::kLetter},
                            {0x11380, 0x11389, Kind::kLetter}, {0x1138B, 0x1138B, Kind::kLetter},
                            {0x1138E, 0x1138E, Kind::kLetter}, {0x11390, 0x113B5, Kind::kLetter},
                            {0x113B7, 0x113B7, Kind::kLetter}, {0x113D1, 0x113D1, Kind::kLetter},
                            {0x113D3, 0x113D3, Kind::kLetter}, {0x116D0, 0x116E3, Kind::kNumber},
                            {0x11BC0, 0x11BE0, Kind::kLetter}, {0x11BF0, 0x11BF9, Kind::kNumber},
                            {0x13460, 0x143FA, Kind::kLetter}, {0x16100, 0x1611D, Kind::kLetter},
                            {0x16130, 0x16139, Kind::kNumber}, {0x16D40, 0x16D6C, Kind::kLetter},
                            {0x16D70, 0x16D79, Kind::kNumber}, {0x18CFF, 0x18CFF, Kind::kLetter},
                            {0x1CCF0, 0x1CCF9, Kind::kNumber}, {0x1E5D0, 0x1E5ED, Kind::kLetter},
                            {0x1E5F0, 0x1E5F0, Kind::kLetter}, {0x1E5F1, 0x1E5FA, Kind::kNumber},
                            {0x2EBF0, 0x2EE5D, Kind::kLetter}};

Kind newer_kind_of(utf8proc_int32_t code_point) {
  for (const Range& range : kNewer) {
    if (code_point >= range.first && code_point <= range.last) return range.kind;
  }
  return Kind::kOther;
}

Kind kind_of(utf8proc_int32_t code_point) {
  if (is_white_space(code_point)) return Kind::kSpace;
  utf8proc_category_t category = utf8proc_category(code_point);
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) return Kind::kLetter;
  if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) return Kind::kNumber;
  return category == UTF8PROC_CATEGORY_CN ? newer_kind_of(code_point) : Kind::kOther;
}

const std::array<Kind, 128>& ascii_kinds() {
  static const std::array<Kind, 128> kinds = [] {
    std::array<Kind, 128> table{};
    for (size_t c = 0; c < 128; ++c) table[c] = kind_of(static_cast<utf8proc_int32_t>(c));
    return table;
  }();
  return kinds;
}

Character beyond_ascii(std::string_view text, size_t position) {
  utf8proc_int32_t code_point = 0;
  size_t rest = text.size() - position;
  utf8proc_ssize_t size =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + position,
                       static_cast<utf8proc_ssize_t>(rest < 4 ? rest : 4), &code_point);
  if (size <= 0) return {Kind::kOther, 1};  // invalid UTF-8
  return {kind_of(code_point), static_cast<size_t>(size)};
}

class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text), ascii_(ascii_kinds()) {}

  Character at(size_t position) const {
    auto byte = static_cast<unsigned char>(text_[position]);
    return byte < 128 ? Character{ascii_[byte], 1} : beyond_ascii(text_, position);
  }

  // The end of the run of `kind` from `position` on.
  size_t run_end(size_t position, Kind kind) const {
    while (position < text_.size()) {
      Character next = at(position);
      if (next.kind != kind) break;
      position += next.size;
    }
    return position;
  }

  // `\s+(?!\S)|\s+`: a run before other text leaves it its last character.
  size_t space_end(size_t position, size_t first_size) const {
    size_t last = position, end = position + first_size;
    while (end < text_.size()) {
      Character next = at(end);
      if (next.kind != Kind::kSpace) return last == position ? end : last;
      last = end;
      end += next.size;
    }
    return end;
  }

 private:
  std::string_view text_;
  const std::array<Kind, 128>& ascii_;
};

// Length of a leading 's 't 're 've 'm 'll 'd, or 0.
size_t contraction_size(std::string_view rest) {
  if (rest.size() < 2) return 0;
  switch (rest[1]) {
    case 's':
    case 't':
    case 'm':
    case 'd': return 2;
    case 'r':
    case 'v': return rest.size() > 2 && rest[2] == 'e' ? 3 : 0;
    case 'l': return rest.size() > 2 && rest[2] == 'l' ? 3 : 0;
    default: return 0;
  }
}

}  // namespace

size_t piece_end(std::string_view text, size_t begin) {
  Cursor cursor(text);
  if (text[begin] == '\'') {
    if (size_t size = contraction_size(text.substr(begin))) return begin + size;
  }
  Character first = cursor.at(begin);
  if (first.kind != Kind::kSpace) return cursor.run_end(begin + first.size, first.kind);
  if (text[begin] == ' ' && begin + 1 < text.size()) {
    Character second = cursor.at(begin + 1);
    if (second.kind != Kind::kSpace) return cursor.run_end(begin + 1 + second.size, second.kind);
  }
  return cursor.space_end(begin, first.size);
}

size_t piece_boundary(std::string_view text, size_t position) {
  // Where white space follows a character that is none, a piece ends whatever came before.
  for (size_t i = position == 0 ? 1 : position; i < text.size(); ++i) {
    auto before = static_cast<unsigned char>(text[i - 1]);
    if ((text[i] == ' ' || text[i] == '\n') && before > ' ' && before < 0x7F) return i;
  }
  return text.size();
}

}  // namespace tessera
