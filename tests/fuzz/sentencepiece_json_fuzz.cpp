// A tokenizer.json of SentencePiece's kind from anywhere is refused with a UserError, or makes a
// tokenizer whose ids of any text lie in its vocabulary; with byte fallback and no added tokens but
// special ones it gives every text back but for what its form says.
#include <algorithm>
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
  std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    SentencePieceModel model = sentencepiece_model(parse_tokenizer_file(text, "fuzz"), "");
    SentencePieceTokenizer tokenizer(model, "fuzz");
    std::vector<int32_t> ids;
    tokenizer.encode_prompt(text, ids);
    ids.clear();
    tokenizer.encode(text, ids);
    for (int32_t id : ids) {
      if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
    }
    using Kind = SentencePieceModel::Kind;
    bool has_space = std::ranges::any_of(model.pieces, [](const SentencePieceModel::Piece& piece) {
      return piece.kind == Kind::kNormal && piece.text == kSpaceSymbol;
    });
    bool cuts = std::ranges::any_of(
        model.added, [](const AddedToken& token) { return !token.special || token.normalized; });
    std::string spaced = with_spaces(text);
    if (!model.byte_fallback || !has_space || cuts || spaced.starts_with(' ')) return 0;
    if (tokenizer.decode(ids) != spaced) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
