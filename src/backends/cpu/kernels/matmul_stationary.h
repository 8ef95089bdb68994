#pragma once
// The product of bf16 on AMX. A block of A stays in a thread's L2 while panels of B, packed before,
// stream past it. What comes next is packed, and what is done is written, in the shadow of the tile
// instructions. matmul_stationary.cpp cuts the work, amx/matmul.cpp does the arithmetic.
#include <cstdint>

#include "backends/cpu/kernels/matmul_packed.h"

namespace tessera::cpu {

// Declines weaker instruction sets and f32.
std::unique_ptr<const Matmul> make_amx_matmul(const MatmulProblem& problem, Isa isa);

// A part of an operand and where its panels go. A panel is a unit's lines (rows of op(A), columns
// of op(B)), one unit of depth after the other; lines and depths that are not there become zeros.
struct PanelSource {
  const void* data = nullptr;  // bf16, the first line at the first depth
  int64_t stride = 0;          // leading dimension in elements
  bool depth_is_contiguous = false;
  bool columns = false;  // of B; rows of A else
  int64_t lines = 0, depths = 0;
  char* out = nullptr;  // null: nothing to pack
};

// A block of A and the columns of B that are to be multiplied with it.
struct StationaryProduct {
  const char *a, *b;  // packed
  int64_t row_panels, column_panels, units;
  // [column panel][row panel] of unit x unit where they are kept from one piece of the depth to the
  // next; else those of one column panel.
  float* sums;
  bool keeps_sums;
  bool begins, ends;    // the first piece of the depth, the last
  MatmulResult result;  // where it ends
};

struct StationaryKernels {
  int64_t unit;        // lines, and depths, of a unit
  int64_t unit_bytes;  // packed
  // Packs all of x.
  void (*pack)(const PanelSource& x);
  // Multiplies, and packs `ahead` meanwhile.
  void (*multiply)(const StationaryProduct& x, const PanelSource& ahead);
};

// How a product is cut is the same whatever does its arithmetic.
std::unique_ptr<const Matmul> make_stationary_matmul(const MatmulProblem& problem,
                                                     const StationaryKernels& kernels);

namespace amx {
extern const StationaryKernels kStationaryKernels;
}

}  // namespace tessera::cpu
