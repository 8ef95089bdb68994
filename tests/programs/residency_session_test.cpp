// Training steps on the CPU with values computed again, offloaded or both: the same bits, less
// memory near.
#include <gtest/gtest.h>

#include "planning/plan_report.h"
#include "tests/base/error_expectation.h"
#include "tests/programs/tiny_model.h"

namespace tessera {
namespace {

constexpr double kLr = 0.01, kClip = 1.0;

// Losses, norms, gradients and the whole state after three steps, and what was allocated.
struct Outcome {
  std::vector<uint64_t> bits;
  Session::Memory memory;
};

Outcome run(const ModelConfig& model, const ProgramOptions& options, int micro_batches) {
  TinySession tiny(model, options, 2);
  Outcome outcome{{}, tiny.session.planned_memory()};
  EXPECT_EQ(tiny.session.allocated_bytes(), outcome.memory.total());
  auto add = [&](const void* data, size_t bytes) {
    outcome.bits.push_back(hash_bytes(data, bytes));
  };
  for (uint64_t s = 0; s < 3; ++s) {
    std::vector<TinyBatch> batches;
    std::vector<MicroBatch> step;
    for (int i = 0; i < micro_batches; ++i)
      batches.emplace_back(options.batch, options.length, 2 * s + static_cast<uint64_t>(i));
    for (TinyBatch& batch : batches) {
      batch.give_row_keys(s, 0, options.batch);
      step.push_back(batch.view());
    }
    StepResult result = tiny.session.step(step, kLr, kClip);
    EXPECT_TRUE(result.ok);
    add(&result.loss, sizeof result.loss);
    add(&result.gradient_norm, sizeof result.gradient_norm);
    for (const Parameter& p : tiny.session.programs().parameters) {
      std::vector<float> gradient = tiny.session.gradient(p.name);
      add(gradient.data(), gradient.size() * sizeof(float));
    }
  }
  TinyBatch held_out(options.batch, options.length, 99);
  double loss = tiny.session.evaluate(held_out.view()).loss_sum;
  add(&loss, sizeof loss);
  outcome.bits.push_back(tiny.fingerprint());
  return outcome;
}

ProgramOptions programs(DType compute, int micro_batches) {
  ProgramOptions options = tiny_programs(2, 17, compute);
  options.accumulates = micro_batches > 1;
  return options;
}

ResidencyOptions residency_of(CheckpointPolicy policy, double share, bool regather, bool offload,
                              int64_t horizon) {
  ResidencyOptions options;
  options.policy = policy;
  options.share_numerator = share;
  options.regather = regather;
  options.offload = offload;
  options.horizon = horizon;
  return options;
}

void expect_same_bits(const ModelConfig& model, DType compute, int micro_batches) {
  constexpr auto kLayer = CheckpointPolicy::kLayer, kOp = CheckpointPolicy::kOp;
  Outcome plain = run(model, programs(compute, micro_batches), micro_batches);
  for (const ResidencyOptions& residency :
       {residency_of(kLayer, 0, false, false, 0), residency_of(kLayer, 1, false, false, 0),
        residency_of(kLayer, 0.5, true, true, 2), residency_of(kOp, 1, true, false, 0),
        residency_of(kOp, 1, false, true, 1), residency_of(kLayer, 0, true, true, 0)}) {
    for (bool far : {false, true}) {
      SCOPED_TRACE(cat(name(compute), ", ", micro_batches, " micro-batches, policy ",
                       static_cast<int>(residency.policy), ", share ", residency.share_numerator,
                       ", regather ", residency.regather, ", offload ", residency.offload,
                       ", far state ", far));
      ProgramOptions options = programs(compute, micro_batches);
      options.residency = residency;
      options.far_state = far;
      EXPECT_EQ(run(model, options, micro_batches).bits, plain.bits);
    }
  }
}

TEST(ResidencySession, EveryChoiceGivesTheSameBits) {
  ModelConfig model = odd_model();
  model.num_layers = 4;
  for (DType compute : {DType::kF32, DType::kBF16})
    for (int micro_batches : {1, 2}) expect_same_bits(model, compute, micro_batches);
  model.tie_word_embeddings = true;
  expect_same_bits(model, DType::kBF16, 2);
}

// Dropout draws the same numbers again.
TEST(ResidencySession, EveryChoiceGivesTheSameBitsInOtherFamilies) {
  expect_same_bits(tiny_model_of(ModelType::kGpt2), DType::kBF16, 2);
  expect_same_bits(tiny_model_of(ModelType::kGptNeox), DType::kBF16, 1);
}

// Eight layers whose activations outweigh all else in the arena; of a program that adds to the
// gradients, since slots that it overwrites would have room for some of them.
int64_t near_arena(const ResidencyOptions& residency, int64_t* far = nullptr) {
  ModelConfig model = tiny_model();
  model.num_layers = 8;
  ProgramOptions options = tiny_programs(8, 64, DType::kBF16);
  options.residency = residency;
  cpu::CpuBackend backend(1, cpu::detect_isa());
  Session session(build_programs(model_builder(model), options), backend);
  for (const Session::Program& p : session.compiled()) {
    if (p.name != "accumulate") continue;
    if (far) *far = p.executable->memory().far_arena;
    return p.executable->memory().arena;
  }
  return 0;
}

TEST(ResidencySession, TheArenaShrinksAsItShould) {
  constexpr auto kLayer = CheckpointPolicy::kLayer, kOp = CheckpointPolicy::kOp;
  constexpr int64_t kLayerInput = 8 * 64 * 32 * 2;  // tokens x width, bf16
  int64_t keep = near_arena({});
  int64_t layer = near_arena(residency_of(kLayer, 1, false, false, 0));
  int64_t half = near_arena(residency_of(kLayer, 0.5, false, false, 0));
  int64_t op = near_arena(residency_of(kOp, 1, false, false, 0));
  EXPECT_LT(layer, keep / 2);
  EXPECT_LT(layer, half);
  EXPECT_LT(half, keep);
  EXPECT_LT(op, keep);
  EXPECT_LT(layer, op);
  for (double share : {0.5, 1.0})
    EXPECT_EQ(near_arena(residency_of(kLayer, share, true, false, 0)), share < 1 ? half : layer)
        << "weights of compute are state";

  int64_t far = 0;
  int64_t offload = near_arena(residency_of(kLayer, 1, false, true, 1), &far);
  EXPECT_EQ(far, 7 * kLayerInput) << "all layer inputs but the last";
  EXPECT_LE(offload, layer - 4 * kLayerInput);
  int64_t everything = near_arena(residency_of(kLayer, 0, false, true, 1), &far);
  EXPECT_LT(everything, keep / 2);
  EXPECT_GT(far, keep / 2);
  EXPECT_LT(everything, near_arena(residency_of(kLayer, 0, false, true, 4)));
}

TEST(ResidencySession, FarStateIsReportedAndOnlyOneUnitIsNear) {
  ModelConfig model = tiny_model();
  model.num_layers = 8;
  ProgramOptions options = tiny_programs(2, 16, DType::kBF16);
  options.residency.regather = true;
  Outcome near = run(model, options, 2);
  options.far_state = true;
  Outcome far = run(model, options, 2);
  EXPECT_EQ(near.memory.far(), 0);
  EXPECT_EQ(far.memory.far(), far.memory.of_parameters());
  EXPECT_EQ(far.memory.compute_weights, far.memory.parameters / 2);
  EXPECT_EQ(far.memory.parameters, near.memory.parameters);
  EXPECT_LT(far.memory.arena, near.memory.arena + near.memory.parameters);
  EXPECT_LT(far.memory.total() - far.memory.far(), near.memory.total() / 2);
}

TEST(ResidencyOptionsOfARun, FollowFromItsConfiguration) {
  RunConfig config;
  Parallelism sharded;
  sharded.regather = true;
  ProgramOptions options = program_options(config, sharded);
  EXPECT_EQ(options.residency.share_numerator / options.residency.share_denominator, 1);
  EXPECT_EQ(options.residency.policy, CheckpointPolicy::kLayer);
  EXPECT_TRUE(options.residency.regather);
  EXPECT_FALSE(options.residency.offload);
  EXPECT_EQ(options.residency.horizon, 2);
  EXPECT_FALSE(options.far_state);
  config.selective_checkpointing = "2/3";
  config.checkpointing_policy = "op";
  config.offload_activations = config.cpu_offload = true;
  config.activation_loading_horizon = 5;
  options = program_options(config, sharded);
  EXPECT_EQ(options.residency.share_numerator, 2);
  EXPECT_EQ(options.residency.share_denominator, 3);
  EXPECT_EQ(options.residency.policy, CheckpointPolicy::kOp);
  EXPECT_TRUE(options.residency.offload);
  EXPECT_EQ(options.residency.horizon, 5);
  EXPECT_TRUE(options.far_state);
  config.activation_checkpointing = config.offload_activations = false;
  EXPECT_TRUE(program_options(config, sharded).residency.changes_anything()) << "gathers";
  EXPECT_FALSE(program_options(config, {}).residency.changes_anything());
}

TEST(PlanReport, SaysWhatRecomputationSavesAndWhatIsFar) {
  RunConfig config;
  config.model_type = "llama_v2";
  config.max_context_width = 64;
  ModelConfig model = tiny_model();
  model.num_layers = 8;
  cpu::CpuBackend backend(1, cpu::detect_isa());
  auto report = [&] { return plan_report(config, model, {.backend = &backend}).text; };
  std::string text = report();
  expect_contains(text, "\nRecomputation: ");
  expect_lacks(text, "far arena");
  config.cpu_offload = config.offload_activations = true;
  text = report();
  expect_contains(text, "\n  far arena ");
  expect_contains(text, "\n    of it near ");
  config.activation_checkpointing = config.offload_activations = false;
  config.sharding_strategy = "no_shard";
  text = report();
  expect_lacks(text, "Recomputation");
}

}  // namespace
}  // namespace tessera
