#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/piece_trie.h"
#include "tokenizer/segmenter.h"

namespace tessera {

// What a piece counts for: its score; of user-defined pieces one that no others can reach, of those
// that text never becomes 0.
float unigram_score(const SentencePieceModel::Piece& piece);

// The unigram language model (Kudo, "Subword Regularization", 2018): of all ways to cut the text
// into pieces the one whose scores have the highest sum. Sums are of f32 from the first character
// of the text on and rounded as SentencePiece (0.2.3) rounds them, so that its ids are met in long
// texts too, where rounding decides.
class Unigram final : public Segmenter {
 public:
  // The model must have been checked. UserError, with `name` for the message, when its pieces need
  // too large a trie.
  Unigram(const SentencePieceModel& model, const std::string& name);

  void encode(std::string_view text, std::vector<int32_t>& ids) const override;

 private:
  // The best way to the end of a character.
  struct Best {
    float score = 0;
    uint32_t size = 0;  // of the last piece; 0: no way is known
    int32_t id = -1;    // of the last piece; -1: unknown
  };
  class Search;

  PieceTrie trie_;
  float unknown_score_;
  size_t longest_ = 4;  // bytes of a piece, or of a character
  UnknownCharacters unknown_;
};

}  // namespace tessera
