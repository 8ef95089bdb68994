#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "hub/saved_state.h"

// What is accepted are beginnings that no sum with a size makes overflow.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  try {
    const auto begins = parse_sharding({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const auto& entry : begins) {
      TESSERA_CHECK(entry.second.size() <= 32);
      for (int64_t begin : entry.second) TESSERA_CHECK(begin >= 0 && begin <= int64_t{1} << 48);
    }
  } catch (const UserError&) {
  }
  return 0;
}
