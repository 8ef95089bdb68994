// A tokenizer.json from anywhere is refused with a UserError, or makes a tokenizer that gives every
// text back and survives being written.
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
    BpeModel model = parse_tokenizer_json(text, "fuzz");
    ByteLevelBpe tokenizer(model);
    std::vector<int32_t> ids;
    tokenizer.encode(text, ids);
    if (tokenizer.decode(ids) != text) std::abort();
    if (parse_tokenizer_json(format_tokenizer_json(model), "again") != model) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
