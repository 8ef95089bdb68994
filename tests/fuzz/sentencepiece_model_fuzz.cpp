// A SentencePiece model from anywhere is refused with a UserError, or makes a tokenizer whose ids
// of any text lie in its vocabulary, and which is written as a tokenizer.json or refused.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/sentencepiece_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  std::string_view file(reinterpret_cast<const char*>(data), size);
  try {
    SentencePieceTokenizer tokenizer(parse_sentencepiece(file, "fuzz"), "fuzz");
    for (std::string_view text : {file, file.substr(size / 2)}) {
      std::vector<int32_t> ids;
      tokenizer.encode(text, ids);
      tokenizer.encode_prompt(text, ids);
      for (int32_t id : ids) {
        if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
      }
      tokenizer.decode(ids);
    }
    format_tokenizer_json(tokenizer.model(), "fuzz");
  } catch (const UserError&) {
  }
  return 0;
}
