#include "backends/cpu/kernels/embedding.h"

#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

template <class T>
void sum(const T* dy, float* out, int64_t width, const int32_t* tokens, int64_t count,
         int64_t columns) {
  __builtin_memset(out, 0, (size_t)columns * sizeof(float));
  for (int64_t n = 0; n < count; ++n) {
    const T* row = dy + tokens[n] * width;
    for_vectors(columns, [&](auto lanes, int64_t i) {
      lanes.store(out + i, lanes.load(out + i) + lanes.load(row + i));
    });
  }
}

}  // namespace

void embedding_sum_tokens(const EmbeddingBackward& args, int64_t row, const int32_t* tokens,
                          int64_t count, int64_t column, int64_t columns) {
  if (args.adds && count == 0) return;
  float* out = args.dtable + row * args.width + column;
  float of_tokens[kEmbeddingColumns];
  float* result = args.adds ? of_tokens : out;
  if (args.dtype == DType::kF32) {
    sum((const float*)args.dy + column, result, args.width, tokens, count, columns);
  } else {
    sum((const BF16*)args.dy + column, result, args.width, tokens, count, columns);
  }
  if (!args.adds) return;
  for_vectors(columns, [&](auto lanes, int64_t i) {
    lanes.store(out + i, lanes.load(out + i) + lanes.load(of_tokens + i));
  });
}

}  // namespace tessera::cpu::TESSERA_ISA
