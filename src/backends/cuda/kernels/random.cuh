// The random numbers of base/random.h, to the bit.
#pragma once
#include "elements.cuh"

namespace tessera::cuda {

struct RandomWords {
  uint32_t word[4];
};
__device__ __forceinline__ RandomWords philox(uint64_t key, uint64_t stream, uint64_t index) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  uint32_t c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32),
           c2 = static_cast<uint32_t>(stream), c3 = static_cast<uint32_t>(stream >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = multiply_wide(0xD2511F53u, c0), b = multiply_wide(0xCD9E8D57u, c2);
    const uint32_t next0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0,
                   next2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c0 = next0;
    c1 = static_cast<uint32_t>(b);
    c2 = next2;
    c3 = static_cast<uint32_t>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Element `index` of the stream is bits16(philox(key, stream, call_of(index)), index): elements
// 4c to 4c + 3 and 4c + 64 to 4c + 67 of a block of 128 come from one call.
__device__ __forceinline__ uint64_t call_of(uint64_t index) {
  return index / 128 * 16 + index % 64 / 4;
}
__device__ __forceinline__ uint32_t bits16(const RandomWords& r, uint64_t index) {
  // Without an index into registers.
  const uint32_t pair = static_cast<uint32_t>(index % 128 / 64);
  const uint32_t low = pair ? r.word[2] : r.word[0], high = pair ? r.word[3] : r.word[1];
  const uint32_t word = index % 4 / 2 ? high : low;
  return index % 2 ? word >> 16 : word & 0xffffu;
}
__device__ __forceinline__ uint32_t random_bits16(uint64_t key, uint64_t stream, uint64_t index) {
  return bits16(philox(key, stream, call_of(index)), index);
}

// Number of the first element of a line of a rank's part that begins at `begin`.
__device__ __forceinline__ int64_t line_begin(const RandomPlaces& p, int64_t line, int64_t begin) {
  return (line / p.run * p.whole_run + begin * p.lines_of_begin + line % p.run) * p.pitch +
         begin * p.columns_of_begin;
}

}  // namespace tessera::cuda
