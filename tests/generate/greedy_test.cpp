// The likeliest continuations of the tiny models, token for token as Hugging Face transformers
// gives them (tools/goldens/greedy_goldens.py), with the cache and without.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "backends/cpu/cpu_backend.h"
#include "base/file.h"
#include "checkpoint/safetensors.h"
#include "generate/decoder.h"
#include "generate/sampler.h"
#include "train/training_run.h"

namespace tessera {
namespace {

const std::string kGoldens = TESSERA_SOURCE_DIR "/tests/goldens";

nlohmann::json golden() { return nlohmann::json::parse(read_file(kGoldens + "/greedy.json")); }

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& [name, texts] : golden()["models"].items()) names.push_back(name);
  return names;
}

class Greedy : public testing::TestWithParam<std::string> {
 protected:
  std::string folder_ = kGoldens + "/" + GetParam();
  ModelConfig config_ = read_hugging_face_config(folder_);
  SafetensorsFile weights_{folder_ + "/model.safetensors"};
  cpu::CpuBackend backend_{2, cpu::detect_isa()};

  std::unique_ptr<Decoder> decoder(int64_t prompt, int64_t longest) {
    auto decoder = std::make_unique<Decoder>(
        model_builder(config_),
        DecoderOptions{config_.max_context_width, prompt, longest, DType::kF32},
        [this](const Graph& g) { return backend_.compile(g); });
    decoder->load(
        [this](const std::string& name, const Shape& shape, std::span<float> values) {
          const TensorInfo* info = weights_.find(name);
          ASSERT_TRUE(info && info->shape == shape && info->dtype == DType::kF32) << name;
          std::memcpy(values.data(), weights_.bytes(*info).data(), values.size_bytes());
        },
        backend_.pool());
    return decoder;
  }
};

TEST_P(Greedy, ContinuesAsTransformersDoes) {
  Sampler greedy({.temperature = 0});
  for (const auto& text : golden()["models"][GetParam()]) {
    auto ids = text["prompt"].get<std::vector<int32_t>>();
    auto expected = text["continuation"].get<std::vector<int32_t>>();
    auto prompt = std::ssize(ids), longest = prompt + std::ssize(expected);
    SCOPED_TRACE(prompt);
    auto cached = decoder(prompt, longest);
    std::vector<int32_t> continuation;
    for (size_t i = 0; i < expected.size(); ++i) {
      continuation.push_back(greedy.choose(cached->next_logits(ids), i));
      if (i % 16 == 0) {  // the whole text at once, by a decoder that has seen nothing
        EXPECT_EQ(greedy.choose(decoder(longest, longest)->next_logits(ids), i),
                  continuation.back());
      }
      ids.push_back(continuation.back());
    }
    EXPECT_EQ(continuation, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(HuggingFace, Greedy, testing::ValuesIn(names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tessera
