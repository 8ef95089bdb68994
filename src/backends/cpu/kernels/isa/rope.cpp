#include "backends/cpu/kernels/rope.h"

#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

template <class T>
void rotate(const Rope& args, int64_t begin, int64_t end) {
  int64_t half = args.rotary / 2, rest = args.width - args.rotary;
  float sign = args.inverse ? -1.0f : 1.0f;
  for (int64_t token = begin; token < end; ++token) {
    int64_t position = token % args.tokens;
    if (args.start) position += args.start[token / args.tokens];
    if (args.document_starts) position -= args.document_starts[token];
    const float* cos = args.cos + position * half;
    const float* sin = args.sin + position * half;
    for (int64_t head = 0; head < args.heads; ++head) {
      const T* x = (const T*)args.x + token * args.x_stride + head * args.width;
      T* y = (T*)args.y + token * args.y_stride + head * args.width;
      for_vectors(half, [&](auto lanes, int64_t i) {
        Vec a = lanes.load(x + i), b = lanes.load(x + half + i);
        Vec c = lanes.load(cos + i), s = lanes.load(sin + i) * sign;
        lanes.store(y + i, a * c - b * s);
        lanes.store(y + half + i, b * c + a * s);
      });
      if (rest > 0 && x != y) {
        __builtin_memcpy((void*)(y + args.rotary), x + args.rotary, (size_t)rest * sizeof(T));
      }
    }
  }
}

}  // namespace

void rope_tokens(const Rope& args, int64_t begin, int64_t end) {
  if (args.dtype == DType::kF32) return rotate<float>(args, begin, end);
  rotate<BF16>(args, begin, end);
}

}  // namespace tessera::cpu::TESSERA_ISA
