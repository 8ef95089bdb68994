#include "backends/cpu/kernels/dropout.h"

#include "backends/cpu/kernels/isa/random.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

template <class T>
void line(const T* x, T* y, int64_t n, uint64_t key, uint64_t stream, int64_t first,
          int32_t threshold, float scale) {
  uint16_t bits[kRandomBlock + kLanes] = {};  // partial vectors read behind the block
  RandomKey row_key = random_key(key, stream);
  for (int64_t i = 0; i < n;) {
    int64_t offset = (first + i) % kRandomBlock, rest = n - i;
    int64_t count = rest < kRandomBlock - offset ? rest : kRandomBlock - offset;
    random_block(row_key, (uint64_t)((first + i) / kRandomBlock), bits);
    for_vectors(count, [&](auto lanes, int64_t j) {
      lanes.store(y + i + j,
                  keep_by_bits(lanes.load(x + i + j), bits + offset + j, threshold, scale));
    });
    i += count;
  }
}

}  // namespace

void dropout_line(DType dtype, const void* x, void* y, int64_t n, uint64_t key, uint64_t stream,
                  int64_t first, int32_t threshold, float scale) {
  if (dtype == DType::kF32)
    return line((const float*)x, (float*)y, n, key, stream, first, threshold, scale);
  line((const BF16*)x, (BF16*)y, n, key, stream, first, threshold, scale);
}

}  // namespace tessera::cpu::TESSERA_ISA
