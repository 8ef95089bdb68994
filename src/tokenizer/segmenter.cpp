#include "tokenizer/segmenter.h"

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

}  // namespace tessera
