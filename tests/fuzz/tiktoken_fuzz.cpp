// A file of ranks is refused with a UserError or makes a tokenizer that gives every text back.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tokenizer/byte_level_bpe.h"
#include "tokenizer/tiktoken.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    ByteLevelBpe tokenizer(parse_tiktoken(text, "fuzz", true));
    std::vector<int32_t> ids;
    tokenizer.encode(text, ids);
    if (tokenizer.decode(ids) != text) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
