#include "tokenizer/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>

#include "base/error.h"
#include "tokenizer/character_kinds.h"
#include "tokenizer/code_points.h"

namespace tessera {
namespace {

int32_t byte_at(std::string_view text, size_t position) {
  return static_cast<unsigned char>(text[position]);
}

// `\w` of UTS 18: Alphabetic, marks, decimal numbers, connectors and joiners.
bool is_word_character(int32_t code_point) {
  switch (utf8proc_category(code_point)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    case UTF8PROC_CATEGORY_SO:  // letters in circles and squares
      return (code_point >= 0x24B6 && code_point <= 0x24E9) ||
             (code_point >= 0x1F130 && code_point <= 0x1F149) ||
             (code_point >= 0x1F150 && code_point <= 0x1F169) ||
             (code_point >= 0x1F170 && code_point <= 0x1F189);
    default:
      return code_point == 0x200C || code_point == 0x200D ||
             kind_of(code_point) == CharacterKind::kLetter;
  }
}

bool is_word_before(std::string_view text, size_t end) {
  return end > 0 && is_word_character(code_point_at(text, character_before(text, end)).value);
}

bool is_word_at(std::string_view text, size_t begin) {
  return begin < text.size() && is_word_character(code_point_at(text, begin).value);
}

}  // namespace

int32_t count_without_special_tail(int32_t count, std::span<const AddedToken> added,
                                   std::initializer_list<int32_t> needed,
                                   std::span<const int32_t> document_prefix) {
  for (; !added.empty(); --count, added = added.first(added.size() - 1)) {
    const AddedToken& last = added.back();
    if (last.id != count - 1 || !last.special || last.ordinary ||
        std::ranges::find(needed, last.id) != needed.end() ||
        std::ranges::find(document_prefix, last.id) != document_prefix.end())
      break;
  }
  return count;
}

bool SpecialNames::hold(size_t begin, size_t end) const {
  if (anywhere) return true;
  auto range = std::ranges::upper_bound(ranges, begin + offset, {}, &TextRange::begin);
  return range != ranges.begin() && end + offset <= (range - 1)->end;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, bool spaces_are_symbols)
    : tokens_(std::move(tokens)), token_of_(1, -1), spaces_are_symbols_(spaces_are_symbols) {
  for (size_t index = 0; index < tokens_.size(); ++index) {
    const std::string& text = tokens_[index].text;
    TESSERA_CHECK(!text.empty(), "an added token without text");
    TESSERA_CHECK(tokens_[index].normalized == tokens_[0].normalized);
    all_special_ = all_special_ && tokens_[index].special;
    int32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      auto fresh = static_cast<int32_t>(token_of_.size());
      auto [child, inserted] = children_.insert(node, byte_at(text, i), fresh);
      if (inserted) token_of_.push_back(-1);
      node = child;
    }
    auto& token = token_of_[static_cast<size_t>(node)];
    if (token < 0) token = static_cast<int32_t>(index);
    auto first = static_cast<size_t>(byte_at(text, 0));
    for (size_t second = 0; second < 256; ++second) {
      if (text.size() == 1 || second == static_cast<size_t>(byte_at(text, 1))) {
        first_two_.set(first << 8 | second);
      }
    }
  }
}

bool AddedTokens::longest_at(std::string_view text, size_t position, Match& match) const {
  int32_t node = 0;
  bool found = false;
  for (size_t i = position; i < text.size(); ++i) {
    const int32_t* child = children_.find(node, byte_at(text, i));
    if (!child) break;
    node = *child;
    int32_t token = token_of_[static_cast<size_t>(node)];
    if (token < 0) continue;
    match = {position, i + 1, static_cast<size_t>(token), {position, i + 1}};
    found = true;
  }
  return found;
}

bool AddedTokens::strips(std::string_view text, size_t& position) const {
  if (spaces_are_symbols_ && text[position] == ' ') return false;
  auto character = CharacterReader(text).at(position);
  if (character.kind != CharacterKind::kSpace) return false;
  position += character.size;
  return true;
}

bool AddedTokens::next(std::string_view text, const SpecialNames& special, size_t done,
                       size_t& from, Match& match) const {
  if (tokens_.empty() || (all_special_ && special.nowhere())) return false;
  for (size_t i = from; i < text.size(); ++i) {
    size_t two = static_cast<size_t>(byte_at(text, i)) << 8;
    if (i + 1 < text.size()) two |= static_cast<size_t>(byte_at(text, i + 1));
    // The last byte may be a token of its own: the search below tells.
    if (i + 1 < text.size() && !first_two_[two]) continue;
    if (!longest_at(text, i, match)) continue;
    from = match.end;
    const AddedToken& token = tokens_[match.token];
    i = match.end - 1;  // what is not taken is passed over all the same
    if (token.special && !special.hold(match.begin, match.end)) continue;
    if (token.single_word && (is_word_before(text, match.begin) || is_word_at(text, match.end))) {
      continue;
    }
    if (token.strip_left) {
      while (match.begin > done) {
        size_t before = character_before(text, match.begin), end = before;
        if (!strips(text.substr(0, match.begin), end)) break;
        match.begin = before;
      }
    }
    while (token.strip_right && match.end < text.size() && strips(text, match.end)) {
    }
    // Swallowed by the token before, where both take white space.
    if (token.strip_left && match.begin < done) match.begin = done;
    if (match.begin >= match.end) continue;
    return true;
  }
  return false;
}

}  // namespace tessera
