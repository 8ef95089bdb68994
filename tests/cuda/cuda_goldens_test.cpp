// Tiny models of every family on the emulated GPU against Hugging Face transformers, as
// tests/models/golden_test.cpp has them on the CPU backend, by its bounds.
#include "backends/cuda/cuda_backend.h"
#include "tests/cuda/cuda_fixture.h"
#include "tests/models/golden_model.h"

namespace tessera::cuda {
namespace {

class CudaGoldens : public CudaTest, public testing::WithParamInterface<std::string> {};

TEST_P(CudaGoldens, AreReached) {
  CudaBackend backend({});
  GoldenSession s(GetParam(), backend);
  expect_loss_and_gradients(s);
  expect_logits(s, backend);
  expect_next_token_logits(s, backend, DType::kBF16, 5e-2);
  expect_steps(s, 1e-3, s.golden.get<float>("train_losses"),
               s.golden.get<float>("train_grad_norms"));
}

TEST_P(CudaGoldens, AreNearInBf16) {
  CudaBackend backend({});
  expect_near_in_bf16(GetParam(), backend);
}

INSTANTIATE_TEST_SUITE_P(HuggingFace, CudaGoldens, testing::ValuesIn(golden_models()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace tessera::cuda
