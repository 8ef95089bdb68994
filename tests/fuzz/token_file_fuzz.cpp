#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/token_file.h"
#include "tests/fuzz/memory_source.h"

// Any bytes as a token file: refused, or ids of which each can be read or is refused. The first
// byte chooses vocabulary and width.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  if (size == 0) return 0;
  const int64_t vocab_size = data[0] % 2 == 0 ? 50257 : 128256;
  const int width = data[0] / 2 % 3 * 2;
  try {
    TokenFile file(std::make_shared<MemorySource>(std::string(data + 1, data + size)), vocab_size,
                   width);
    const int64_t count = file.tokens().count();
    if (count < 0 || static_cast<uint64_t>(count) * 2 > size) std::abort();
    std::vector<int32_t> id(1);
    for (int64_t i = 0; i < count; ++i) {
      try {
        file.tokens().copy(i, id);
        if (id[0] < 0 || id[0] >= vocab_size) std::abort();
      } catch (const UserError&) {
      }
    }
  } catch (const UserError&) {
  }
  return 0;
}
