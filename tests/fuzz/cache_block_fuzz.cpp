#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "remote/block_cache.h"

// Any bytes as a file of the block cache: what is taken for the block is one, to the byte. They
// also serve as content, whose file is then damaged in one place.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  auto file = std::as_bytes(std::span(data, size));
  if (block_flaw(file, 5, "identity").empty()) {
    auto content = file.first(size - kBlockTrailerBytes);
    std::string trailer = block_trailer(content, 5, "identity");
    std::string_view stored(reinterpret_cast<const char*>(data) + content.size(),
                            kBlockTrailerBytes);
    if (stored != trailer) std::abort();
  }
  std::string good(reinterpret_cast<const char*>(data), size);
  good += block_trailer(file, 5, "identity");
  if (!block_flaw(std::as_bytes(std::span(good)), 5, "identity").empty()) std::abort();
  good[size == 0 ? 0 : data[0] % good.size()] ^= 1;
  if (block_flaw(std::as_bytes(std::span(good)), 5, "identity").empty()) std::abort();
  return 0;
}
