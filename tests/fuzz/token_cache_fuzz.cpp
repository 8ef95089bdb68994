#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "data/token_cache.h"

// Any bytes as a token cache: refused, or ids that can all be read. Its two hashes are put right
// when the first byte is odd, so that what stands behind them is reached.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  static const auto file =
      std::filesystem::temp_directory_path() / cat("tessera_token_cache_fuzz_", ::getpid());
  set_log_level(LogLevel::kError);
  if (size == 0) return 0;
  std::string content(reinterpret_cast<const char*>(data) + 1, size - 1);
  uint64_t fingerprint = 0;
  if (content.size() >= 64) {
    char* trailer = content.data() + content.size() - 64;
    if (data[0] % 2 == 1) {
      uint64_t hash = hash_bytes(content.data(), content.size() - 64);
      std::memcpy(trailer + 48, &hash, 8);
      hash = hash_bytes(trailer, 56);
      std::memcpy(trailer + 56, &hash, 8);
    }
    std::memcpy(&fingerprint, trailer + 40, 8);
  }
  write_file_atomic(file, content);
  if (auto cache = open_token_cache(file, fingerprint)) {
    const int64_t count = cache->tokens().count();
    if (count < 0 || count > static_cast<int64_t>(content.size())) std::abort();
    std::vector<int32_t> ids(static_cast<size_t>(count));
    cache->tokens().copy(0, ids);
  }
  std::filesystem::remove(file);
  return 0;
}
