#include "backends/cpu/kernels/cross_entropy.h"

#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

constexpr float kInfinity = __builtin_inff();
// The row is read twice, for maximum and sum, in blocks that stay in the first-level cache. Blocks
// are short because they are summed in f32; their sums are added in f64.
constexpr int64_t kBlock = 512;

// sum_j e^x[j] = sum * e^shift
struct ScaledSum {
  float shift;
  double sum;
};

// The running sum is rescaled when a block raises the maximum (Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018). A block of minus infinities is shifted by 0: their
// difference would be NaN.
template <class T>
ScaledSum sum_of_exponentials(const T* x, int64_t size) {
  float highest = -kInfinity;
  ScaledSum total{0, 0};
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const T* block = x + begin;
    int64_t count = size - begin < kBlock ? size - begin : kBlock;
    Vec maxima = splat(highest);
    for_vectors(count, [&](auto lanes, int64_t i) {
      maxima = max(lanes.load(block + i, -kInfinity), maxima);
    });
    highest = max_lanes(maxima);
    float shift = highest == -kInfinity ? 0.0f : highest;
    Vec sum{};
    for_vectors(count, [&](auto lanes, int64_t i) {
      sum += exp(lanes.load(block + i, -kInfinity) - shift);
    });
    total.sum = total.sum * (double)exp(splat(total.shift - shift))[0] + (double)sum_lanes(sum);
    total.shift = shift;
  }
  return total;
}

template <class T, class G>
void gradient(const T* x, G* dx, int64_t size, int64_t target, ScaledSum total, float scale) {
  float factor = (float)(scale / total.sum);
  float hit = (float)(exp(splat(load_one(x + target) - total.shift))[0] / total.sum);
  for_vectors(size, [&](auto lanes, int64_t i) {
    lanes.store(dx + i, exp(lanes.load(x + i) - total.shift) * factor);
  });
  store_one(dx + target, (hit - 1.0f) * scale);
}

template <class T>
void row_of(const CrossEntropyRows& args, int64_t row) {
  const T* x = (const T*)args.logits + row * args.classes;
  int64_t target = args.targets[row];
  ScaledSum total = sum_of_exponentials(x, args.classes);
  double log_sum = __builtin_log(total.sum);
  args.lse[row] = (float)(total.shift + log_sum);
  args.loss[row] = (float)((double)total.shift - load_one(x + target) + log_sum);
  if (args.dlogits == nullptr) return;
  if (args.dlogits_dtype == DType::kF32) {
    gradient(x, (float*)args.dlogits + row * args.classes, args.classes, target, total,
             *args.scale);
  } else {
    gradient(x, (BF16*)args.dlogits + row * args.classes, args.classes, target, total, *args.scale);
  }
}

}  // namespace

void cross_entropy_row(const CrossEntropyRows& args, int64_t row) {
  if (args.dtype == DType::kF32) return row_of<float>(args, row);
  row_of<BF16>(args, row);
}

}  // namespace tessera::cpu::TESSERA_ISA
