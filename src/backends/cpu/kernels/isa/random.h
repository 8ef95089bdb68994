#pragma once
// The 16 bit numbers of base/random.h, 128 at a time. Included by kernels/isa/*.cpp and
// kernels/amx/*.cpp only: see the rule in isa/simd.h.
#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {

// Each lane holds a 32 bit word in its low half; the high half is left as it comes.
typedef uint64_t WordVec __attribute__((vector_size(kLanes * 4)));
constexpr int kWords = kLanes / 2;

// The 64 bit product of the low halves.
TESSERA_INLINE WordVec multiply_words(WordVec a, uint64_t factor) {
#if defined(__AVX512F__)
  return (WordVec)_mm512_maskz_mul_epu32(0xff, (__m512i)a, _mm512_set1_epi64((int64_t)factor));
#elif defined(__AVX2__)
  return (WordVec)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x((int64_t)factor));
#elif defined(__SSE2__)
  return (WordVec)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x((int64_t)factor));
#elif defined(__aarch64__)
  return (WordVec)vmull_u32(vmovn_u64((uint64x2_t)a), vdup_n_u32((uint32_t)factor));
#else
  return (a & 0xffffffffu) * factor;
#endif
}

// Keys of the ten rounds, and the half of the counters that names the stream.
struct RandomKey {
  WordVec rounds[10][2], stream[2];
};
TESSERA_INLINE RandomKey random_key(uint64_t key, uint64_t stream) {
  RandomKey k;
  for (uint32_t round = 0; round < 10; ++round) {
    k.rounds[round][0] = WordVec{} + (uint64_t)((uint32_t)key + round * 0x9E3779B9u);
    k.rounds[round][1] = WordVec{} + (uint64_t)((uint32_t)(key >> 32) + round * 0xBB67AE85u);
  }
  k.stream[0] = WordVec{} + stream;
  k.stream[1] = WordVec{} + (stream >> 32);
  return k;
}

// out[i] = random_bits16(key, stream, 128 * block + i). Ten rounds of philox on 16 counters; the
// two halves of out are words 0, 1 and words 2, 3 of each.
TESSERA_INLINE void random_block(const RandomKey& key, uint64_t block, uint16_t* out) {
#if defined(__AVX512F__)
  constexpr WordVec kNumbers = {0, 1, 2, 3, 4, 5, 6, 7};
#elif defined(__AVX2__)
  constexpr WordVec kNumbers = {0, 1, 2, 3};
#else
  constexpr WordVec kNumbers = {0, 1};
#endif
  for (uint64_t first = 0; first < 16; first += kWords) {
    WordVec c0 = kNumbers + (block * 16 + first), c1 = c0 >> 32;
    WordVec c2 = key.stream[0], c3 = key.stream[1];
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      WordVec a = multiply_words(c0, 0xD2511F53u), b = multiply_words(c2, 0xCD9E8D57u);
      c0 = (b >> 32) ^ c1 ^ key.rounds[round][0];
      c1 = b;
      c2 = (a >> 32) ^ c3 ^ key.rounds[round][1];
      c3 = a;
    }
    WordVec low = (c0 & 0xffffffffu) | (c1 << 32), high = (c2 & 0xffffffffu) | (c3 << 32);
    __builtin_memcpy(out + 4 * first, &low, sizeof low);
    __builtin_memcpy(out + 64 + 4 * first, &high, sizeof high);
  }
}

// x * scale where the bits are at least the threshold, else 0, even where x is NaN.
TESSERA_INLINE Vec keep_by_bits(Vec x, const uint16_t* bits, int32_t threshold, float scale) {
  HalfVec words;
  __builtin_memcpy(&words, bits, sizeof words);
#if defined(__AVX512F__)
  __m512i wide = _mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)words);
  __mmask16 kept = _mm512_cmpge_epi32_mask(wide, _mm512_set1_epi32(threshold));
  return (Vec)_mm512_maskz_mul_ps(kept, (__m512)x, _mm512_set1_ps(scale));
#else
  IntVec wide = __builtin_convertvector(words, IntVec);
  return wide >= threshold ? x * scale : Vec{};
#endif
}

}  // namespace tessera::cpu::TESSERA_ISA
