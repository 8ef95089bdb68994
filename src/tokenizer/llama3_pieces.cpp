#include "tokenizer/llama3_pieces.h"

#include "tokenizer/character_kinds.h"

namespace tessera {
namespace {

using Kind = CharacterKind;

bool is_line_end(char c) { return c == '\r' || c == '\n'; }

// Length of a leading contraction in any case, or 0.
size_t contraction_size(std::string_view rest) {
  auto letter = [&](size_t i) {
    return i < rest.size() ? static_cast<char>(rest[i] | 0x20) : '\0';
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd': return 2;
    case 'r':
    case 'v': return letter(2) == 'e' ? 3 : 0;
    case 'l': return letter(2) == 'l' ? 3 : 0;
    default: return rest.substr(1).starts_with("\u017F") ? 3 : 0;  // the long s
  }
}

// `\s*[\r\n]+|\s+(?!\S)|\s+`: up to the last line end of the run; without one, as GPT-2.
size_t space_end(const CharacterReader& characters, std::string_view text, size_t begin) {
  size_t run_end = characters.run_end(begin, Kind::kSpace);
  for (size_t end = run_end; end > begin; --end) {
    if (is_line_end(text[end - 1])) return end;
  }
  return characters.space_end(begin);
}

// `[^\s\p{L}\p{N}]+[\r\n]*`
size_t other_end(const CharacterReader& characters, std::string_view text, size_t position) {
  size_t end = characters.run_end(position, Kind::kOther);
  while (end < text.size() && is_line_end(text[end])) ++end;
  return end;
}

size_t number_end(const CharacterReader& characters, std::string_view text, size_t position,
                  int digits) {
  for (int i = 0; i < digits && position < text.size(); ++i) {
    Character next = characters.at(position);
    if (next.kind != Kind::kNumber) break;
    position += next.size;
  }
  return position;
}

}  // namespace

size_t llama3_piece_end(std::string_view text, size_t begin, int digits) {
  CharacterReader characters(text);
  if (text[begin] == '\'') {
    if (size_t size = contraction_size(text.substr(begin))) return begin + size;
  }
  Character first = characters.at(begin);
  size_t next = begin + first.size;
  if (first.kind == Kind::kLetter) return characters.run_end(next, Kind::kLetter);
  if (first.kind == Kind::kNumber) return number_end(characters, text, begin, digits);
  if (next < text.size() && !is_line_end(text[begin])) {
    Character second = characters.at(next);
    if (second.kind == Kind::kLetter) {
      return characters.run_end(next + second.size, Kind::kLetter);
    }
    if (text[begin] == ' ' && second.kind == Kind::kOther) {
      return other_end(characters, text, next);
    }
  }
  if (first.kind == Kind::kOther) return other_end(characters, text, begin);
  return space_end(characters, text, begin);
}

}  // namespace tessera
