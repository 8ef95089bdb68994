#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// What a byte-level BPE tokenizer has learned; the content of its file.
struct BpeModel {
  // Two neighbours become one. The position in the list is the rank: lower ranks merge first.
  struct Merge {
    int32_t left, right, result;
    bool operator==(const Merge&) const = default;
  };

  std::vector<std::string> tokens;  // by id: the bytes a token stands for; a special token's name
  std::vector<Merge> merges;        // no pair twice; result's bytes are left's and then right's
  std::vector<int32_t> special;     // ids that text never becomes, ascending
  int32_t end_of_text = -1;         // one of `special`

  bool operator==(const BpeModel&) const = default;
};

}  // namespace tessera
