#include "tokenizer/character_kinds.h"

#include <utf8proc.h>

#include <algorithm>

namespace tessera {
namespace {

using Kind = CharacterKind;

struct Range {
  int32_t first, last;
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

Kind newer_kind_of(int32_t code_point) {
  for (const Range& range : kNewer) {
    if (code_point >= range.first && code_point <= range.last) return range.kind;
  }
  return Kind::kOther;
}

bool is_white_space(int32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

}  // namespace

CharacterKind kind_of(int32_t code_point) {
  if (is_white_space(code_point)) return Kind::kSpace;
  utf8proc_category_t category = utf8proc_category(code_point);
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) return Kind::kLetter;
  if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) return Kind::kNumber;
  return category == UTF8PROC_CATEGORY_CN ? newer_kind_of(code_point) : Kind::kOther;
}

Character CharacterReader::beyond_ascii(size_t position) const {
  utf8proc_int32_t code_point = 0;
  size_t rest = std::min<size_t>(text_.size() - position, 4);
  utf8proc_ssize_t size =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text_.data()) + position,
                       static_cast<utf8proc_ssize_t>(rest), &code_point);
  if (size <= 0) return {Kind::kOther, 1};  // invalid UTF-8
  return {kind_of(code_point), static_cast<size_t>(size)};
}

}  // namespace tessera
