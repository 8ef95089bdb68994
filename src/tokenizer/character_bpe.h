#pragma once
#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/pair_map.h"
#include "tokenizer/pair_merges.h"
#include "tokenizer/piece_trie.h"
#include "tokenizer/segmenter.h"

namespace tessera {

// BPE over characters, as SentencePiece does it: user-defined pieces are taken out, leftmost and
// longest first; of the others neighbours merge over the whole text, the pair whose piece has the
// highest score first (lowest rank, where the model lists its merges), leftmost among equals.
//
// Between two characters that stand side by side in no piece nothing ever merges, so text is cut
// there without a change of its ids. The runs between cuts are mostly words, and are remembered.
class CharacterBpe final : public Segmenter {
 public:
  static constexpr size_t kMaxMerges = size_t{1} << 22;

  // The model must have been checked. UserError, with `name` for the message, when more than
  // kMaxMerges pairs of pieces merge or the user-defined pieces need too large a trie.
  CharacterBpe(const SentencePieceModel& model, const std::string& name);

  // Time O(n log n), however long the words.
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;

 private:
  friend class CharacterBpeBuilder;

  int32_t symbol_of(CodePoint character) const;
  bool joins(int32_t left, int32_t right) const;
  void encode_run(std::string_view run, std::vector<int32_t>& ids) const;
  // Puts what stands for them in the place of symbols, from position `first` on.
  void replace(std::vector<int32_t>& symbols, size_t first) const;

  // Symbols are pieces by id and, from the number of pieces on, characters that only longer pieces
  // have.
  PairMap<int32_t> symbols_;  // (code point, 0) to the symbol of a character
  std::array<int32_t, 128> ascii_symbols_{};
  PairMap<bool> joins_;  // symbols of characters that stand side by side in a piece
  std::array<std::bitset<128>, 128> ascii_joins_{};
  PairMerges merges_;
  // What stands for symbols that are no result: unused pieces, characters without a piece.
  std::unordered_map<int32_t, std::vector<int32_t>> replaced_;
  UnknownCharacters unknown_;
  PieceTrie user_defined_;
  std::bitset<256> user_defined_starts_;
  uint64_t owner_;  // of the threads' piece caches
};

}  // namespace tessera
