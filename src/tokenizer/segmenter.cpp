#include "tokenizer/segmenter.h"

#include <utf8proc.h>

#include <algorithm>

namespace tessera {

UnknownCharacters::UnknownCharacters(const SentencePieceModel& model)
    : byte_fallback_(model.byte_fallback),
      escape_spaces_(model.escape_spaces),
      unknown_(model.unknown) {
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].kind != SentencePieceModel::Kind::kByte) continue;
    byte_ids_[static_cast<size_t>(byte_of_piece(model.pieces[id].text))] = static_cast<int32_t>(id);
  }
}

void UnknownCharacters::append(std::string_view character, std::vector<int32_t>& ids) const {
  if (!byte_fallback_) {
    ids.push_back(unknown_);
    return;
  }
  if (escape_spaces_ && character == " ") character = kSpaceSymbol;
  for (char byte : character) ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
}

std::optional<std::string> normalized_piece(const SentencePieceModel& model, size_t id) {
  const std::string& text = model.pieces[id].text;
  if (!model.escape_spaces) return text;
  if (text.find(' ') != std::string::npos) return std::nullopt;
  return with_spaces(text);
}

CodePoint code_point_at(std::string_view text, size_t position) {
  auto first = static_cast<unsigned char>(text[position]);
  if (first < 0x80) return {first, 1};
  utf8proc_int32_t code_point = -1;
  utf8proc_ssize_t size = utf8proc_iterate(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + position,
      static_cast<utf8proc_ssize_t>(std::min<size_t>(text.size() - position, 4)), &code_point);
  if (size <= 0) return {-1, 1};
  return {code_point, static_cast<size_t>(size)};
}

}  // namespace tessera
