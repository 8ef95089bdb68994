#pragma once
#include <cstdint>

#include "backends/cpu/kernels/isa.h"
#include "base/dtype.h"
#include "base/float16.h"

namespace tessera {
class ThreadPool;
}

// Kernels over flat buffers of n elements. `dtype` is kF32 or kBF16; arithmetic is in f32, each
// result is rounded once. An output may be one of its inputs.
namespace tessera::cpu {

// y = a + b
void add(DType dtype, const void* a, const void* b, void* y, int64_t n, Isa isa, ThreadPool& pool);
// y[r, j] = x[r, j] + bias[j], [rows, width]
void add_bias(DType dtype, const void* x, const void* bias, void* y, int64_t rows, int64_t width,
              Isa isa, ThreadPool& pool);
// y = x * *factor, the factor read when the kernel runs
void scale(DType dtype, const void* x, const float* factor, void* y, int64_t n, Isa isa,
           ThreadPool& pool);
// f32 to bf16 or f16 (nearest even), bf16 or f16 to f32 (exact). y is not x.
void cast_to_bf16(const float* x, BF16* y, int64_t n, Isa isa, ThreadPool& pool);
void cast_to_f32(const BF16* x, float* y, int64_t n, Isa isa, ThreadPool& pool);
void cast_to_f16(const float* x, F16* y, int64_t n, Isa isa, ThreadPool& pool);
void cast_to_f32(const F16* x, float* y, int64_t n, Isa isa, ThreadPool& pool);
// Bytes of any dtype. y does not overlap x.
void copy(const void* x, void* y, int64_t bytes, ThreadPool& pool);

TESSERA_DECLARE_PER_ISA(void add_range(DType dtype, const void* a, const void* b, void* y,
                                       int64_t begin, int64_t end))
TESSERA_DECLARE_PER_ISA(void add_bias_rows(DType dtype, const void* x, const void* bias, void* y,
                                           int64_t width, int64_t begin, int64_t end))
TESSERA_DECLARE_PER_ISA(void scale_range(DType dtype, const void* x, float factor, void* y,
                                         int64_t begin, int64_t end))
TESSERA_DECLARE_PER_ISA(void narrow_range(const float* x, BF16* y, int64_t begin, int64_t end))
TESSERA_DECLARE_PER_ISA(void widen_range(const BF16* x, float* y, int64_t begin, int64_t end))
TESSERA_DECLARE_PER_ISA(void narrow_half_range(const float* x, F16* y, int64_t begin, int64_t end))
TESSERA_DECLARE_PER_ISA(void widen_half_range(const F16* x, float* y, int64_t begin, int64_t end))

}  // namespace tessera::cpu
