// Training steps on the CPU: learning, bits, accumulation, skipped updates, memory.
#include "programs/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/passes/running_maximum.h"
#include "tests/programs/tiny_model.h"

namespace tessera {
namespace {

constexpr double kLr = 0.01, kClip = 1.0;

class SessionOfDType : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Compute, SessionOfDType,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST_P(SessionOfDType, OverfitsOneBatch) {
  TinySession tiny(tiny_model(), tiny_programs(4, 16, GetParam()), 2);
  TinyBatch batch(4, 16, 0);
  std::vector<MicroBatch> step{batch.view()};
  double first = tiny.session.step(step, kLr, kClip).loss, last = first;
  EXPECT_NEAR(first, std::log(300), 0.2);  // nothing is known yet
  for (int i = 0; i < 150 && last > 0.05; ++i) last = tiny.session.step(step, kLr, kClip).loss;
  EXPECT_LT(last, 0.1);
}

// Losses, norms and the whole state after three steps of two micro-batches.
std::vector<uint64_t> bits_of_a_run(const ModelConfig& model, int64_t batch, int64_t length,
                                    DType compute, int threads, cpu::Isa isa) {
  TinySession tiny(model, tiny_programs(batch, length, compute), threads, isa);
  std::vector<uint64_t> bits;
  for (uint64_t s = 0; s < 3; ++s) {
    TinyBatch a(batch, length, 2 * s), b(batch, length, 2 * s + 1);
    StepResult result = tiny.session.step(std::vector{a.view(), b.view()}, kLr, kClip);
    EXPECT_TRUE(result.ok);
    bits.push_back(hash_bytes(&result.loss, sizeof result.loss));
    bits.push_back(hash_bytes(&result.gradient_norm, sizeof result.gradient_norm));
  }
  TinyBatch held_out(batch, length, 99);
  double loss = tiny.session.evaluate(held_out.view()).loss_sum;
  bits.push_back(hash_bytes(&loss, sizeof loss));
  bits.push_back(tiny.fingerprint());
  return bits;
}

TEST_P(SessionOfDType, SameBitsAgainAndWithAnyNumberOfThreads) {
  struct Case {
    ModelConfig model;
    int64_t batch, length;
    std::vector<cpu::Isa> sets;
  };
  ModelConfig wide = odd_model();  // several tiles in every direction
  wide.vocab_size = 777;
  wide.hidden_width = 144;
  wide.num_heads = 4;
  wide.intermediate_size = 332;
  derive_shape(wide);
  std::vector<cpu::Isa> all = instruction_sets();
  for (const Case& c : {Case{tiny_model(), 4, 32, all}, Case{odd_model(), 3, 17, all},
                        Case{odd_model(), 8, 65, {all.back()}}, Case{wide, 4, 65, {all.back()}}}) {
    for (cpu::Isa isa : c.sets) {
      auto run = [&](int threads) {
        return bits_of_a_run(c.model, c.batch, c.length, GetParam(), threads, isa);
      };
      std::vector<uint64_t> expected = run(1);
      for (int threads : {1, 2, 3, 5}) {
        EXPECT_EQ(run(threads), expected)
            << threads << " threads, " << name(isa) << ", width " << c.model.hidden_width << ", "
            << c.batch << " x " << c.length;
      }
    }
  }
}

// max |a - b| / max |b| over all parameters' gradients.
double gradient_difference(Session& a, Session& b) {
  double difference = 0;
  for (const Parameter& p : b.programs().parameters) {
    std::vector<float> x = a.gradient(p.name), y = b.gradient(p.name);
    double largest = 0, off = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      largest = std::max(largest, static_cast<double>(std::abs(y[i])));
      off = std::max(off, static_cast<double>(std::abs(x[i] - y[i])));
    }
    difference = std::max(difference, off / largest);
  }
  return difference;
}

TEST(Session, MicroBatchesAddUpToTheirUnion) {
  constexpr int64_t kLength = 17;
  TinyBatch all(6, kLength, 0);
  TinyBatch a(all, kLength, 0, 2), b(all, kLength, 2, 4), c(all, kLength, 4, 6);
  std::vector<MicroBatch> parts{a.view(), b.view(), c.view()}, whole{all.view()};
  TinySession small(odd_model(), tiny_programs(2, kLength, DType::kF32));
  TinySession large(odd_model(), tiny_programs(6, kLength, DType::kF32));
  small.session.accumulate(parts);
  large.session.accumulate(whole);
  EXPECT_LT(gradient_difference(small.session, large.session), 1e-5);

  StepResult x = small.session.step(parts, kLr, kClip), y = large.session.step(whole, kLr, kClip);
  EXPECT_EQ(x.tokens, 6 * kLength);
  EXPECT_EQ(y.tokens, 6 * kLength);
  EXPECT_NEAR(x.loss, y.loss, 1e-6);
  EXPECT_NEAR(x.gradient_norm, y.gradient_norm, 1e-5 * y.gradient_norm);
}

TEST(Session, AStepStartsFromNothing) {
  TinySession tiny(tiny_model(), tiny_programs(2, 16, DType::kF32));
  TinyBatch a(2, 16, 0), b(2, 16, 1);
  tiny.session.accumulate(std::vector{a.view()});
  std::vector<float> expected;
  for (float g : tiny.session.gradient("lm_head.weight")) expected.push_back(g);
  tiny.session.accumulate(std::vector{b.view(), b.view()});
  tiny.session.accumulate(std::vector{a.view()});
  std::vector<float> again = tiny.session.gradient("lm_head.weight");
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), again.begin(), again.end()));
}

// The last batch of a job: rows without a sample are filled with end-of-text and ignored.
TEST(Session, IgnoredRowsCountNowhere) {
  constexpr int64_t kLength = 16;
  TinyBatch all(5, kLength, 3);
  TinyBatch a(all, kLength, 0, 3), b(all, kLength, 3, 5);
  auto with_row_of = [&](int32_t token) {
    TinyBatch padded = b;
    padded.tokens.insert(padded.tokens.end(), kLength, token);
    padded.targets.insert(padded.targets.end(), kLength, kIgnoreIndex);
    return padded;
  };
  TinyBatch first = with_row_of(0), other = with_row_of(123);
  TinySession x(tiny_model(), tiny_programs(3, kLength, DType::kF32));
  TinySession y(tiny_model(), tiny_programs(3, kLength, DType::kF32));
  TinySession exact(tiny_model(), tiny_programs(5, kLength, DType::kF32));
  StepResult r = x.session.step(std::vector{a.view(), first.view()}, kLr, kClip);
  StepResult s = y.session.step(std::vector{a.view(), other.view()}, kLr, kClip);
  StepResult t = exact.session.step(std::vector{all.view()}, kLr, kClip);
  EXPECT_EQ(r.tokens, 5 * kLength);
  EXPECT_EQ(r.loss, s.loss);
  EXPECT_EQ(x.fingerprint(), y.fingerprint());  // what stands in an ignored row changes no bit
  EXPECT_NEAR(r.loss, t.loss, 1e-6);
  EXPECT_NEAR(r.gradient_norm, t.gradient_norm, 1e-5 * t.gradient_norm);
  auto [loss, count, stop] = x.session.evaluate(first.view());
  EXPECT_EQ(count, 2 * kLength);
  EXPECT_TRUE(std::isfinite(loss));
}

TEST_P(SessionOfDType, AnUpdateThatIsNotFiniteChangesNothing) {
  TinySession tiny(tiny_model(), tiny_programs(2, 16, GetParam()));
  TinyBatch clean(2, 16, 0, 299), poisoned = clean;
  poisoned.tokens[5] = 299;
  EXPECT_TRUE(tiny.session.step(std::vector{clean.view()}, kLr, kClip).ok);
  // One row of the embedding, which only `poisoned` reads.
  tiny.spoil("model.embed_tokens.weight", 299 * 32 + 7);
  uint64_t before = tiny.fingerprint();
  for (int i = 0; i < 2; ++i) {
    StepResult bad = tiny.session.step(std::vector{clean.view(), poisoned.view()}, kLr, kClip);
    EXPECT_FALSE(bad.ok);
    EXPECT_EQ(tiny.fingerprint(), before);
  }
  auto counter = [&] { return tiny.session.state().scalar<int64_t>("optimizer_step"); };
  EXPECT_EQ(counter(), 1);

  // What follows is what would have followed without the two bad steps, but for the loss scale.
  if (GetParam() == DType::kF16) tiny.session.set_loss_scale({256, 1});
  TinySession other(tiny_model(), tiny_programs(2, 16, GetParam()));
  for (int i = 0; i < 2; ++i) other.session.step(std::vector{clean.view()}, kLr, kClip);
  StepResult good = tiny.session.step(std::vector{clean.view()}, kLr, kClip);
  EXPECT_TRUE(good.ok);
  EXPECT_EQ(counter(), 2);
  EXPECT_EQ(tiny.fingerprint("model.embed_tokens.weight"),
            other.fingerprint("model.embed_tokens.weight"));
}

TEST(Session, ClippingScalesTheGradientAndReportsItsNorm) {
  TinyBatch batch(2, 16, 0);
  std::vector<MicroBatch> step{batch.view()};
  auto moment = [&](double max_norm, StepResult& result) {
    TinySession tiny(tiny_model(), tiny_programs(2, 16, DType::kF32));
    result = tiny.session.step(step, kLr, max_norm);
    for (const StateBox& state : tiny.session.checkpoint_boxes()) {
      if (state.tensor != "optim.state.lm_head.weight.exp_avg") continue;
      float element = 0;
      state.data.read(400, std::as_writable_bytes(std::span(&element, 1)));
      return element;
    }
    return 0.0f;
  };
  StepResult free, clipped;
  float m = moment(0, free), m_clipped = moment(free.gradient_norm / 2, clipped);
  EXPECT_EQ(free.gradient_norm, clipped.gradient_norm);
  EXPECT_GT(std::abs(m), 0);
  EXPECT_NEAR(m_clipped, m / 2, std::abs(m) * 1e-4);
}

TEST_P(SessionOfDType, TheZLossIsMinimisedBesideTheLoss) {
  ProgramOptions options = tiny_programs(2, 16, GetParam());
  TinySession plain(tiny_model(), options);
  options.z_loss = 0.5;
  TinySession tiny(tiny_model(), options);
  TinyBatch batch(2, 16, 0);
  std::vector<MicroBatch> step{batch.view(), batch.view()};
  StepResult without = plain.session.step(step, kLr, kClip);
  StepResult first = tiny.session.step(step, kLr, kClip), last = first;
  EXPECT_FALSE(without.z_loss);
  EXPECT_EQ(first.loss, without.loss);  // apart from it
  EXPECT_NE(first.gradient_norm, without.gradient_norm);
  // Logits of next to nothing: log(sum(exp(logits))) is log(300).
  EXPECT_NEAR(first.z_loss.value(), 0.5 * std::log(300) * std::log(300), 0.2);
  for (int i = 0; i < 60; ++i) last = tiny.session.step(step, kLr, kClip);
  EXPECT_LT(last.z_loss.value(), 0.1 * first.z_loss.value());
  EXPECT_LT(last.loss, first.loss);
}

// Steps of a session whose loss scale starts at `initial` and doubles after three good ones.
class LossScaleTest : public testing::Test {
 protected:
  TinySession session(double initial, DType compute = DType::kF16) const {
    ProgramOptions options = tiny_programs(2, 16, compute);
    options.loss_scaling = LossScaling{.initial = initial, .interval = 3};
    return TinySession(tiny_model(), options);
  }
  StepResult step(TinySession& tiny) const {
    return tiny.session.step(std::vector{batch_.view(), batch_.view()}, kLr, kClip);
  }
  TinyBatch batch_{2, 16, 0};
};

TEST_F(LossScaleTest, DoublesAfterGoodStepsAndIsInNoResult) {
  TinySession scaled = session(64, DType::kF32),
              plain(tiny_model(), tiny_programs(2, 16, DType::kF32));
  for (double scale : {64, 64, 64, 128, 128, 128, 256}) {
    StepResult x = step(scaled), y = step(plain);
    EXPECT_EQ(x.loss_scale, scale);
    EXPECT_FALSE(y.loss_scale);
    // A power of two changes no bit of what does not underflow.
    EXPECT_EQ(x.loss, y.loss);
    EXPECT_EQ(x.gradient_norm, y.gradient_norm);
  }
  EXPECT_EQ(scaled.fingerprint(), plain.fingerprint());
  EXPECT_EQ(scaled.session.loss_scale()->good_steps, 1);
}

TEST_F(LossScaleTest, HalvesWhenGradientsOverflowAndKeepsTheWeights) {
  TinySession tiny = session(16777216);
  uint64_t before = tiny.fingerprint();
  double scale = 16777216;
  int skipped = 0;
  for (; !step(tiny).ok; ++skipped) {
    EXPECT_EQ(tiny.fingerprint(), before);
    scale /= 2;
    ASSERT_EQ(tiny.session.loss_scale()->scale, scale);
    ASSERT_LT(skipped, 24);
  }
  EXPECT_GT(skipped, 0);
  EXPECT_NE(tiny.fingerprint(), before);
  EXPECT_EQ(tiny.session.loss_scale()->good_steps, 1);
}

TEST_F(LossScaleTest, StaysWithinItsBounds) {
  TinySession high = session(0x1p40, DType::kF32);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(step(high).ok);
  EXPECT_EQ(high.session.loss_scale()->scale, 0x1p40);
  TinySession low = session(2);
  low.spoil("lm_head.weight", 0);
  for (double scale : {2, 1, 1}) EXPECT_EQ(step(low).loss_scale, scale);
}

TEST_F(LossScaleTest, KeepsSmallGradientsOfF16) {
  // A scale of one millionth leaves next to nothing of gradients in f16.
  ProgramOptions options = tiny_programs(2, 16, DType::kF16);
  auto gradient = [&](double scale) {
    options.loss_scaling = LossScaling{.initial = scale, .lowest = scale};
    TinySession tiny(tiny_model(), options);
    tiny.session.accumulate(std::vector{batch_.view()});
    std::vector<double> values;
    for (float g : tiny.session.gradient("model.layers.0.mlp.up_proj.weight"))
      values.push_back(g * 32 / scale);  // tokens of a micro-batch
    return values;
  };
  auto distance = [](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0, norm = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      sum += (a[i] - b[i]) * (a[i] - b[i]);
      norm += b[i] * b[i];
    }
    return std::sqrt(sum / norm);
  };
  TinySession exact(tiny_model(), tiny_programs(2, 16, DType::kF32));
  exact.session.accumulate(std::vector{batch_.view()});
  std::vector<float> g = exact.session.gradient("model.layers.0.mlp.up_proj.weight");
  std::vector<double> expected(g.begin(), g.end());
  EXPECT_LT(distance(gradient(0x1p13), expected), 0.01);
  EXPECT_GT(distance(gradient(0x1p-11), expected), 0.1);
}

TEST(Session, NormsDecayOnlyWithDecayAll) {
  TinyBatch batch(2, 16, 0);
  auto weights = [&](double decay, bool all, const std::string& parameter) {
    TinySession tiny(tiny_model(), tiny_programs(2, 16, DType::kF32));
    tiny.session.set_decay(decay, all);
    tiny.session.step(std::vector{batch.view()}, kLr, kClip);
    return tiny.session.parameter(parameter);
  };
  const std::string norm = "model.layers.0.input_layernorm.weight", matrix = "lm_head.weight";
  EXPECT_EQ(weights(0.5, false, norm), weights(0, false, norm));
  EXPECT_NE(weights(0.5, true, norm), weights(0, true, norm));
  EXPECT_NE(weights(0.5, false, matrix), weights(0, false, matrix));
}

TEST_P(SessionOfDType, EvaluatingIsTheForwardPassAndChangesNothing) {
  TinySession tiny(tiny_model(), tiny_programs(3, 16, GetParam()));
  TinyBatch batch(3, 16, 0);
  uint64_t before = tiny.fingerprint();
  auto [loss, count, stop] = tiny.session.evaluate(batch.view());
  EXPECT_EQ(tiny.fingerprint(), before);
  EXPECT_EQ(count, 3 * 16);
  EXPECT_NEAR(loss / static_cast<double>(count),
              tiny.session.step(std::vector{batch.view()}, kLr, kClip).loss, 1e-6);
}

TEST(Session, AllocatesWhatItPlanned) {
  for (DType compute : {DType::kF32, DType::kBF16}) {
    for (bool accumulates : {false, true}) {
      for (const ModelConfig& model : {tiny_model(), odd_model()}) {
        ProgramOptions options = tiny_programs(3, 17, compute);
        options.accumulates = accumulates;
        options.validation_batch = 5;
        cpu::CpuBackend backend(3, cpu::detect_isa());
        Session session(build_programs(model_builder(model), options), backend);
        EXPECT_FALSE(session.allocated());
        Session::Memory planned = session.planned_memory();
        session.allocate();
        EXPECT_EQ(session.allocated_bytes(), planned.total());
        EXPECT_GE(planned.parameters, 4 * parameter_count(model));
        EXPECT_EQ(planned.optimizer, 2 * planned.parameters);
        EXPECT_EQ(planned.gradients, planned.parameters);
        EXPECT_GT(planned.arena, 0);
      }
    }
  }
}

TEST_P(SessionOfDType, StateOfTheModelIsUpdatedByMicroBatchesOnly) {
  ModelBuilder plain = model_builder(tiny_model());
  auto builder = [&](int64_t batch, int64_t length, ModelHead head) {
    return with_running_maximum(plain(batch, length, head));
  };
  cpu::CpuBackend backend(2, cpu::detect_isa());
  Session session(build_programs(builder, tiny_programs(2, 16, GetParam())), backend);
  session.allocate();
  session.initialize(7, backend.pool());
  State& state = session.state_to_write();
  auto largest = [&] { return state.scalar<float>("largest"); };
  TinyBatch a(2, 16, 0), b(2, 16, 1);
  auto seen = [&](const TinyBatch& batch) {
    state.set_scalar("largest", 0.0f);
    session.accumulate(std::vector{batch.view()});
    return largest();
  };
  float of_a = seen(a), of_b = seen(b);
  EXPECT_GT(std::min(of_a, of_b), 0);
  EXPECT_NE(of_a, of_b);
  state.set_scalar("largest", 0.0f);
  session.accumulate(std::vector{a.view(), b.view(), a.view()});
  EXPECT_EQ(largest(), std::max(of_a, of_b));
  state.set_scalar("largest", 0.0f);
  session.evaluate(a.view());
  EXPECT_EQ(largest(), 0);
}

TEST(Session, FirstWeightsFollowFromSeedAndNameAlone) {
  TinySession a(tiny_model(), tiny_programs(1, 8, DType::kF32));
  TinySession b(tiny_model(), tiny_programs(4, 32, DType::kBF16), 3);
  EXPECT_EQ(a.fingerprint(), b.fingerprint());
  b.session.initialize(8, b.backend.pool());
  EXPECT_NE(a.fingerprint(), b.fingerprint());
  ModelConfig deeper = tiny_model();
  deeper.num_layers = 3;
  TinySession c(deeper, tiny_programs(1, 8, DType::kF32));
  std::vector<float> x = a.session.parameter("model.layers.1.mlp.up_proj.weight");
  std::vector<float> y = c.session.parameter("model.layers.1.mlp.up_proj.weight");
  EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end()));
}

}  // namespace
}  // namespace tessera
