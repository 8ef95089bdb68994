#pragma once
// Rows of several documents for attention.
#include <string>
#include <utility>

#include "tests/backends/cpu/attention_run.h"

namespace tessera::cpu {

// Rows of T tokens in which documents of these lengths lie one behind the other, over and over;
// each row begins `shift` tokens further on than the one before, inside a document.
inline Starts document_starts(const AttentionProblem& p, const std::vector<int64_t>& lengths,
                              int64_t shift = 0) {
  Starts starts;
  for (int64_t b = 0; b < p.batch; ++b) {
    int64_t begin = -shift * b;
    for (size_t i = 0; begin < p.tokens; ++i) {
      int64_t end = std::min(begin + lengths[i % lengths.size()], p.tokens);
      for (int64_t t = std::max<int64_t>(begin, 0); t < end; ++t)
        starts.push_back(static_cast<int32_t>(std::max<int64_t>(begin, 0)));
      begin = end;
    }
  }
  return starts;
}

struct Layout {
  std::string name;
  std::vector<int64_t> lengths;
};
// Blocks have 64 tokens.
inline const Layout kLayouts[] = {{"one", {int64_t{1} << 30}},
                                  {"of one token", {1}},
                                  {"before blocks", {63, 64, 64}},
                                  {"of blocks", {64}},
                                  {"behind blocks", {65, 64, 64}},
                                  {"in the middle of a block", {96, 256}},
                                  {"mixed", {3, 130, 1, 1, 17, 64, 200, 5}}};

}  // namespace tessera::cpu
