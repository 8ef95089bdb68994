// Tiny models of every family against Hugging Face transformers (tools/goldens/): logits, loss,
// every gradient and twenty AdamW steps, in f32 on the CPU backend.
#include <gtest/gtest.h>

#include "backends/cpu/cpu_backend.h"
#include "tests/models/golden_model.h"

namespace tessera {
namespace {

class ModelGolden : public testing::TestWithParam<std::string> {
 protected:
  cpu::CpuBackend backend_{2, cpu::detect_isa()};
};

TEST_P(ModelGolden, LossAndGradients) {
  GoldenSession s(GetParam(), backend_);
  expect_loss_and_gradients(s);
}

TEST_P(ModelGolden, Logits) {
  GoldenSession s(GetParam(), backend_);
  expect_logits(s, backend_);
}

TEST_P(ModelGolden, NextTokenLogits) {
  GoldenSession s(GetParam(), backend_);
  expect_next_token_logits(s, backend_, DType::kF32, 1e-4);
  expect_next_token_logits(s, backend_, DType::kBF16, 5e-2);
}

TEST_P(ModelGolden, TwentySteps) {
  GoldenSession s(GetParam(), backend_);
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
    cpu::CpuBackend backend(2, cpu::detect_isa());
    GoldenSession s(golden.at("model").get<std::string>(), backend, DType::kF32, options);
    expect_steps(s, settings.at("lr"), own.at("steps").at("losses").get<std::vector<float>>(),
                 own.at("steps").at("norms").get<std::vector<float>>());
  }
}

INSTANTIATE_TEST_SUITE_P(HuggingFace, ModelGolden, testing::ValuesIn(golden_models()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace tessera
