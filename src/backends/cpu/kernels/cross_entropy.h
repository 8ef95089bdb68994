#pragma once
#include <cstdint>

#include "backends/cpu/kernels/isa.h"
#include "base/dtype.h"

namespace tessera {
class ThreadPool;
}

namespace tessera::cpu {

constexpr int32_t kIgnoredTarget = -100;

// Per row: lse = log(sum_j e^logits[j]), loss = lse - logits[target]; for an ignored row both are 0
// and its logits are not read. Where `dlogits` is given, in the same pass
//   dlogits = (*scale + 2 *square_scale lse) softmax(logits) - *scale onehot(target), 0 for ignored
// rows: the gradient of *scale sum(loss) + *square_scale sum(lse^2).
// Computed in f32 with the maximum taken out (lse and loss in f64 at their end), rounded once. A
// logit of minus infinity has probability 0; a NaN or plus infinity makes its row NaN. A target
// outside [0, classes) that is not kIgnoredTarget is an InternalError. dlogits may be logits if
// both rows begin at the same bytes and an element of dlogits is not the larger one.
struct CrossEntropyRows {
  DType dtype;             // of logits: kF32 or kBF16
  const void* logits;      // [rows, classes]
  const int32_t* targets;  // [rows]
  float* lse;              // [rows]
  float* loss;             // [rows]
  int64_t rows, classes;
  void* dlogits = nullptr;  // [rows, classes]
  DType dlogits_dtype = DType::kF32;
  const float *scale = nullptr, *square_scale = nullptr;  // read when the kernel runs
  int64_t dlogits_stride = 0;                             // elements from row to row; 0: classes
  int64_t logits_stride = 0;                              // the same
};
void cross_entropy_rows(const CrossEntropyRows& args, Isa isa, ThreadPool& pool);

// One row that is not ignored.
TESSERA_DECLARE_PER_ISA(void cross_entropy_row(const CrossEntropyRows& args, int64_t row))

// Per row of a part of the classes, the first `classes` of `stride` columns:
//   lse = log(sum_j e^logits[j]), minus infinity for no columns,
//   hit = logits[target], 0 for a target outside [0, classes).
// Columns behind `classes` are not read. Arithmetic and non-finite logits as above.
struct LogSumExpRows {
  const float* logits;     // [rows, stride]
  const int32_t* targets;  // [rows]
  float* lse;              // [rows]
  float* hit;              // [rows]
  int64_t rows, classes, stride;
};
void log_sum_exp_rows(const LogSumExpRows& args, Isa isa, ThreadPool& pool);
TESSERA_DECLARE_PER_ISA(void log_sum_exp_row(const LogSumExpRows& args, int64_t row))

// dlogits = dlse e^(logits - lse), plus dhit at a target in [0, classes); 0 behind `classes`. In
// f32, rounded once. dlogits may be logits as above.
struct LogSumExpGradientRows {
  const float* logits;     // [rows, stride]
  const int32_t* targets;  // [rows]
  const float* lse;        // [rows]
  const float* dlse;       // [rows]
  const float* dhit;       // [rows]
  void* dlogits;           // [rows, stride]
  DType dlogits_dtype;     // kF32 or kBF16
  int64_t rows, classes, stride;
  int64_t dlogits_stride = 0;  // elements from row to row; 0: stride
};
void log_sum_exp_gradient_rows(const LogSumExpGradientRows& args, Isa isa, ThreadPool& pool);
TESSERA_DECLARE_PER_ISA(void log_sum_exp_gradient_row(const LogSumExpGradientRows& args,
                                                      int64_t row))

}  // namespace tessera::cpu
