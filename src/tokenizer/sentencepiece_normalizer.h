#pragma once
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "tokenizer/charsmap.h"
#include "tokenizer/piece_trie.h"
#include "tokenizer/sentencepiece_model.h"

namespace tessera {

// What SentencePiece does with text before it cuts it into pieces: the charsmap's rules (not where
// a user-defined piece stands), spaces collapsed, a space in front. In its result a space is always
// a space: where the model escapes spaces, U+2581 in the text has become one too, as both are the
// same to the model.
class SentencePieceNormalizer {
 public:
  // The model must have been checked. UserError when its user-defined pieces need too large a trie;
  // `name` is for the message.
  SentencePieceNormalizer(const SentencePieceModel& model, const std::string& name);

  // `first`: nothing of the document stands before the text.
  std::string normalize(std::string_view text, bool first) const;

 private:
  struct Unit {
    size_t size;  // of the text
    std::string_view replacement;
  };
  // What the beginning of `text`, which is not empty, becomes.
  Unit next(std::string_view text) const;
  bool has_prefix(std::string_view text, bool first) const;
  size_t plain_size(std::string_view text) const;
  void append(std::string_view unit, std::string& normalized) const;

  Charsmap charsmap_;
  PieceTrie user_defined_;  // as they are written; only where there are rules
  SentencePieceModel::Prefix prefix_;
  bool prefix_once_, collapse_spaces_, escape_spaces_, keep_invalid_;
  std::array<bool, 256> plain_{};  // bytes that stay as they are unless beyond ASCII follows
};

}  // namespace tessera
