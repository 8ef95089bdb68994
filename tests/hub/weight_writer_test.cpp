#include "hub/weight_writer.h"

#include <limits>

#include "base/error.h"
#include "tests/hub/weight_model.h"

namespace tessera {
namespace {

// Parameters in memory.
class Memory : public ParameterSource {
 public:
  void read(std::string_view parameter, int64_t first, std::span<float> values) const override {
    for (size_t i = 0; i < values.size(); ++i)
      values[i] =
          WeightFile::value(std::string(parameter), first + static_cast<int64_t>(i)) * scale;
  }
  void advise(std::string_view, int64_t, int64_t, Advice) const override {}
  float scale = 1;
};

void expect_equal(const ParameterSource& a, const ParameterSource& b,
                  const std::vector<FileTensor>& shapes) {
  for (const FileTensor& p : shapes) EXPECT_EQ(whole(a, p), whole(b, p)) << p.name;
}

TEST(WeightWriter, WritesWhatIsReadAgain) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int64_t shard : {int64_t{1} << 30, int64_t{300}, int64_t{1}}) {
      ScratchDirectory scratch;
      write_weights(scratch.path(), tiny_llama(), Memory(), dtype, shard);
      PretrainedWeights weights(scratch.path(), kLlamaNames, tiny_llama());
      expect_equal(weights, Memory(), tiny_llama());
    }
  }
}

TEST(WeightWriter, TransposesWhatTheFilesHoldSo) {
  ScratchDirectory scratch;
  // More than one piece of what is in memory at once.
  std::vector<FileTensor> tensors{{"transformer.h.0.mlp.c_fc.weight", {3000, 1500}, true}};
  write_weights(scratch.path(), tensors, Memory(), DType::kBF16, int64_t{1} << 30);
  SafetensorsFile file(scratch / "model.safetensors");
  EXPECT_EQ(file.tensors()[0].shape, (Shape{3000, 1500}));
  PretrainedWeights weights(scratch.path(), kGpt2Names, tensors);
  expect_equal(weights, Memory(), tensors);
}

TEST(WeightWriter, CutsBetweenTensorsOnly) {
  ScratchDirectory scratch;
  // 264 + 96 + 24 + 264 bytes.
  write_weights(scratch.path(), tiny_llama(), Memory(), DType::kF32, 300);
  EXPECT_EQ(names_in(scratch.path()),
            (Names{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                   "model-00003-of-00003.safetensors", "model.safetensors.index.json"}));
  SafetensorsFile second(scratch / "model-00002-of-00003.safetensors");
  EXPECT_EQ(second.tensors().size(), 2u);
  EXPECT_EQ(second.metadata(), (SafetensorsMetadata{{"format", "pt"}, {"written_by", "tessera"}}));
  ScratchDirectory whole;
  write_weights(whole.path(), tiny_llama(), Memory(), DType::kF32, 648);
  EXPECT_EQ(names_in(whole.path()), Names{"model.safetensors"});
}

TEST(WeightWriter, RefusesWhatAnF16CannotHold) {
  ScratchDirectory scratch;
  Memory large;
  large.scale = 1e4f;
  std::string message =
      user_error([&] { write_weights(scratch.path(), tiny_llama(), large, DType::kF16, 1 << 20); });
  expect_contains(message, "parameter 'model.embed_tokens.weight' has ");
  expect_contains(message, "too large for f16: give --dtype bf16 or f32");
  write_weights(scratch.path(), tiny_llama(), large, DType::kBF16, 1 << 20);
  large.scale = std::numeric_limits<float>::infinity();
  write_weights(scratch.path(), tiny_llama(), large, DType::kF16, 1 << 20);
}

}  // namespace
}  // namespace tessera
