#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "data/token_cache.h"
#include "data/token_cache_format.h"

namespace {

using namespace tessera;

class Bytes final : public ByteSource {
 public:
  explicit Bytes(const std::string& content) : content_(content) {}
  std::string name() const override { return "input"; }
  uint64_t size() const override { return content_.size(); }
  void read(uint64_t offset, std::span<std::byte> out) const override {
    if (offset > size() || out.size() > size() - offset) std::abort();
    std::memcpy(out.data(), content_.data() + offset, out.size());
  }

 private:
  const std::string& content_;
};

// Makes the hashes those of the parts that the last bytes describe.
void put_hashes_right(std::string& content, TokenCacheTrailer& trailer) {
  const uint64_t stored = content.size() - sizeof trailer;
  auto hash = [&](uint64_t begin, uint64_t end) {
    return begin <= end && end <= stored ? hash_bytes(content.data() + begin, end - begin) : 0;
  };
  const bool has_bits = trailer.learned_at != 0;
  trailer.ids_hash = hash(0, has_bits ? trailer.learned_at : trailer.offsets_at);
  trailer.learned_hash = has_bits ? hash(trailer.learned_at, trailer.offsets_at) : 0;
  trailer.offsets_hash = hash(trailer.offsets_at, stored);
  trailer.trailer_hash = trailer.own_hash();
  std::memcpy(content.data() + stored, &trailer, sizeof trailer);
}

// Everything of it can be read. Where nobody has looked at its content, reading may say that it is
// damaged.
void read_all(const TokenCache& cache, size_t size) {
  const int64_t count = cache.tokens().count(), documents = cache.documents();
  if (count < 0 || count > static_cast<int64_t>(size)) std::abort();
  if (documents < 0 || documents > count) std::abort();
  std::vector<int32_t> ids(static_cast<size_t>(count)), targets(ids.size());
  cache.tokens().copy(0, ids);
  cache.tokens().copy_targets(0, targets);
  int64_t next = 0;
  cache.document_view().for_each([&](TokenRange range) {
    if (range.begin != next || range.end <= range.begin || range.end > count) std::abort();
    next = range.end;
  });
  if (next != count) std::abort();
}

}  // namespace

// Any bytes as a token cache: refused, or ids and documents that can all be read. Its hashes are
// put right when the first byte is odd, so that what stands behind them is reached.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string content(reinterpret_cast<const char*>(data) + 1, size - 1);
  TokenCacheTrailer trailer;
  if (content.size() >= sizeof trailer) {
    std::memcpy(&trailer, content.data() + content.size() - sizeof trailer, sizeof trailer);
    if (data[0] % 2 == 1) put_hashes_right(content, trailer);
  }
  for (auto check : {TokenCache::Check::kContent, TokenCache::Check::kSizes}) {
    try {
      TokenCache cache(std::make_shared<Bytes>(content), check);
      try {
        read_all(cache, content.size());
      } catch (const UserError&) {
        if (check == TokenCache::Check::kContent) std::abort();
      }
    } catch (const UserError&) {
    }
  }
  return 0;
}
