#pragma once
#include <cstdint>

#include "backends/cpu/kernels/tiles.h"

namespace tessera::cpu {

// Rows and columns of C that one thread computes at a time.
struct MatmulTile {
  int64_t rows, columns;
};

// `largest`, halved in its longer direction until C[m, n] has at least 8 tiles (4 cores are then
// busy to the end within a quarter), but not below 128.
constexpr MatmulTile matmul_tile(int64_t m, int64_t n, MatmulTile largest) {
  constexpr int64_t kEnough = 8, kLeast = 128;
  MatmulTile tile = largest;
  while (ceil_div(m, tile.rows) * ceil_div(n, tile.columns) < kEnough) {
    int64_t& longer = tile.rows > tile.columns ? tile.rows : tile.columns;
    if (longer <= kLeast) break;
    longer /= 2;
  }
  return tile;
}

}  // namespace tessera::cpu
