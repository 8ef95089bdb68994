#include "backends/cpu/kernels/elementwise.h"

#include <cstring>

#include "backends/cpu/kernels/tiles.h"

namespace tessera::cpu {
namespace {
constexpr int64_t kElements = 32768;  // of a tile: 128 KiB of f32, some ten microseconds
constexpr int64_t kBytes = 262144;    // of a tile of copy()
}  // namespace

void add(DType dtype, const void* a, const void* b, void* y, int64_t n, Isa isa, ThreadPool& pool) {
  auto range = TESSERA_SELECT(isa, add_range);
  for_ranges(pool, n, kElements,
             [&](int64_t begin, int64_t end) { range(dtype, a, b, y, begin, end); });
}

void add_bias(DType dtype, const void* x, const void* bias, void* y, int64_t rows, int64_t width,
              Isa isa, ThreadPool& pool) {
  auto range = TESSERA_SELECT(isa, add_bias_rows);
  for_ranges(pool, rows, rows_per_tile(width),
             [&](int64_t begin, int64_t end) { range(dtype, x, bias, y, width, begin, end); });
}

void scale(DType dtype, const void* x, const float* factor, void* y, int64_t n, Isa isa,
           ThreadPool& pool) {
  auto range = TESSERA_SELECT(isa, scale_range);
  float value = *factor;
  for_ranges(pool, n, kElements,
             [&](int64_t begin, int64_t end) { range(dtype, x, value, y, begin, end); });
}

void cast_to_bf16(const float* x, BF16* y, int64_t n, Isa isa, ThreadPool& pool) {
  auto range = TESSERA_SELECT(isa, narrow_range);
  for_ranges(pool, n, kElements, [&](int64_t begin, int64_t end) { range(x, y, begin, end); });
}

void cast_to_f32(const BF16* x, float* y, int64_t n, Isa isa, ThreadPool& pool) {
  auto range = TESSERA_SELECT(isa, widen_range);
  for_ranges(pool, n, kElements, [&](int64_t begin, int64_t end) { range(x, y, begin, end); });
}

void cast_to_f16(const float* x, F16* y, int64_t n, Isa isa, ThreadPool& pool) {
  auto range = TESSERA_SELECT(isa, narrow_half_range);
  for_ranges(pool, n, kElements, [&](int64_t begin, int64_t end) { range(x, y, begin, end); });
}

void cast_to_f32(const F16* x, float* y, int64_t n, Isa isa, ThreadPool& pool) {
  auto range = TESSERA_SELECT(isa, widen_half_range);
  for_ranges(pool, n, kElements, [&](int64_t begin, int64_t end) { range(x, y, begin, end); });
}

void copy(const void* x, void* y, int64_t bytes, ThreadPool& pool) {
  for_ranges(pool, bytes, kBytes, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(y) + begin, static_cast<const char*>(x) + begin,
                static_cast<size_t>(end - begin));
  });
}

}  // namespace tessera::cpu
