// Adapters that PEFT has saved, on tiny models of transformers' (tools/goldens/lora_goldens.py):
// logits, loss, gradients and twenty AdamW steps, in f32 on the CPU backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backends/cpu/cpu_backend.h"
#include "checkpoint/safetensors.h"
#include "options/lora_options.h"
#include "programs/session.h"
#include "weights/adapter_weights.h"
#include "weights/model_weights.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 2, kTokens = 48;

class Adapter : public testing::TestWithParam<std::string> {
 protected:
  Adapter()
      : directory_(cat(goldens_, "lora/", GetParam())),
        base_golden_(goldens_ + GetParam() + "/golden.safetensors"),
        golden_(directory_ + "/golden.safetensors"),
        config_(read_hugging_face_config(goldens_ + GetParam())),
        backend_(2, cpu::detect_isa()) {
    config_.resid_pdrop = config_.embd_pdrop = config_.attn_pdrop = 0;
    config_.lora = lora_of_adapter(directory_, config_);
  }

  template <class T>
  static std::span<const T> get(const SafetensorsFile& file, const std::string& name) {
    const TensorInfo* info = file.find(name);
    EXPECT_NE(info, nullptr) << name;
    auto bytes = file.bytes(*info);
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  std::span<const float> golden(const std::string& name) const { return get<float>(golden_, name); }
  std::span<const int32_t> batch(const std::string& name) const {
    return get<int32_t>(base_golden_, name);
  }

  AdaptedWeights weights(const std::vector<Parameter>& parameters) const {
    auto type = config_.model_type;
    return {std::make_shared<PretrainedWeights>(goldens_ + GetParam(), family_names(type),
                                                file_tensors(type, base_parameters(parameters))),
            std::make_shared<AdapterWeights>(directory_, config_, parameters)};
  }

  Session session() {
    ProgramOptions options;
    options.batch = options.validation_batch = kRows;
    options.length = kTokens;
    options.compute = DType::kF32;
    Session session(build_programs(model_builder(config_), options), backend_);
    session.allocate();
    copy_parameters(weights(session.programs().parameters),
                    weight_targets(session.programs(), session.state_to_write(), 0),
                    backend_.pool());
    session.set_decay(0.1, false);
    return session;
  }

  const std::string goldens_ = cat(TESSERA_SOURCE_DIR, "/tests/goldens/");
  std::string directory_;
  SafetensorsFile base_golden_, golden_;
  ModelConfig config_;
  cpu::CpuBackend backend_;
};

TEST_P(Adapter, GivesTheLogits) {
  NextToken program = build_next_token(model_builder(config_), {.length = kTokens});
  auto executable = backend_.compile_host(program.graph);
  HostArenas arenas(executable->memory());
  auto state = backend_.make_state();
  executable->bind(*state, arenas);
  copy_parameters(weights(program.parameters),
                  weight_targets(program.parameters, program.units, *state), backend_.pool());
  auto want = golden("logits");
  const auto vocabulary = static_cast<size_t>(config_.vocab_size);
  double most = 0, off = 0;
  size_t row = 0;
  for (int32_t position : {0, 7, 47}) {
    executable->run({{"tokens", batch("tokens").data()}, {"position", &position}});
    auto* got = static_cast<const float*>(executable->output("logits"));
    for (size_t i = 0; i < vocabulary; ++i) {
      double expected = want[row * vocabulary + i];
      most = std::max(most, std::abs(expected));
      off = std::max(off, std::abs(got[i] - expected));
    }
    ++row;
  }
  EXPECT_LT(off, 1e-5 * most);
}

TEST_P(Adapter, GivesLossAndGradients) {
  Session s = session();
  auto tokens = batch("tokens"), labels = batch("labels");
  auto [loss_sum, count, stop] = s.evaluate({tokens, labels});
  const double expected = golden("loss")[0], n = static_cast<double>(count);
  EXPECT_NEAR(loss_sum / n, expected, 1e-5 * expected);
  s.accumulate(std::vector<MicroBatch>{{tokens, labels}});
  for (const Parameter& p : adapter_parameters(s.programs().parameters)) {
    auto want = golden(cat("grad.", p.name));
    std::vector<float> got = s.gradient(p.name);
    ASSERT_EQ(want.size(), got.size()) << p.name;
    double most = 0, off = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      most = std::max(most, static_cast<double>(std::abs(want[i])));
      off = std::max(off, std::abs(got[i] / n - want[i]));
    }
    EXPECT_LT(off, 1e-4 * most) << p.name;
  }
}

TEST_P(Adapter, TrainsAsWithPeft) {
  Session s = session();
  auto tokens = batch("train_tokens"), labels = batch("train_labels");
  auto losses = golden("train_losses");
  constexpr size_t kBatch = kRows * kTokens;
  ASSERT_EQ(losses.size(), 20u);
  for (size_t step = 0; step < losses.size(); ++step) {
    std::vector<MicroBatch> batches{
        {tokens.subspan(step * kBatch, kBatch), labels.subspan(step * kBatch, kBatch)}};
    EXPECT_NEAR(s.step(batches, 1e-3, 1.0).loss, losses[step], 2e-4 * losses[step]) << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Peft, Adapter,
                         testing::Values("llama31_tiny", "llama32_tiny", "gpt2_tiny",
                                         "gpt_neox_tiny", "qwen2_tiny"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tessera
