// Training steps of every optimizer on the CPU: learning, bits, skipped updates, the list of slots.
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>

#include "base/text.h"
#include "planning/job_plan.h"
#include "planning/plan_report.h"
#include "tests/programs/tiny_model.h"

namespace tessera {
namespace {

constexpr double kLr = 0.01, kClip = 1.0;

class SessionOfOptimizer : public testing::TestWithParam<std::string> {
 protected:
  static ProgramOptions options(DType compute = DType::kBF16) {
    ProgramOptions options = tiny_programs(4, 16, compute);
    options.optimizer.name = GetParam();
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(All, SessionOfOptimizer, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const OptimizerRecord& record : optimizers())
                             names.emplace_back(record.name);
                           return names;
                         }()),
                         [](const auto& test) { return test.param; });

TEST_P(SessionOfOptimizer, OverfitsOneBatch) {
  const double rate = GetParam() == "sgd" ? 0.3 : GetParam() == "lion" ? 0.002 : 0.01;
  TinySession tiny(tiny_model(), options(), 2);
  TinyBatch batch(4, 16, 0);
  std::vector<MicroBatch> step{batch.view()};
  double last = tiny.session.step(step, rate, kClip).loss;
  for (int i = 0; i < 400 && last > 0.1; ++i) last = tiny.session.step(step, rate, kClip).loss;
  EXPECT_LT(last, 0.1);
}

TEST_P(SessionOfOptimizer, WeightsOfComputeFollowTheMasters) {
  for (DType compute : {DType::kBF16, DType::kF16}) {
    for (bool far : {false, true}) {
      ProgramOptions o = options(compute);
      o.far_state = far;
      TinySession tiny(tiny_model(), o);
      TinyBatch batch(4, 16, 0, 299), poisoned = batch;
      poisoned.tokens[5] = 299;
      std::vector<MicroBatch> step{batch.view()};
      for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(tiny.session.step(step, kLr, kClip).ok);
        expect_compute_weights_follow(tiny.session);
      }
      // What the host writes is in the next program's results, an update that is left out or not.
      const double before = tiny.session.evaluate(batch.view()).loss_sum;
      const std::vector<float> zeros(32);
      tiny.session.write_parameter("model.norm.weight", 0, zeros);
      const double without = tiny.session.evaluate(batch.view()).loss_sum;
      EXPECT_NE(without, before);
      expect_compute_weights_follow(tiny.session);
      tiny.spoil("model.embed_tokens.weight", 299 * 32);
      EXPECT_FALSE(tiny.session.step(std::vector{poisoned.view()}, kLr, kClip).ok);
      expect_compute_weights_follow(tiny.session);
      EXPECT_EQ(tiny.session.evaluate(batch.view()).loss_sum, without);
    }
  }
}

TEST_P(SessionOfOptimizer, SameBitsFarAndNearScaledAndNotWithAnyNumberOfThreads) {
  auto run = [&](int threads, bool far, bool scaled, cpu::Isa isa) {
    ProgramOptions o = options(DType::kF32);
    o.far_state = far;
    if (scaled) o.loss_scaling = LossScaling{.initial = 64, .interval = 2};
    TinySession tiny(tiny_model(), o, threads, isa);
    for (uint64_t s = 0; s < 4; ++s) {
      TinyBatch a(4, 16, 2 * s), b(4, 16, 2 * s + 1);
      EXPECT_TRUE(tiny.session.step(std::vector{a.view(), b.view()}, kLr, kClip).ok);
    }
    return tiny.fingerprint();
  };
  for (cpu::Isa isa : instruction_sets()) {
    uint64_t expected = run(1, false, false, isa);
    EXPECT_EQ(run(3, false, false, isa), expected);
    EXPECT_EQ(run(2, true, false, isa), expected);
    EXPECT_EQ(run(2, false, true, isa), expected);
  }
}

TEST_P(SessionOfOptimizer, ASkippedUpdateChangesNothing) {
  TinySession tiny(tiny_model(), options());
  TinyBatch batch(4, 16, 0, 299), poisoned = batch;
  poisoned.tokens[5] = 299;
  tiny.session.step(std::vector{batch.view()}, kLr, kClip);
  tiny.spoil("model.embed_tokens.weight", 299 * 32);
  uint64_t before = tiny.fingerprint();
  EXPECT_FALSE(tiny.session.step(std::vector{poisoned.view()}, kLr, kClip).ok);
  EXPECT_EQ(tiny.fingerprint(), before);
  EXPECT_TRUE(tiny.session.step(std::vector{batch.view()}, kLr, kClip).ok);
  EXPECT_NE(tiny.fingerprint(), before);
}

TEST_P(SessionOfOptimizer, SlotsAreAListWithRoles) {
  ProgramOptions o = options();
  o.freeze = {"model.embed_tokens.*"};
  o.far_state = true;
  TinySession tiny(tiny_model(), o);
  std::set<std::string> listed;
  std::map<SlotRole, int64_t> bytes;
  for (const Slot& slot : tiny.session.programs().slots) {
    EXPECT_TRUE(listed.insert(slot.name()).second) << slot.name();
    EXPECT_EQ(tiny.session.state().type(slot.name()), slot.type);
    EXPECT_EQ(slot.unit.empty(), slot.role == SlotRole::kScalar) << slot.name();
    bytes[slot.role] += slot.type.bytes();
    if (slot.unit == "embed") {
      EXPECT_EQ(slot.role, SlotRole::kWeight) << "frozen";
    }
    EXPECT_EQ(slot.saved, slot.role == SlotRole::kWeight || slot.role == SlotRole::kOptimizer ||
                              slot.name() == "optimizer_step")
        << slot.name();
  }
  std::vector<std::string> all = tiny.session.state().slots();
  EXPECT_EQ(listed, std::set<std::string>(all.begin(), all.end()));
  Session::Memory memory = tiny.session.planned_memory();
  EXPECT_EQ(memory.parameters, bytes[SlotRole::kWeight]);
  EXPECT_EQ(memory.compute_weights, bytes[SlotRole::kComputeWeight]);
  EXPECT_GT(memory.compute_weights, 0);
  EXPECT_EQ(memory.optimizer, bytes[SlotRole::kOptimizer]);
  EXPECT_EQ(memory.gradients, bytes[SlotRole::kGradient]);
  EXPECT_EQ(memory.counters, bytes[SlotRole::kScalar]);
  EXPECT_EQ(memory.optimizer, memory.gradients * (GetParam() == "adamw" ? 2 : 1));
  std::set<std::string> weights;
  for (const StateBox& state : tiny.session.weight_boxes()) weights.insert(state.tensor);
  EXPECT_EQ(weights.size(), tiny.session.programs().parameters.size());
  EXPECT_TRUE(weights.contains("lm_head.weight"));
}

TEST(OptimizerPlan, CountsWhatIsKeptAndWhatItCosts) {
  RunConfig config;
  config.max_context_width = 16;
  cpu::CpuBackend backend(1, cpu::detect_isa());
  const PlanTarget target{.backend = &backend};
  auto moments = [&](const std::string& optimizer, const ModelConfig& model) {
    config.model_type = name(model.model_type);
    config.optimizer = optimizer;
    std::string text = plan_report(config, model, target).text, label = "  moments (f32)";
    size_t begin = text.find(label) + label.size();
    return std::string(trim(text.substr(begin, text.find('\n', begin) - begin)));
  };
  for (const ModelConfig& model : {tiny_model(), family_defaults(ModelType::kMixtral)}) {
    std::string two = moments("adamw", model), one = moments("sgd", model);
    EXPECT_NEAR(std::stod(two) / std::stod(one), 2, 0.01) << two << " and " << one;
    EXPECT_EQ(moments("lion", model), one);
  }
  auto flops = [&](const char* optimizer) {
    config.model_type = "llama_v2";
    config.optimizer = optimizer;
    return job_plan(config, *plan_session(config, tiny_model(), target)).costs.flops;
  };
  EXPECT_LT(flops("sgd"), flops("lion"));
  EXPECT_LT(flops("lion"), flops("adamw"));
}

}  // namespace
}  // namespace tessera
