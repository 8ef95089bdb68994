#include "backends/cpu/kernels/sum_n.h"

#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

template <class T>
void sum_as(const SumN& args, int64_t begin, int64_t end) {
  for_vectors(end - begin, [&](auto lanes, int64_t i) {
    Vec total = lanes.load((const T*)args.x[0] + begin + i);
    for (int64_t k = 1; k < args.count; ++k) total += lanes.load((const T*)args.x[k] + begin + i);
    lanes.store((T*)args.y + begin + i, total);
  });
}

}  // namespace

void sum_n_range(const SumN& args, int64_t begin, int64_t end) {
  if (args.dtype == DType::kF32) {
    sum_as<float>(args, begin, end);
  } else {
    sum_as<BF16>(args, begin, end);
  }
}

}  // namespace tessera::cpu::TESSERA_ISA
