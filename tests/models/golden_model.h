#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "checkpoint/safetensors.h"
#include "models/build_model.h"
#include "models/hugging_face_tensor.h"
#include "programs/session.h"
#include "weights/model_weights.h"

namespace tessera {

// What transformers says of a tiny model (tools/goldens/).
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
    copy_parameters(weights, weight_targets(programs, session.state_to_write(), 0), pool);
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

constexpr int64_t kGoldenBatch = 2, kGoldenLength = 48;

// A session with its weights.
struct GoldenSession {
  Golden golden;
  Session session;

  GoldenSession(const std::string& name, Backend& backend, DType compute = DType::kF32,
                const OptimizerOptions& optimizer = {})
      : golden(name), session(programs(golden.config(), compute, optimizer), backend) {
    session.allocate();
    golden.load_weights(session);
    session.set_decay(0.1, false);
  }
  static Programs programs(const ModelConfig& config, DType compute,
                           const OptimizerOptions& optimizer) {
    ProgramOptions options;
    options.optimizer = optimizer;
    options.batch = kGoldenBatch;
    options.length = kGoldenLength;
    options.validation_batch = kGoldenBatch;
    options.compute = compute;
    return build_programs(model_builder(config), options);
  }
};

inline double largest(std::span<const float> values) {
  double m = 0;
  for (float v : values) m = std::max(m, static_cast<double>(std::abs(v)));
  return m;
}

// Of a program of logits: the largest difference, relative to the largest logit.
inline double worst_of(std::span<const float> got, std::span<const float> want) {
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i)
    worst = std::max(worst, static_cast<double>(std::abs(got[i] - want[i])));
  return worst;
}

inline void expect_logits(GoldenSession& s, Backend& backend, double bound = 1e-4) {
  ModelGraph model =
      build_model(s.golden.config(), kGoldenBatch, kGoldenLength, ModelHead::kLogits);
  std::vector<FlatUnit> units = make_units(model.graph, model.parameters);
  auto executable = backend.compile(flat_units(model.graph, model.parameters, units));
  auto arenas = backend.make_arenas(executable->memory());
  executable->bind(s.session.state_to_write(), *arenas);
  auto tokens = s.golden.get<int32_t>("tokens");
  auto want = s.golden.get<float>("logits");
  std::vector<float> got(want.size());
  executable->start({{"tokens", tokens.data()}}).read("logits", std::span(got));
  EXPECT_LE(worst_of(got, want) / largest(want), bound);
}

// The program of `generate`: the logits of one position of the first sequence.
inline void expect_next_token_logits(GoldenSession& s, Backend& backend, DType compute,
                                     double bound) {
  auto tokens = s.golden.get<int32_t>("tokens");
  auto want = s.golden.get<float>("logits");
  auto vocabulary = static_cast<size_t>(s.golden.config().vocab_size);
  Graph program = build_next_token(model_builder(s.golden.config()),
                                   {.length = kGoldenLength, .compute = compute})
                      .graph;
  auto executable = backend.compile(program);
  EXPECT_EQ(program.type(program.outputs()[0].value).dtype, DType::kF32);
  auto arenas = backend.make_arenas(executable->memory());
  executable->bind(s.session.state_to_write(), *arenas);
  for (int32_t position : {0, 7, 47}) {
    std::vector<float> got(vocabulary);
    executable->start({{"tokens", tokens.data()}, {"position", &position}})
        .read("logits", std::span(got));
    auto own = want.subspan(static_cast<size_t>(position) * vocabulary, vocabulary);
    EXPECT_LE(worst_of(got, own) / largest(want), bound) << name(compute) << " " << position;
  }
}

struct GradientBounds {
  double loss = 1e-5, least_cosine = 0.99999, norm = 1e-4;  // relative
};

// Of what a device computes in bf16.
constexpr GradientBounds kBf16Bounds{.loss = 5e-3, .least_cosine = 0.99, .norm = 5e-2};

// Of the loss and every gradient; those that are nothing beside the whole are left out.
inline void expect_loss_and_gradients(GoldenSession& s, const GradientBounds& bounds = {}) {
  auto tokens = s.golden.get<int32_t>("tokens"), labels = s.golden.get<int32_t>("labels");
  auto [loss_sum, count, stop] = s.session.evaluate({tokens, labels});
  double expected = s.golden.get<float>("loss")[0];
  EXPECT_NEAR(loss_sum / static_cast<double>(count), expected, bounds.loss * expected);
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
    EXPECT_GT(dot / std::sqrt(a * b), bounds.least_cosine) << p.name;
    EXPECT_NEAR(std::sqrt(a), std::sqrt(b), bounds.norm * std::sqrt(b)) << p.name;
  }
}

inline void expect_steps(GoldenSession& s, double rate, std::span<const float> losses,
                         std::span<const float> norms, double loss_bound = 1e-3,
                         double norm_bound = 1e-2) {
  auto tokens = s.golden.get<int32_t>("train_tokens"),
       labels = s.golden.get<int32_t>("train_labels");
  constexpr size_t kTokens = kGoldenBatch * kGoldenLength;
  ASSERT_EQ(losses.size(), 20u);
  for (size_t step = 0; step < losses.size(); ++step) {
    std::vector<MicroBatch> batches{
        {tokens.subspan(step * kTokens, kTokens), labels.subspan(step * kTokens, kTokens)}};
    StepResult result = s.session.step(batches, rate, 1.0);
    EXPECT_TRUE(result.ok);
    EXPECT_NEAR(result.loss, losses[step], loss_bound * losses[step]) << step;
    EXPECT_NEAR(result.gradient_norm, norms[step], norm_bound * norms[step]) << step;
  }
}

inline void expect_near_in_bf16(const std::string& name, Backend& backend) {
  GoldenSession s(name, backend, DType::kBF16);
  expect_loss_and_gradients(s, kBf16Bounds);
  expect_steps(s, 1e-3, s.golden.get<float>("train_losses"),
               s.golden.get<float>("train_grad_norms"), 2e-2, 1e-1);
}

// Every model that the scripts have written.
inline std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  for (const char* list : {"manifest.json", "families.json"}) {
    auto json = nlohmann::json::parse(read_file(cat(TESSERA_SOURCE_DIR, "/tests/goldens/", list)));
    for (const auto& [name, seed] : json.at("seeds").items()) names.push_back(name);
  }
  return names;
}

}  // namespace tessera
