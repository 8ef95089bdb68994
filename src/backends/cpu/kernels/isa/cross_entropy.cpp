#include "backends/cpu/kernels/cross_entropy.h"

#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

constexpr float kInfinity = __builtin_inff();
// The row is read twice, for maximum and sum, in blocks that stay in the first-level cache. Blocks
// are short because they are summed in f32; their sums are added in f64. The next block is asked
// for ahead, since rows come from memory: a head with its gradients takes 0.96 of the time so.
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
    for_vectors_apart(count, [&](auto lanes, int64_t i) {
      __builtin_prefetch(block + kBlock + i);
      maxima = max(lanes.load(block + i, -kInfinity), maxima);
    });
    highest = max_lanes(maxima);
    float shift = highest == -kInfinity ? 0.0f : highest;
    Vec sum{};
    for_vectors_apart(count, [&](auto lanes, int64_t i) {
      sum += exp(lanes.load(block + i, -kInfinity) - shift);
    });
    // Without a sum so far there is no shift either: e^-shift may be infinite.
    if (total.sum != 0) total.sum *= (double)exp(splat(total.shift - shift))[0];
    total.sum += (double)sum_lanes(sum);
    total.shift = shift;
  }
  return total;
}

// dx = e^(x - shift) * factor. dx may be x, its elements of the same size or smaller: what is
// stored lies before what is still to be loaded.
template <class T, class G>
void scaled_exponentials(const T* x, G* dx, int64_t size, float shift, float factor) {
  for_vectors_apart(size, [&](auto lanes, int64_t i) {
    lanes.store(dx + i, exp(lanes.load(x + i) - shift) * factor);
  });
}

// `dlse` is what the square of lse adds to the factor of each probability.
template <class T, class G>
void gradient(const T* x, G* dx, int64_t size, int64_t target, ScaledSum total, float scale,
              float dlse) {
  float factor = (float)(((double)scale + dlse) / total.sum);
  float hit = (float)(exp(splat(load_one(x + target) - total.shift))[0] / total.sum);
  scaled_exponentials(x, dx, size, total.shift, factor);
  store_one(dx + target, (hit - 1.0f) * scale + hit * dlse);
}

template <class T>
void row_of(const CrossEntropyRows& args, int64_t row) {
  const T* x =
      (const T*)args.logits + row * (args.logits_stride == 0 ? args.classes : args.logits_stride);
  int64_t target = args.targets[row];
  ScaledSum total = sum_of_exponentials(x, args.classes);
  double log_sum = __builtin_log(total.sum);
  args.lse[row] = (float)(total.shift + log_sum);
  args.loss[row] = (float)((double)total.shift - load_one(x + target) + log_sum);
  if (args.dlogits == nullptr) return;
  float dlse = (float)(2.0 * *args.square_scale * (total.shift + log_sum));
  int64_t at = row * (args.dlogits_stride == 0 ? args.classes : args.dlogits_stride);
  if (args.dlogits_dtype == DType::kF32) {
    gradient(x, (float*)args.dlogits + at, args.classes, target, total, *args.scale, dlse);
  } else {
    gradient(x, (BF16*)args.dlogits + at, args.classes, target, total, *args.scale, dlse);
  }
}

bool inside(int32_t target, int64_t classes) { return target >= 0 && target < classes; }

template <class G>
void log_sum_exp_gradient(const LogSumExpGradientRows& args, int64_t row) {
  const float* x = args.logits + row * args.stride;
  G* dx = (G*)args.dlogits + row * (args.dlogits_stride == 0 ? args.stride : args.dlogits_stride);
  float lse = args.lse[row], dlse = args.dlse[row];
  int32_t target = args.targets[row];
  bool has_target = inside(target, args.classes);
  // Before the row is written: dx may be x.
  float at_target = 0;
  if (has_target) at_target = exp(splat(x[target] - lse))[0] * dlse + args.dhit[row];
  scaled_exponentials(x, dx, args.classes, lse, dlse);
  if (has_target) store_one(dx + target, at_target);
  for_vectors_apart(args.stride - args.classes,
                    [&](auto lanes, int64_t i) { lanes.store(dx + args.classes + i, Vec{}); });
}

}  // namespace

void log_sum_exp_row(const LogSumExpRows& args, int64_t row) {
  const float* x = args.logits + row * args.stride;
  ScaledSum total = sum_of_exponentials(x, args.classes);
  args.lse[row] = (float)(total.shift + __builtin_log(total.sum));
  int32_t target = args.targets[row];
  args.hit[row] = inside(target, args.classes) ? x[target] : 0.0f;
}

void log_sum_exp_gradient_row(const LogSumExpGradientRows& args, int64_t row) {
  if (args.dlogits_dtype == DType::kF32) return log_sum_exp_gradient<float>(args, row);
  log_sum_exp_gradient<BF16>(args, row);
}

void cross_entropy_row(const CrossEntropyRows& args, int64_t row) {
  if (args.dtype == DType::kF32) return row_of<float>(args, row);
  row_of<BF16>(args, row);
}

}  // namespace tessera::cpu::TESSERA_ISA
