#pragma once
#include <cstddef>
#include <span>

namespace tessera {

// Copies `from` to the beginning of `to`, which must not overlap it, past the caches where the
// processor can: for what nobody reads soon. What else is in the caches stays there, and memory is
// not read before it is written.
void streaming_copy(std::span<std::byte> to, std::span<const std::byte> from);

}  // namespace tessera
