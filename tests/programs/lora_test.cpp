// Models with low-rank adapters: what is adapted, that gradients are right, what is kept of weights
// that are not trained.
#include "autodiff/backward.h"
#include "models/model_family.h"
#include "planning/plan_report.h"
#include "tests/base/error_expectation.h"
#include "tests/programs/lockstep_job.h"
#include "tests/programs/tiny_model.h"
#include "weights/adapter_weights.h"

namespace tessera {
namespace {

using Words = std::vector<std::string>;

ModelConfig adapted(ModelType family, Words targets = {"all-linear"}, double dropout = 0) {
  ModelConfig model = tiny_model_of(family);
  model.vocab_size = 40;
  model.resid_pdrop = model.embd_pdrop = model.attn_pdrop = 0;
  model.lora = {.rank = 3, .alpha = 6, .dropout = dropout, .targets = std::move(targets)};
  return model;
}

std::vector<ModelType> families() {
  std::vector<ModelType> types;
  for (const ModelFamily* family : kModelFamilies)
    if (family->build) types.push_back(family->type);
  return types;
}

// Those whose layers differ from one another.
constexpr ModelType kDifferent[] = {ModelType::kLlamaV2, ModelType::kQwen2, ModelType::kQwen3,
                                    ModelType::kGpt2, ModelType::kGptNeox};

TEST(LoraTargets, AreNamesOrTheirEnds) {
  const char* layer = "model.layers.11.mlp.up_proj";
  for (const char* target :
       {"up_proj", "mlp.up_proj", "11.mlp.up_proj", "model.layers.11.mlp.up_proj", "all-linear"})
    EXPECT_TRUE(names_layer(target, layer)) << target;
  for (const char* target :
       {"", "proj", "1.mlp.up_proj", "up", "mlp", "x.model.layers.11.mlp.up_proj"})
    EXPECT_FALSE(names_layer(target, layer)) << target;
}

TEST(LoraTargets, AreAsShortAsTheyCanBe) {
  const Words all{"a.0.q", "a.0.k", "a.1.q", "a.1.k", "b.q"};
  EXPECT_EQ(targets_for(Words{"a.0.k", "a.1.k"}, all), Words{"k"});
  EXPECT_EQ(targets_for(all, all), (Words{"q", "k"}));
  EXPECT_EQ(targets_for(Words{"a.0.q", "a.1.q"}, all), (Words{"a.0.q", "a.1.q"}));
  EXPECT_EQ(targets_for(Words{}, all), Words{});
}

TEST(LoraScale, IsAlphaOverTheRankOrItsRoot) {
  Lora lora{.rank = 16, .alpha = 8};
  EXPECT_EQ(lora.scale(), 0.5);
  lora.rank_stabilised = true;
  EXPECT_EQ(lora.scale(), 2);
}

TEST(LoraModel, HasTwoMatricesForEachLayerThatIsNamed) {
  ModelGraph model = build_model(adapted(ModelType::kLlamaV2, {"q_proj", "0.mlp.down_proj"}), 1, 8,
                                 ModelHead::kLoss);
  Words adapters;
  for (const Parameter& p : model.parameters) {
    EXPECT_EQ(p.trainable, p.adapter) << p.name;
    if (p.adapter) adapters.push_back(cat(p.name, " ", to_string(p.shape)));
  }
  EXPECT_EQ(adapters, (Words{"model.layers.0.self_attn.q_proj.lora_A.weight [3, 32]",
                             "model.layers.0.self_attn.q_proj.lora_B.weight [32, 3]",
                             "model.layers.0.mlp.down_proj.lora_A.weight [3, 64]",
                             "model.layers.0.mlp.down_proj.lora_B.weight [32, 3]",
                             "model.layers.1.self_attn.q_proj.lora_A.weight [3, 32]",
                             "model.layers.1.self_attn.q_proj.lora_B.weight [32, 3]"}));
  const Parameter& a = model.parameter("model.layers.0.mlp.down_proj.lora_A.weight");
  EXPECT_EQ(a.axes, (Words{"", "mlp"})) << "cut as the matrix is";
  EXPECT_EQ(a.unit, "layers.0");
  EXPECT_TRUE(a.decay);
  EXPECT_EQ(model.parameter("model.layers.0.self_attn.q_proj.lora_B.weight").axes,
            (Words{"heads", ""}));
}

// The modules that PEFT finds with "all-linear": every linear layer but the output matrix.
TEST(LoraModel, AllLinearIsEveryLayerOfAllFamilies) {
  const Words llama{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  const std::map<ModelType, Words> expected{
      {ModelType::kGpt2, {"c_attn", "c_proj", "c_fc", "c_proj"}},
      {ModelType::kGptNeox, {"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"}}};
  for (ModelType family : families()) {
    SCOPED_TRACE(name(family));
    const auto& of_layer = expected.contains(family) ? expected.at(family) : llama;
    Words words;
    for (const std::string& layer : linear_layers(adapted(family)))
      words.push_back(layer.substr(layer.rfind('.') + 1));
    Words twice = of_layer;
    twice.insert(twice.end(), of_layer.begin(), of_layer.end());
    EXPECT_EQ(words, twice);
    ModelGraph model = build_model(adapted(family), 1, 8, ModelHead::kLoss);
    EXPECT_EQ(adapter_parameters(model.parameters).size(), 2 * words.size());
    EXPECT_EQ(num_elements(base_parameters(model.parameters)[0].shape), 40 * 32);
    const auto usual = model_family(family).lora_targets;
    ASSERT_FALSE(usual.empty());
    for (std::string_view target : usual) EXPECT_EQ(std::ranges::count(words, target), 2) << target;
  }
}

// Values of parameters by name.
using Weights = std::map<std::string, std::vector<double>>;

Weights random_weights(const std::vector<Parameter>& parameters) {
  Weights weights;
  for (const Parameter& p : parameters) {
    for (int64_t i = 0; i < num_elements(p.shape); ++i) {
      double x = random_normal(5, stream_of(p.name), static_cast<uint64_t>(i));
      weights[p.name].push_back(p.init.kind == InitKind::kOnes ? 1 + 0.1 * x : 0.25 * x);
    }
  }
  return weights;
}

ref::Feeds feeds_of(const ModelConfig& model, const Weights& weights, int64_t rows,
                    int64_t length) {
  ref::Feeds feeds;
  for (const auto& [name, values] : weights) feeds[name] = {values};
  auto bound = static_cast<uint64_t>(model.vocab_size);
  std::vector<double>& tokens = feeds["tokens"].emplace_back();
  std::vector<double>& targets = feeds["targets"].emplace_back();
  for (int64_t i = 0; i < rows * length; ++i) {
    tokens.push_back(static_cast<double>(random_below(1, 0, static_cast<uint64_t>(i), bound)));
    targets.push_back(static_cast<double>(random_below(2, 0, static_cast<uint64_t>(i), bound)));
  }
  std::vector<double>& keys = feeds["row_keys"].emplace_back();
  for (int64_t row = 0; row < rows; ++row)
    keys.push_back(static_cast<double>(dropout_row_key(7, 1, static_cast<uint64_t>(row))));
  return feeds;
}

constexpr int64_t kRows = 2, kLength = 4;

TEST(LoraGradient, IsTheDirectionalDerivative) {
  for (ModelType family : kDifferent) {
    for (double dropout : {0.0, 0.25}) {
      SCOPED_TRACE(cat(name(family), " ", dropout));
      ModelConfig config = adapted(family, {"all-linear"}, dropout);
      config.num_layers = 1;
      ModelGraph model =
          LockstepJob::in_f64(build_model(config, kRows, kLength, ModelHead::kTraining));
      Graph& g = model.graph;
      EXPECT_EQ(static_cast<bool>(g.find_input("row_keys")), dropout > 0);
      const std::vector<Parameter> adapters = adapter_parameters(model.parameters);
      std::vector<Value> wrt;
      for (const Parameter& p : adapters) wrt.push_back(g.input_value(p.name));
      Value loss;
      for (const GraphOutput& output : g.outputs())
        if (output.name == kLossSum) loss = output.value;
      const Graph forward = g;
      std::vector<Value> gradients = backward(g, loss, wrt);
      for (size_t i = 0; i < wrt.size(); ++i) g.output(cat("d ", adapters[i].name), gradients[i]);
      Weights weights = random_weights(model.parameters);
      ref::Results results = ref::run(g, feeds_of(config, weights, kRows, kLength));

      double slope = 0;
      Weights up = weights, down = weights;
      constexpr double kStep = 1e-6;
      for (const Parameter& p : adapters) {
        const std::vector<double>& gradient = results.outputs.at(cat("d ", p.name))[0].data;
        EXPECT_GT(std::ranges::max(gradient), 0) << p.name;
        for (size_t i = 0; i < gradient.size(); ++i) {
          double direction = random_normal(6, stream_of(p.name), i);
          slope += gradient[i] * direction;
          up[p.name][i] += kStep * direction;
          down[p.name][i] -= kStep * direction;
        }
      }
      auto loss_of = [&](const Weights& at) {
        return ref::run(forward, feeds_of(config, at, kRows, kLength))
            .outputs.at(std::string(kLossSum))[0]
            .data[0];
      };
      double measured = (loss_of(up) - loss_of(down)) / (2 * kStep);
      EXPECT_NEAR(slope, measured, 1e-6 * std::abs(measured) + 1e-8);
    }
  }
}

// Parameters in memory, as f32.
class InMemory : public ParameterSource {
 public:
  explicit InMemory(const Weights& weights) {
    for (const auto& [name, values] : weights) weights_[name].assign(values.begin(), values.end());
  }
  void read(std::string_view parameter, int64_t first, std::span<float> values) const override {
    std::copy_n(weights_.at(std::string(parameter)).begin() + first, values.size(), values.begin());
  }
  void advise(std::string_view, int64_t, int64_t, Advice) const override {}

 private:
  std::map<std::string, std::vector<float>> weights_;
};

// Of every family, fused matrices included: the adapted model is the one with W + scale B A.
TEST(LoraModel, IsTheModelWithMergedWeights) {
  for (ModelType family : kDifferent) {
    SCOPED_TRACE(name(family));
    ModelConfig config = adapted(family);
    config.num_layers = 1;
    ModelConfig plain = config;
    plain.lora = {};
    ModelGraph model = build_model(config, kRows, kLength, ModelHead::kLogits);
    Weights weights = random_weights(model.parameters);
    const InMemory source(weights);
    MergedWeights merged(source, config, model.parameters);
    Weights whole;
    ModelGraph base = build_model(plain, kRows, kLength, ModelHead::kLogits);
    for (const Parameter& p : base.parameters) {
      std::vector<float> values(static_cast<size_t>(num_elements(p.shape)));
      // In pieces that begin and end within rows.
      for (size_t at = 0; at < values.size(); at += 37)
        merged.read(p.name, static_cast<int64_t>(at),
                    std::span(values).subspan(at, std::min<size_t>(37, values.size() - at)));
      whole[p.name].assign(values.begin(), values.end());
    }
    auto logits = [&](const ModelGraph& m, const ModelConfig& c, const Weights& w) {
      return ref::run(LockstepJob::in_f64(m).graph, feeds_of(c, w, kRows, kLength))
          .outputs.at("logits")[0]
          .data;
    };
    std::vector<double> one = logits(model, config, weights), two = logits(base, plain, whole);
    for (auto& [name, values] : weights)
      if (name.find("lora_B") != std::string::npos) std::ranges::fill(values, 0);
    std::vector<double> zero = logits(model, config, weights);
    double most = 0, off = 0, added = 0;
    for (size_t i = 0; i < one.size(); ++i) {
      most = std::max(most, std::abs(one[i]));
      off = std::max(off, std::abs(one[i] - two[i]));
      added = std::max(added, std::abs(one[i] - zero[i]));
    }
    EXPECT_LT(off, 2e-6 * most) << "f32 of the merged weights";
    EXPECT_GT(added, 0.1 * most);
    EXPECT_EQ(zero, logits(base, plain, weights)) << "nothing is added by zeros";
  }
}

std::vector<MicroBatch> views(const std::vector<TinyBatch>& batches) {
  std::vector<MicroBatch> all;
  for (const TinyBatch& batch : batches) all.push_back(batch.view());
  return all;
}

class LoraTraining : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Compute, LoraTraining,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST_P(LoraTraining, ChangesAdaptersAndNothingElse) {
  for (ModelType family : {ModelType::kLlamaV2, ModelType::kGpt2, ModelType::kGptNeox}) {
    SCOPED_TRACE(name(family));
    ModelConfig model = tiny_model_of(family);
    model.lora = {.rank = 4, .alpha = 8, .targets = {"all-linear"}};
    ProgramOptions options = tiny_programs(2, 16, GetParam());
    TinySession tiny(model, options, 2);
    EXPECT_EQ(tiny.session.allocated_bytes(), tiny.session.planned_memory().total());
    const Programs& programs = tiny.session.programs();
    for (const FlatUnit& unit : programs.units) {
      bool narrow = !unit.trainable && GetParam() == DType::kBF16;
      EXPECT_EQ(unit.dtype, narrow ? DType::kBF16 : DType::kF32) << unit.name;
    }
    std::map<std::string, std::vector<float>> first;
    for (const Parameter& p : programs.parameters) {
      first[p.name] = tiny.session.parameter(p.name);
      if (p.name.ends_with(".lora_B.weight")) {
        EXPECT_EQ(std::ranges::count(first[p.name], 0.0f), num_elements(p.shape));
      } else if (p.adapter) {
        float bound = 1 / std::sqrt(static_cast<float>(p.shape[1]));
        auto [least, most] = std::ranges::minmax(first[p.name]);
        EXPECT_LT(most, bound);
        EXPECT_GT(most, 0.9f * bound);
        EXPECT_GT(least, -bound);
        EXPECT_LT(least, -0.9f * bound);
      }
    }
    std::vector<TinyBatch> batches{{2, 16, 0, 20}, {2, 16, 1, 20}};
    for (TinyBatch& batch : batches) batch.give_row_keys(0, 0, 2);
    double before = 0, after = 0;
    for (int step = 0; step < 12; ++step) {
      StepResult result = tiny.session.step(views(batches), 0.02, 1);
      EXPECT_TRUE(result.ok);
      (step == 0 ? before : after) = result.loss;
    }
    EXPECT_LT(after, before - 0.2);
    for (const Parameter& p : programs.parameters) {
      if (p.adapter)
        EXPECT_NE(tiny.session.parameter(p.name), first.at(p.name)) << p.name;
      else
        EXPECT_EQ(tiny.session.parameter(p.name), first.at(p.name)) << p.name;
    }
  }
}

// Recomputed, offloaded, in the far tier: weights of both dtypes move.
TEST(LoraSession, MovedStateKeepsEveryBit) {
  ModelConfig model = tiny_model_of(ModelType::kGpt2);
  model.lora = {.rank = 4, .alpha = 8, .dropout = 0.1, .targets = {"all-linear"}};
  std::vector<uint64_t> fingerprints;
  for (bool moved : {false, true}) {
    ProgramOptions options = tiny_programs(2, 16, DType::kBF16);
    options.far_state = options.residency.offload = moved;
    options.residency.share_numerator = moved ? 0.5 : 0;
    options.residency.horizon = 0;
    TinySession tiny(model, options, 2);
    EXPECT_EQ(tiny.session.allocated_bytes(), tiny.session.planned_memory().total());
    std::vector<TinyBatch> batches{{2, 16, 0}, {2, 16, 1}};
    for (TinyBatch& batch : batches) batch.give_row_keys(0, 0, 2);
    for (int step = 0; step < 3; ++step) EXPECT_TRUE(tiny.session.step(views(batches), 0.01, 1).ok);
    fingerprints.push_back(tiny.fingerprint());
  }
  EXPECT_EQ(fingerprints[0], fingerprints[1]);
}

// 8B parameters in bf16 are 15 GiB; moments and gradients are those of the adapters.
TEST(LoraPlan, KeepsTheModelInTheDtypeOfCompute) {
  ModelConfig model = preset_by_name("llama3.1_8b");
  model.lora = {.rank = 16, .alpha = 32, .targets = {"all-linear"}};
  RunConfig config;
  config.train_batch_size = 1;
  config.max_context_width = 512;
  cpu::CpuBackend backend(1, cpu::detect_isa());
  std::string report = plan_report(config, model, {.backend = &backend}).text;
  expect_contains(report,
                  " and adapters of rank 16 with 41943040 (41.94 M), which are trained, 32 layers");
  expect_contains(report, "bf16 over f32 masters of the adapters");
  expect_contains(report, format("  %-28s %12s", "parameters", "15.1 GiB"));
  expect_contains(report, format("  %-28s %12s", "moments (f32)", "320.0 MiB"));
  expect_contains(report, format("  %-28s %12s", "gradients (f32)", "160.0 MiB"));
}

}  // namespace
}  // namespace tessera
