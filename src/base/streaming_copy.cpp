#include "base/streaming_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/error.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace tessera {

void streaming_copy(std::span<std::byte> to, std::span<const std::byte> from) {
  TESSERA_CHECK(to.size() >= from.size());
  std::byte* out = to.data();
  const std::byte* in = from.data();
  size_t left = from.size();
  auto copy = [&](size_t bytes) {
    if (bytes > 0) std::memcpy(out, in, bytes);
    out += bytes;
    in += bytes;
    left -= bytes;
  };
#ifdef __SSE2__
  constexpr size_t kLine = 64;  // whole lines are written without being read
  copy(std::min(left, -reinterpret_cast<uintptr_t>(out) % kLine));
  for (; left >= kLine; out += kLine, in += kLine, left -= kLine) {
    auto* line = reinterpret_cast<__m128i*>(out);
    const auto* read = reinterpret_cast<const __m128i*>(in);
    for (int k = 0; k < 4; ++k) _mm_stream_si128(line + k, _mm_loadu_si128(read + k));
  }
  _mm_sfence();
#endif
  copy(left);
}

}  // namespace tessera
