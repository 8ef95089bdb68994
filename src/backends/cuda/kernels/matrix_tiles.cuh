// Where vectors of 16 bytes lie in tiles of shared memory, so that ldmatrix, which reads eight rows at
// a time, finds them in different banks.
#pragma once

namespace tessera::cuda {

// Rows of 4 vectors.
__device__ __forceinline__ int narrow_place(int row, int vector) {
  return row * 4 + (vector ^ (row / 2 % 4));
}
// Rows of 16 vectors.
__device__ __forceinline__ int wide_place(int row, int vector) {
  return row * 16 + (vector ^ (row % 8));
}

}  // namespace tessera::cuda
