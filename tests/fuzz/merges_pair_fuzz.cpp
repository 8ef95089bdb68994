// GPT-2's pair of files, parted by a zero byte, is refused with a UserError or makes a tokenizer
// that gives every text back.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tokenizer/byte_level_bpe.h"
#include "tokenizer/merges_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  size_t end = std::min(text.find('\0'), size);
  try {
    ByteLevelBpe tokenizer(
        parse_merges_pair(text.substr(0, end), text.substr(std::min(end + 1, size)), "fuzz"));
    std::vector<int32_t> ids;
    tokenizer.encode(text, ids);
    if (tokenizer.decode(ids) != text) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
