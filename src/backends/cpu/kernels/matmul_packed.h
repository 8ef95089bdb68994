#pragma once
// Our own matrix product, but for bf16 on AMX (matmul_stationary.h). matmul_packed.cpp cuts the
// work into tiles, isa/matmul_packed.cpp (any dtype, vectors of f32), bf16/matmul.cpp (bf16, dot
// products of pairs), neon/matmul.cpp (bf16, products of 2 x 4 by 4 x 2) and amx/matmul_f32.cpp
// (f32 in three parts of bf16, matrix tiles) do the arithmetic.
#include <cstdint>
#include <memory>

#include "backends/cpu/kernels/isa.h"
#include "backends/cpu/kernels/matmul.h"
#include "base/dtype.h"

namespace tessera::cpu {

// Of f32 on matrix tiles; declines weaker instruction sets and bf16.
std::unique_ptr<const Matmul> make_amx_f32_matmul(const MatmulProblem& problem, Isa isa);
// Of bf16 by AVX512-BF16's dot products or NEON's matrix products; declines other instruction sets
// and f32.
std::unique_ptr<const Matmul> make_bf16_matmul(const MatmulProblem& problem, Isa isa);
// Vectors of f32, bf16 widened while it is packed. Takes every problem.
std::unique_ptr<const Matmul> make_vector_matmul(const MatmulProblem& problem, Isa isa);

// A matrix seen as lines (rows of op(A), columns of op(B)) of `depth` elements each.
struct MatmulOperand {
  const void* data;
  DType dtype;               // f32 or bf16
  int64_t stride;            // leading dimension in elements
  bool depth_is_contiguous;  // element (line, p) is at line * stride + p, else at p * stride + line
};

// A block of a packed operand, in bytes: unit u of depth in panel p is at data + p * panel + u *
// unit.
struct MatmulBlock {
  const char* data;
  int64_t panel, unit;
};

// A part of C.
struct MatmulResult {
  void* c;
  DType dtype;  // f32 or bf16
  int64_t stride, rows, columns;
  bool accumulate;
  const void* bias;  // one a column, of dtype; or null
  bool streams;      // may be written past the caches: whole lines of 64 bytes
};

// Whether all of C is to be written past the caches (MatmulResult::streams).
bool streams_result(const MatmulProblem& problem, const void* c, int64_t reuse_distance);

// The arithmetic of one instruction set. Operands are packed in panels of `rows` lines of A or
// `columns` lines of B, depth by depth in an order that only these functions know; depths are
// packed in multiples of `depth_unit`, missing lines and depths as zeros.
struct MatmulKernels {
  int64_t rows, columns;            // of C, that one call of the innermost loop keeps in registers
  int64_t depth_unit;               // packed depth is rounded up to it
  int64_t element_bytes;            // of a packed element
  int64_t spare_depth;              // of a panel, after its last depth, that packing may write
  int64_t tile_rows, tile_columns;  // of C at most, that one thread computes at a time
  int64_t depth_block;              // depths for which it does so before the next ones follow
  bool packs_all;                   // there are no numbers for which packing returns false

  // Packs lines [line, line + lines), all `depth` of them, into panels `panel_stride` elements
  // apart. False where they cannot hold a number of x: vectors multiply it then.
  using Pack = bool(const MatmulOperand& x, int64_t line, int64_t lines, int64_t depth,
                    int64_t panel_stride, void* out);
  Pack* pack_rows;
  Pack* pack_columns;
  // sums = (first ? 0 : sums) + A B, or, given a result, C = or += that: the one place where
  // results are rounded. `depth` is a multiple of depth_unit; sums hold row_panels * rows *
  // column_panels * columns f32 and are not touched where `first` and `result` are both given.
  void (*multiply)(const MatmulBlock& a, const MatmulBlock& b, int64_t row_panels,
                   int64_t column_panels, int64_t depth, float* sums, bool first,
                   const MatmulResult* result);
};

// Constants and not functions: a plan for an instruction set reads them on machines that lack it.
TESSERA_DECLARE_PER_ISA(extern const MatmulKernels kMatmulKernels)
namespace amx {
extern const MatmulKernels kF32MatmulKernels;  // in three parts
}
namespace vdpbf16 {
extern const MatmulKernels kMatmulKernels;  // bf16
}
namespace bfmmla {
extern const MatmulKernels kMatmulKernels;  // bf16
}

}  // namespace tessera::cpu
