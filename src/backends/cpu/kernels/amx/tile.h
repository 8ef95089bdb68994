#pragma once
// AMX's tile registers. Included where kernels are compiled with the AMX flags only. The rule for
// included headers is that of isa/simd.h.
//
// Instructions are written as assembly with a memory clobber: g++ 12's intrinsics for ldtilecfg and
// tileloadd do not say that they read memory, and the compiler drops or moves the stores before
// them.
#include <immintrin.h>

#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {

// For its lifetime, all 8 tile registers of this thread are 16 rows of 64 bytes.
class TileScope {
 public:
  __attribute__((always_inline)) TileScope() {
    Config config;
    for (int tile = 0; tile < 8; ++tile) config.row_bytes[tile] = 64, config.rows[tile] = 16;
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  __attribute__((always_inline)) ~TileScope() { asm volatile("tilerelease"); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  };
};

template <int tile>
TESSERA_INLINE void tile_load(const char* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
}
// The same, for what L1 is not to keep.
template <int tile>
TESSERA_INLINE void tile_load_passing(const char* from, int64_t stride) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
TESSERA_INLINE void tile_store(char* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
TESSERA_INLINE void tile_zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(tile));
}
template <int sum, int left, int right>
TESSERA_INLINE void tile_multiply() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(left), "i"(right));
}

}  // namespace tessera::cpu::TESSERA_ISA
