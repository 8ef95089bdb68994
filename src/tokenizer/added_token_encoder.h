#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

// A tokenizer of a file with added tokens: all its ways to encode are one, which is told where the
// names of special tokens are those tokens.
class AddedTokenEncoder : public Tokenizer {
 public:
  void encode(std::string_view text, std::vector<int32_t>& ids) const final {
    encode_text({text, {}}, {}, ids, nullptr);
  }
  void encode_prompt(std::string_view text, std::vector<int32_t>& ids) const final {
    ids.insert(ids.end(), document_prefix().begin(), document_prefix().end());
    encode_text({text, {}}, {.anywhere = true}, ids, nullptr);
  }
  std::vector<EncodedRun> encode_marked(const MarkedText& text,
                                        std::vector<int32_t>& ids) const final {
    std::vector<EncodedRun> runs;
    encode_text(text, {.ranges = text.markup}, ids, &runs);
    return runs;
  }

 protected:
  // The runs go into `runs` if that is not null.
  virtual void encode_text(const MarkedText& marked, SpecialNames special,
                           std::vector<int32_t>& ids, std::vector<EncodedRun>* runs) const = 0;
};

}  // namespace tessera
