#include "tokenizer/gpt2_pieces.h"

#include "tokenizer/character_kinds.h"

namespace tessera {
namespace {

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

size_t gpt2_piece_end(std::string_view text, size_t begin) {
  CharacterReader characters(text);
  if (text[begin] == '\'') {
    if (size_t size = contraction_size(text.substr(begin))) return begin + size;
  }
  Character first = characters.at(begin);
  if (first.kind != CharacterKind::kSpace) {
    return characters.run_end(begin + first.size, first.kind);
  }
  if (text[begin] == ' ' && begin + 1 < text.size()) {
    Character second = characters.at(begin + 1);
    if (second.kind != CharacterKind::kSpace) {
      return characters.run_end(begin + 1 + second.size, second.kind);
    }
  }
  return characters.space_end(begin);
}

size_t gpt2_piece_boundary(std::string_view text, size_t position) {
  // Where white space follows a character that is none, a piece ends whatever came before.
  for (size_t i = position == 0 ? 1 : position; i < text.size(); ++i) {
    auto before = static_cast<unsigned char>(text[i - 1]);
    if ((text[i] == ' ' || text[i] == '\n') && before > ' ' && before < 0x7F) return i;
  }
  return text.size();
}

}  // namespace tessera
