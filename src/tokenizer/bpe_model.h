#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tokenizer/added_tokens.h"

namespace tessera {

// How text is cut into the pieces inside which tokens merge.
enum class PiecePattern : uint8_t {
  kGpt2,    // gpt2_pieces.h
  kLlama3,  // llama3_pieces.h
  kQwen2,   // the same, one digit at a time
};

// What a byte-level BPE tokenizer has learned, and what it does with text before; the content of
// its files.
struct BpeModel {
  // Two neighbours become one. The position in the list is the rank: lower ranks merge first.
  struct Merge {
    int32_t left, right, result;
    bool operator==(const Merge&) const = default;
  };

  // By id: the bytes a token stands for, an added token's text; empty for ids that are not in use.
  std::vector<std::string> tokens;
  std::vector<Merge> merges;      // no pair twice; result's bytes are left's and then right's
  std::vector<AddedToken> added;  // ascending by id
  int32_t end_of_text = -1;       // a special one of `added`
  std::vector<int32_t> document_prefix;  // ids before every document, such as Llama-3's bos

  PiecePattern pattern = PiecePattern::kGpt2;
  bool nfc = false;             // normalize text first (nfc.h)
  bool whole_pieces = false;    // a piece that is a token is taken whole (`ignore_merges`)
  bool rank_is_result = false;  // the id of a merge's result is its rank (tiktoken)

  const AddedToken* find_added(int32_t id) const {
    auto found = std::ranges::lower_bound(added, id, {}, &AddedToken::id);
    return found != added.end() && found->id == id ? &*found : nullptr;
  }
  // Whether text becomes the token by merging.
  bool is_ordinary(int32_t id) const {
    const AddedToken* token = find_added(id);
    return !token || token->ordinary;
  }

  bool operator==(const BpeModel&) const = default;
};

}  // namespace tessera
