#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace tessera {

__extension__ typedef unsigned __int128 Uint128;

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): four
// 32-bit words as a function of a 64-bit key and a 128-bit counter. Every random number of the
// program is philox(key, stream, index): nothing depends on the order or the place in which it is
// drawn.
inline std::array<uint32_t, 4> philox(uint64_t key, uint64_t stream, uint64_t index) {
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  std::array<uint32_t, 4> c{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                            static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
  for (int round = 0; round < 10; ++round) {
    uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// 16 random bits, element `index` of the stream. A call of philox gives eight of them; their order
// lets kernels make 128 neighbours at once and store them as they come, for any width of vectors.
inline uint32_t random_bits16(uint64_t key, uint64_t stream, uint64_t index) {
  uint64_t block = index / 128, call = index % 64 / 4;
  uint32_t word = philox(key, stream, block * 16 + call)[index % 128 / 64 * 2 + index % 4 / 2];
  return index % 2 == 0 ? word & 0xffffu : word >> 16;
}

// FNV-1a of a name: the stream of a parameter, or of a purpose ("data.order").
constexpr uint64_t stream_of(std::string_view name) {
  uint64_t h = 0xcbf29ce484222325u;
  for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

// Uniform in [0, 1) with 32 random bits; element `index` of the stream.
inline double random_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  return philox(seed, stream, index / 4)[index % 4] * 0x1p-32;
}

// Standard normals by Box-Muller: elements 2k and 2k+1 of the stream.
inline std::array<double, 2> random_normal_pair(uint64_t seed, uint64_t stream, uint64_t k) {
  auto r = philox(seed, stream, k);
  double u1 = (static_cast<double>(r[0]) + 0.5) * 0x1p-32;
  double u2 = (static_cast<double>(r[1]) + 0.5) * 0x1p-32;
  double radius = std::sqrt(-2.0 * std::log(u1));
  double angle = 6.283185307179586476925 * u2;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// Element `index` of the stream of normals.
inline double random_normal(uint64_t seed, uint64_t stream, uint64_t index) {
  return random_normal_pair(seed, stream, index / 2)[index % 2];
}

// Uniform integer in [0, n), n > 0, by multiply-shift on 64 random bits.
inline uint64_t random_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n) {
  auto r = philox(seed, stream, index);
  uint64_t bits = (uint64_t{r[1]} << 32) | r[0];
  return static_cast<uint64_t>((static_cast<Uint128>(bits) * n) >> 64);
}

}  // namespace tessera
