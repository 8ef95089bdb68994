// Training on rows of several documents, on the CPU: each counts as if it had a row of its own.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/programs/tiny_model.h"

namespace tessera {
namespace {

constexpr int64_t kLength = 150;
const std::vector<int64_t> kDocuments{70, 1, 64, 15};

ModelConfig model_of(ModelType family) {
  ModelConfig c = tiny_model_of(family);
  c.resid_pdrop = c.embd_pdrop = c.attn_pdrop = 0;
  c.intermediate_size = 64;
  c.max_context_width = kLength;
  if (family == ModelType::kMistral) c.sliding_window = 40;
  return c;
}

ProgramOptions programs(int64_t rows, DType compute, bool masked) {
  ProgramOptions options = tiny_programs(rows, kLength, compute);
  options.accumulates = false;
  options.document_mask = masked;
  return options;
}

TinyBatch packed() {
  TinyBatch batch(1, kLength, 3);
  for (int64_t length : kDocuments)
    batch.document_starts.insert(batch.document_starts.end(), static_cast<size_t>(length),
                                 static_cast<int32_t>(batch.document_starts.size()));
  return batch;
}
// A row each, with other tokens behind it.
TinyBatch apart() {
  TinyBatch from = packed(), batch(std::ssize(kDocuments), kLength, 4);
  batch.targets.assign(batch.targets.size(), kIgnoreIndex);
  int64_t begin = 0, row = 0;
  for (int64_t length : kDocuments) {
    std::copy_n(from.tokens.begin() + begin, length, batch.tokens.begin() + row * kLength);
    std::copy_n(from.targets.begin() + begin, length, batch.targets.begin() + row * kLength);
    begin += length;
    ++row;
  }
  return batch;
}

struct Gradients {
  double loss = 0;  // of the evaluation
  std::vector<double> all;
};
Gradients gradients(const ModelConfig& model, const ProgramOptions& options, const TinyBatch& batch,
                    cpu::Isa isa) {
  TinySession tiny(model, options, 1, isa);
  Gradients result{tiny.session.evaluate(batch.view()).loss_sum, {}};
  std::vector<MicroBatch> step{batch.view()};
  tiny.session.accumulate(step);
  for (const Parameter& p : tiny.session.programs().parameters)
    for (float g : tiny.session.gradient(p.name)) result.all.push_back(g);
  return result;
}

double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

TEST(Documents, InOneRowTrainLikeRowsOfTheirOwn) {
  for (ModelType family : {ModelType::kLlamaV2, ModelType::kMistral, ModelType::kQwen3,
                           ModelType::kGpt2, ModelType::kGptNeox}) {
    const ModelConfig model = model_of(family);
    // One family on all instruction sets: what differs between families are no kernels.
    for (cpu::Isa isa : instruction_sets()) {
      if (family != ModelType::kMistral && isa != cpu::detect_isa()) continue;
      for (auto [compute, bound] :
           {std::pair{DType::kF32, 1e-5}, {DType::kBF16, 2e-2}, {DType::kF16, 2e-3}}) {
        if (compute == DType::kF16 && isa != cpu::detect_isa()) continue;
        SCOPED_TRACE(cat(name(family), " ", name(isa), " ", name(compute)));
        Gradients rows =
            gradients(model, programs(std::ssize(kDocuments), compute, false), apart(), isa);
        // Gradients of f16 are scaled by a share of the tokens too, ignored ones included.
        if (compute == DType::kF16)
          for (double& g : rows.all) g *= 4;
        Gradients one = gradients(model, programs(1, compute, true), packed(), isa);
        EXPECT_NEAR(one.loss, rows.loss, bound * rows.loss);
        EXPECT_LT(relative_difference(one.all, rows.all), bound);
        if (compute == DType::kF32) {
          Gradients plain = gradients(model, programs(1, compute, false), packed(), isa);
          EXPECT_GT(relative_difference(plain.all, rows.all), 1e-2);
        }
      }
    }
  }
}

// The argument is there only where it is asked for; a batch without it is an error of ours.
TEST(Documents, AreAnArgumentOfProgramsThatMaskThem) {
  ModelConfig model = model_of(ModelType::kGpt2);
  for (bool masked : {false, true}) {
    Programs built = build_programs(model_builder(model), programs(1, DType::kF32, masked));
    for (const Graph* graph : {&built.accumulate_first, &built.evaluate})
      EXPECT_EQ(static_cast<bool>(graph->find_input("document_starts")), masked);
  }
  TinySession tiny(model, programs(1, DType::kF32, true));
  TinyBatch batch = packed();
  std::vector<int32_t> starts = std::exchange(batch.document_starts, {});
  EXPECT_THROW(tiny.session.evaluate(batch.view()), InternalError);
  for (auto [at, start] : {std::pair{3, 4}, {3, -1}, {80, 69}}) {  // behind itself, before 70
    batch.document_starts = starts;
    batch.document_starts[static_cast<size_t>(at)] = start;
    EXPECT_THROW(tiny.session.evaluate(batch.view()), InternalError) << at << " " << start;
  }
}

// Values of the forward pass computed again or fetched from the far tier.
TEST(Documents, WithResidencyGiveTheSameBits) {
  for (ModelType family : {ModelType::kLlamaV2, ModelType::kGpt2}) {
    const ModelConfig model = model_of(family);
    ProgramOptions options = programs(1, DType::kBF16, true);
    options.residency.share_numerator = 0;
    Gradients plain = gradients(model, options, packed(), cpu::detect_isa());
    for (CheckpointPolicy policy : {CheckpointPolicy::kLayer, CheckpointPolicy::kOp}) {
      for (bool offload : {false, true}) {
        options.residency = {};
        options.residency.policy = policy;
        options.residency.offload = offload;
        options.residency.share_numerator = 1;
        options.far_state = offload;
        Gradients other = gradients(model, options, packed(), cpu::detect_isa());
        EXPECT_EQ(other.all, plain.all) << name(family) << " " << static_cast<int>(policy);
      }
    }
  }
}

}  // namespace
}  // namespace tessera
