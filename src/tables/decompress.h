#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "tables/byte_buffer.h"

namespace tessera {

enum class Codec { kNone, kSnappy, kGzip, kBrotli, kZstd, kLz4Block, kLz4Frame };

// Unpacks into `out`, which becomes `raw_size` bytes long. Damaged where `in` unpacks to another
// size, or is so short that it cannot unpack to this one, before anything is allocated; Unsupported
// where `raw_size` exceeds `limit`.
void decompress(Codec codec, std::span<const std::byte> in, uint64_t raw_size, uint64_t limit,
                ByteBuffer& out);

}  // namespace tessera
