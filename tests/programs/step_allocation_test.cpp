// Steps on batches that lie elsewhere every time.
#include <gtest/gtest.h>

#include "tests/backends/cpu/allocation_count.h"
#include "tests/programs/tiny_model.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 3, kLength = 17;

struct Trace {
  std::vector<double> numbers;
  uint64_t state = 0;
  int64_t allocations = 0;  // of all steps but the first
  bool operator==(const Trace&) const = default;
};

// Five steps of two micro-batches and a validation batch each, of the same content. `moving`: at
// addresses of which no two are equal.
Trace trace_of(const ModelConfig& model, DType compute, bool moving) {
  constexpr uint64_t kSteps = 5;
  // Not with oneDNN, whose interface allocates at every product.
  TinySession tiny(model, tiny_programs(kRows, kLength, compute), 2, cpu::Isa::kPortable);
  std::vector<TinyBatch> batches;
  for (uint64_t i = 0; i < 2 * kSteps; ++i) {
    batches.emplace_back(kRows, kLength, i % 2);
    batches.back().give_row_keys(i / 2, static_cast<int64_t>(i % 2) * kRows, kRows);
  }
  Trace trace;
  trace.numbers.reserve(4 * kSteps);
  for (size_t s = 0; s < kSteps; ++s) {
    MicroBatch step[2] = {batches[2 * s].view(), batches[2 * s + 1].view()};
    if (!moving) {
      step[0].tokens = batches[0].tokens;
      step[1].tokens = batches[1].tokens;
      step[0].targets = batches[0].targets;
      step[1].targets = batches[1].targets;
    }
    int64_t before = allocation_count();
    StepResult result = tiny.session.step(step, 0.01, 1.0);
    double loss = tiny.session.evaluate(step[0]).loss_sum;
    if (s > 0) trace.allocations += allocation_count() - before;
    trace.numbers.insert(trace.numbers.end(), {result.loss, result.gradient_norm, loss});
  }
  trace.state = tiny.fingerprint();
  return trace;
}

TEST(Step, OnBatchesElsewhereHasTheSameBitsAndAllocatesNothing) {
  ModelConfig deep = tiny_model();
  deep.num_layers = 12;  // "segment_begin.layers.10" is longer than what a string holds by itself
  for (const ModelConfig& model : {deep, tiny_model_of(ModelType::kGpt2)}) {
    for (DType compute : {DType::kF32, DType::kBF16}) {
      Trace moving = trace_of(model, compute, true);
      EXPECT_EQ(moving.allocations, 0) << name(compute);
      EXPECT_EQ(moving, trace_of(model, compute, false)) << name(compute);
    }
  }
}

}  // namespace
}  // namespace tessera
