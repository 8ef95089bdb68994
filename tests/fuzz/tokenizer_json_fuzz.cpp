// A tokenizer.json from anywhere is refused with a UserError, or makes a tokenizer that gives every
// text back, unless it was asked to change it, and survives being written.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tokenizer/byte_level_bpe.h"
#include "tokenizer/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    BpeModel model = parse_byte_level_json(text, "fuzz");
    ByteLevelBpe tokenizer(model);
    std::vector<int32_t> ids;
    tokenizer.encode_prompt(text, ids);
    ids.clear();
    tokenizer.encode(text, ids);
    bool changes = model.nfc || std::ranges::any_of(model.added, [](const AddedToken& token) {
                     return token.strip_left || token.strip_right;
                   });
    if (!changes && tokenizer.decode(ids) != text) std::abort();
    if (parse_byte_level_json(format_tokenizer_json(model), "again") != model) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
