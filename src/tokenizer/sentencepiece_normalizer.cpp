#include "tokenizer/sentencepiece_normalizer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tokenizer/segmenter.h"

namespace tessera {
namespace {

using Prefix = SentencePieceModel::Prefix;

constexpr std::string_view kReplacementCharacter = "\uFFFD";

PieceTrie user_defined_pieces(const SentencePieceModel& model, const std::string& name) {
  std::vector<PieceTrie::Entry> entries;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    if (model.charsmap.empty() || piece.kind != SentencePieceModel::Kind::kUserDefined) continue;
    entries.push_back({piece.text, 0});
  }
  return PieceTrie(std::move(entries), name);
}

bool beyond_ascii(char c) { return static_cast<unsigned char>(c) >= 0x80; }

}  // namespace

SentencePieceNormalizer::SentencePieceNormalizer(const SentencePieceModel& model,
                                                 const std::string& name)
    : charsmap_(model.charsmap),
      user_defined_(user_defined_pieces(model, name)),
      prefix_(model.prefix),
      prefix_once_(model.prefix_once),
      collapse_spaces_(model.collapse_spaces),
      escape_spaces_(model.escape_spaces),
      keep_invalid_(model.keep_invalid) {
  for (unsigned char byte = 0; byte < 128; ++byte) {
    uint32_t node = PieceTrie::kRoot;
    plain_[byte] = charsmap_.keeps(byte) && !user_defined_.step(node, byte);
  }
  if (collapse_spaces_) plain_[' '] = false;
}

SentencePieceNormalizer::Unit SentencePieceNormalizer::next(std::string_view text) const {
  if (!charsmap_.empty()) {
    if (size_t size = user_defined_.longest(text).size) return {size, text.substr(0, size)};
    Charsmap::Match match = charsmap_.longest(text);
    if (match.size > 0) return {match.size, match.replacement};
  }
  CodePoint first = code_point_at(text, 0);
  if (first.value >= 0 || keep_invalid_) return {first.size, text.substr(0, first.size)};
  return {1, kReplacementCharacter};
}

bool SentencePieceNormalizer::has_prefix(std::string_view text, bool first) const {
  if (prefix_ == Prefix::kNone || (prefix_once_ && !first)) return false;
  bool there = text.starts_with(' ') || text.starts_with(kSpaceSymbol);
  return prefix_ == Prefix::kSpace || !there;
}

// How many bytes stay as they are at the beginning of `text`, as far as is easily told.
size_t SentencePieceNormalizer::plain_size(std::string_view text) const {
  size_t size = 0;
  while (size < text.size() && plain_[static_cast<unsigned char>(text[size])]) ++size;
  // A rule may take an ASCII character together with what follows.
  if (size > 0 && size < text.size() && beyond_ascii(text[size]) && !charsmap_.empty()) --size;
  return size;
}

void SentencePieceNormalizer::append(std::string_view unit, std::string& normalized) const {
  if (escape_spaces_ && unit.find(kSpaceSymbol) != std::string_view::npos) {
    normalized += with_spaces(unit);
  } else {
    normalized += unit;
  }
}

std::string SentencePieceNormalizer::normalize(std::string_view text, bool first) const {
  if (collapse_spaces_) {
    while (!text.empty()) {
      Unit unit = next(text);
      if (unit.replacement != " ") break;
      text.remove_prefix(unit.size);
    }
  }
  std::string normalized;
  if (text.empty()) return normalized;
  normalized.reserve(text.size() + 1);
  if (has_prefix(text, first)) normalized += ' ';
  bool after_space = collapse_spaces_;
  while (!text.empty()) {
    if (size_t size = plain_size(text)) {
      normalized += text.substr(0, size);
      text.remove_prefix(size);
      after_space = false;
      continue;
    }
    Unit unit = next(text);
    text.remove_prefix(unit.size);
    if (after_space) {
      unit.replacement.remove_prefix(
          std::min(unit.replacement.find_first_not_of(' '), unit.replacement.size()));
    }
    if (unit.replacement.empty()) continue;
    append(unit.replacement, normalized);
    after_space = collapse_spaces_ && unit.replacement.back() == ' ';
  }
  if (collapse_spaces_) normalized.resize(normalized.find_last_not_of(' ') + 1);
  return normalized;
}

}  // namespace tessera
