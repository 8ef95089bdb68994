// Tiny models of every family on XLA's CPU against Hugging Face transformers, as
// tests/models/golden_test.cpp has them on the CPU backend, by its bounds. Needs a plug-in.
#include "backends/xla/xla_backend.h"
#include "tests/backends/xla/xla_plugin.h"
#include "tests/models/golden_model.h"

namespace tessera::xla {
namespace {

class XlaGoldens : public XlaTest, public testing::WithParamInterface<std::string> {};

TEST_P(XlaGoldens, AreReached) {
  XlaBackend backend({plugin_, {}}, nullptr);
  GoldenSession s(GetParam(), backend);
  expect_loss_and_gradients(s);
  expect_logits(s, backend);
  expect_next_token_logits(s, backend, DType::kBF16, 5e-2);
  expect_steps(s, 1e-3, s.golden.get<float>("train_losses"),
               s.golden.get<float>("train_grad_norms"));
  EXPECT_EQ(backend.updates().copied, 0);
}

TEST_P(XlaGoldens, AreNearInBf16) {
  XlaBackend backend({plugin_, {}}, nullptr);
  GoldenSession s(GetParam(), backend, DType::kBF16);
  expect_loss_and_gradients(s, {.loss = 5e-3, .least_cosine = 0.99, .norm = 5e-2});
  expect_steps(s, 1e-3, s.golden.get<float>("train_losses"),
               s.golden.get<float>("train_grad_norms"), 2e-2, 1e-1);
}

INSTANTIATE_TEST_SUITE_P(HuggingFace, XlaGoldens, testing::ValuesIn(golden_models()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace tessera::xla
