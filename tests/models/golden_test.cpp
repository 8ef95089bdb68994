// Tiny models of every family against Hugging Face transformers (tools/goldens/): logits, loss,
// every gradient and twenty AdamW steps, in f32 on the CPU backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "backends/cpu/cpu_backend.h"
#include "base/file.h"
#include "checkpoint/safetensors.h"
#include "models/build_model.h"
#include "models/hugging_face_tensor.h"
#include "programs/session.h"
#include "weights/model_weights.h"

namespace tessera {
namespace {

class Golden {
 public:
  explicit Golden(const std::string& name)
      : directory_(cat(TESSERA_SOURCE_DIR, "/tests/goldens/", name)),
        golden_(directory_ + "/golden.safetensors") {
    config_ = read_hugging_face_config(directory_);
    if (name == "gpt2_exact_tiny") config_.bias = false;  // which a config.json cannot say
    config_.resid_pdrop = config_.embd_pdrop = config_.attn_pdrop = 0;
  }

  const ModelConfig& config() const { return config_; }
  template <class T>
  std::span<const T> get(const std::string& name) const {
    const TensorInfo* info = golden_.find(name);
    EXPECT_NE(info, nullptr) << name;
    auto bytes = golden_.bytes(*info);
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  // As any directory that transformers wrote.
  void load_weights(Session& session) const {
    const Programs& programs = session.programs();
    ThreadPool pool(1);
    PretrainedWeights weights(directory_, family_names(config_.model_type),
                              file_tensors(config_.model_type, programs.parameters));
    copy_parameters(weights, weight_targets(programs, session.state(), 0), pool);
  }
  // In our layout.
  std::vector<float> gradient(const Parameter& p) const {
    HuggingFaceTensor stored = hugging_face_tensor(config_.model_type, p);
    auto data = get<float>(cat("grad.", p.name));
    EXPECT_EQ(golden_.find(cat("grad.", p.name))->shape, stored.shape) << p.name;
    std::vector<float> values(data.begin(), data.end());
    if (!stored.transposed) return values;
    auto rows = static_cast<size_t>(stored.shape[0]),
         columns = static_cast<size_t>(stored.shape[1]);
    for (size_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < columns; ++c) values[c * rows + r] = data[r * columns + c];
    }
    return values;
  }

 private:
  std::string directory_;
  SafetensorsFile golden_;
  ModelConfig config_;
};

constexpr int64_t kBatch = 2, kLength = 48;

struct Job {
  Golden golden;
  ModelConfig config;
  cpu::CpuBackend backend;
  Session session;

  explicit Job(const std::string& name, const OptimizerOptions& optimizer = {})
      : golden(name),
        config(golden.config()),
        backend(2, cpu::detect_isa()),
        session(programs(config, optimizer), backend) {
    session.allocate();
    golden.load_weights(session);
    session.set_decay(0.1, false);
  }
  static Programs programs(const ModelConfig& config, const OptimizerOptions& optimizer) {
    ProgramOptions options;
    options.optimizer = optimizer;
    options.batch = kBatch;
    options.length = kLength;
    options.validation_batch = kBatch;
    options.compute = DType::kF32;
    return build_programs(model_builder(config), options);
  }
};

double largest(std::span<const float> values) {
  double m = 0;
  for (float v : values) m = std::max(m, static_cast<double>(std::abs(v)));
  return m;
}

class ModelGolden : public testing::TestWithParam<std::string> {};

TEST_P(ModelGolden, LossAndGradients) {
  Job s(GetParam());
  auto tokens = s.golden.get<int32_t>("tokens"), labels = s.golden.get<int32_t>("labels");
  auto [loss_sum, count, stop] = s.session.evaluate({tokens, labels});
  double expected = s.golden.get<float>("loss")[0];
  EXPECT_NEAR(loss_sum / static_cast<double>(count), expected, 1e-5 * expected);
  std::vector<MicroBatch> batches{{tokens, labels}};
  s.session.accumulate(batches);
  double global = 0;
  for (const Parameter& p : s.session.programs().parameters) {
    for (float g : s.golden.gradient(p)) global += static_cast<double>(g) * g;
  }
  global = std::sqrt(global);
  for (const Parameter& p : s.session.programs().parameters) {
    std::vector<float> want = s.golden.gradient(p);
    auto got = s.session.gradient(p.name);
    ASSERT_EQ(want.size(), got.size());
    double dot = 0, a = 0, b = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      double g = got[i] / static_cast<double>(count);
      dot += g * want[i];
      a += g * g;
      b += static_cast<double>(want[i]) * want[i];
    }
    if (std::sqrt(b) <= 1e-6 * global) continue;
    EXPECT_GT(dot / std::sqrt(a * b), 0.99999) << p.name;
    EXPECT_NEAR(std::sqrt(a), std::sqrt(b), 1e-4 * std::sqrt(b)) << p.name;
  }
}

TEST_P(ModelGolden, Logits) {
  Job s(GetParam());
  ModelGraph model = build_model(s.config, kBatch, kLength, ModelHead::kLogits);
  std::vector<FlatUnit> units = make_units(model.graph, model.parameters);
  auto executable = s.backend.compile_host(flat_units(model.graph, model.parameters, units));
  HostArenas arenas(executable->memory());
  executable->bind(s.session.state(), arenas);
  auto tokens = s.golden.get<int32_t>("tokens");
  executable->run({{"tokens", tokens.data()}});
  auto want = s.golden.get<float>("logits");
  auto* got = static_cast<const float*>(executable->output("logits"));
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i)
    worst = std::max(worst, static_cast<double>(std::abs(got[i] - want[i])));
  EXPECT_LE(worst / largest(want), 1e-4);
}

// The program of `generate`: the logits of one position of the first sequence.
TEST_P(ModelGolden, NextTokenLogits) {
  Job s(GetParam());
  auto tokens = s.golden.get<int32_t>("tokens");
  auto want = s.golden.get<float>("logits");
  auto vocabulary = static_cast<size_t>(s.config.vocab_size);
  for (auto [compute, tolerance] : {std::pair{DType::kF32, 1e-4}, {DType::kBF16, 5e-2}}) {
    Graph program =
        build_next_token(model_builder(s.config), {.length = kLength, .compute = compute}).graph;
    auto executable = s.backend.compile_host(program);
    EXPECT_EQ(program.type(program.outputs()[0].value).dtype, DType::kF32);
    HostArenas arenas(executable->memory());
    executable->bind(s.session.state(), arenas);
    for (int32_t position : {0, 7, 47}) {
      executable->run({{"tokens", tokens.data()}, {"position", &position}});
      auto* got = static_cast<const float*>(executable->output("logits"));
      double worst = 0;
      for (size_t i = 0; i < vocabulary; ++i) {
        float expected = want[static_cast<size_t>(position) * vocabulary + i];
        worst = std::max(worst, static_cast<double>(std::abs(got[i] - expected)));
      }
      EXPECT_LE(worst / largest(want), tolerance) << name(compute) << " " << position;
    }
  }
}

void expect_steps(Job& s, double rate, std::span<const float> losses,
                  std::span<const float> norms) {
  auto tokens = s.golden.get<int32_t>("train_tokens"),
       labels = s.golden.get<int32_t>("train_labels");
  constexpr size_t kTokens = kBatch * kLength;
  ASSERT_EQ(losses.size(), 20u);
  for (size_t step = 0; step < losses.size(); ++step) {
    std::vector<MicroBatch> batches{
        {tokens.subspan(step * kTokens, kTokens), labels.subspan(step * kTokens, kTokens)}};
    StepResult result = s.session.step(batches, rate, 1.0);
    EXPECT_TRUE(result.ok);
    EXPECT_NEAR(result.loss, losses[step], 1e-3 * losses[step]) << step;
    EXPECT_NEAR(result.gradient_norm, norms[step], 1e-2 * norms[step]) << step;
  }
}

TEST_P(ModelGolden, TwentySteps) {
  Job s(GetParam());
  expect_steps(s, 1e-3, s.golden.get<float>("train_losses"),
               s.golden.get<float>("train_grad_norms"));
}

// The same steps by the other optimizers, clipped and with decay:
// tools/goldens/optimizer_goldens.py.
TEST(OptimizerGolden, TwentySteps) {
  auto golden = nlohmann::json::parse(
      read_file(std::string(TESSERA_SOURCE_DIR) + "/tests/goldens/optimizers.json"));
  for (const OptimizerRecord& record : optimizers()) {
    SCOPED_TRACE(record.name);
    const auto& own = golden.at("optimizers").at(std::string(record.name));
    const auto& settings = own.at("options");
    OptimizerOptions options{.name = std::string(record.name)};
    options.momentum = settings.value("momentum", options.momentum);
    if (settings.contains("betas")) {
      options.beta1 = settings["betas"][0];
      options.beta2 = settings["betas"][1];
    }
    Job s(golden.at("model").get<std::string>(), options);
    expect_steps(s, settings.at("lr"), own.at("steps").at("losses").get<std::vector<float>>(),
                 own.at("steps").at("norms").get<std::vector<float>>());
  }
}

// Every model that the scripts have written.
std::vector<std::string> models() {
  std::vector<std::string> names;
  for (const char* list : {"manifest.json", "families.json"}) {
    auto json = nlohmann::json::parse(read_file(cat(TESSERA_SOURCE_DIR, "/tests/goldens/", list)));
    for (const auto& [name, seed] : json.at("seeds").items()) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(HuggingFace, ModelGolden, testing::ValuesIn(models()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace tessera
