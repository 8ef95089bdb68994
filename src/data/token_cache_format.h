#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/hash.h"

namespace tessera {

// The last bytes of a token cache, little-endian (token_cache.h has the layout).
struct TokenCacheTrailer {
  static constexpr std::array<char, 8> kMagic{'T', 'S', 'R', 'T', 'O', 'K', 'E', 'N'};
  static constexpr uint32_t kVersion = 2;

  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t width = 0;
  uint64_t count = 0, text_bytes = 0, documents = 0, fingerprint = 0;
  uint64_t learned_at = 0, offsets_at = 0;
  uint64_t ids_hash = 0, learned_hash = 0, offsets_hash = 0, trailer_hash = 0;

  uint64_t own_hash() const { return hash_bytes(this, offsetof(TokenCacheTrailer, trailer_hash)); }
};
static_assert(sizeof(TokenCacheTrailer) == 96);
static_assert(std::endian::native == std::endian::little, "token caches are little-endian");

// Every part begins at a multiple of 8 bytes, behind zeros.
constexpr uint64_t padded_to_8(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

// Bytes of the bits of `count` tokens: whole words of 64, at least one bit more than tokens.
constexpr uint64_t learned_bytes(uint64_t count) { return 8 * (count / 64 + 1); }

// Bytes of an id.
constexpr uint32_t token_width(int64_t vocab_size) { return vocab_size <= 65536 ? 2 : 4; }

}  // namespace tessera
