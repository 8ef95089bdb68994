// GGUF files, read by a few lines that know nothing of the writer.
#include "weights/gguf_export.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/float16.h"
#include "base/interruption.h"
#include "tests/base/ended_process.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/weights/torch_state_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class GgufFile {
 public:
  struct Tensor {
    std::vector<uint64_t> dims;
    uint32_t type = 0;
    uint64_t offset = 0;
  };
  explicit GgufFile(const fs::path& path) : content_(read_file(path)) {
    EXPECT_EQ(content_.substr(0, 4), "GGUF");
    at_ = 4;
    EXPECT_EQ(take<uint32_t>(), 3u);
    const auto all_tensors = take<uint64_t>(), all_keys = take<uint64_t>();
    for (uint64_t k = 0; k < all_keys; ++k) {
      const std::string key = text();
      keys[key] = value(take<uint32_t>());
    }
    for (uint64_t t = 0; t < all_tensors; ++t) {
      Tensor& tensor = tensors[text()];
      tensor.dims.resize(take<uint32_t>());
      for (uint64_t& dim : tensor.dims) dim = take<uint64_t>();
      tensor.type = take<uint32_t>();
      tensor.offset = take<uint64_t>();
      EXPECT_EQ(tensor.offset % 32, 0u);
    }
    data_ = (at_ + 31) / 32 * 32;
  }
  std::vector<float> values(const std::string& name) const {
    const Tensor& tensor = tensors.at(name);
    uint64_t count = 1;
    for (uint64_t dim : tensor.dims) count *= dim;
    std::vector<float> all(count);
    const char* begin = content_.data() + data_ + tensor.offset;
    for (uint64_t e = 0; e < count; ++e) {
      if (tensor.type == 0) {
        std::memcpy(&all[e], begin + e * 4, 4);
      } else {
        uint16_t bits;
        std::memcpy(&bits, begin + e * 2, 2);
        BF16 b;
        b.bits = bits;
        all[e] = static_cast<float>(b);
      }
    }
    EXPECT_LE(data_ + tensor.offset + count * (tensor.type == 0 ? 4 : 2), content_.size());
    return all;
  }
  Json keys;
  std::map<std::string, Tensor> tensors;

 private:
  template <class T>
  T take() {
    T value;
    std::memcpy(&value, content_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string text() {
    const auto size = take<uint64_t>();
    std::string s = content_.substr(at_, size);
    at_ += size;
    return s;
  }
  Json value(uint32_t type) {
    switch (type) {
      case 0: return take<uint8_t>();
      case 4: return take<uint32_t>();
      case 5: return take<int32_t>();
      case 6: return take<float>();
      case 7: return take<uint8_t>() != 0;
      case 8: return text();
      default: break;
    }
    EXPECT_EQ(type, 9u);
    const auto of = take<uint32_t>();
    const auto count = take<uint64_t>();
    Json list = Json::array();
    for (uint64_t i = 0; i < count; ++i) list.push_back(value(of));
    return list;
  }
  std::string content_;
  size_t at_ = 0, data_ = 0;
};

// Weights that are their own places: state_value().
class NumberedWeights : public ParameterSource {
 public:
  explicit NumberedWeights(const ModelConfig& model) : parameters_(parameters_of(model)) {}
  size_t number(std::string_view parameter) const {
    auto found = std::ranges::find(parameters_, parameter, &Parameter::name);
    return static_cast<size_t>(found - parameters_.begin());
  }
  void read(std::string_view parameter, int64_t first, std::span<float> values) const override {
    for (size_t e = 0; e < values.size(); ++e)
      values[e] = state_value(number(parameter), "weight", first + static_cast<int64_t>(e));
  }
  void advise(std::string_view, int64_t, int64_t, Advice) const override {}
  const std::vector<Parameter>& parameters() const { return parameters_; }

 private:
  std::vector<Parameter> parameters_;
};

class GgufExportTest : public testing::Test {
 protected:
  GgufFile written(ModelConfig model, DType dtype = DType::kF32) {
    model.vocab_size = 300;  // more than the tokenizer has
    model_ = model;
    source_ = std::make_unique<NumberedWeights>(model_);
    const fs::path path = directory_ / cat("m", count_++, ".gguf");
    export_gguf(path, model_, *source_, {dtype, "byte"});
    return GgufFile(path);
  }
  // Row r of the file is row `row(r)` of the parameter.
  void expect_rows(const GgufFile& file, const std::string& name, const std::string& parameter,
                   const std::function<int64_t(int64_t)>& row) {
    const size_t number = source_->number(parameter);
    const Shape& shape = source_->parameters()[number].shape;
    const bool vector = shape.size() < 2 || parameter.ends_with(".bias");
    const int64_t width = vector ? 1 : shape.back();
    const std::vector<float> values = file.values(name);
    ASSERT_EQ(std::ssize(values), num_elements(shape)) << name;
    const auto& dims = file.tensors.at(name).dims;
    ASSERT_EQ(dims.size(), vector ? 1u : 2u) << name;
    EXPECT_EQ(dims[0], static_cast<uint64_t>(vector ? values.size() : static_cast<size_t>(width)));
    for (int64_t e = 0; e < std::ssize(values); ++e)
      ASSERT_EQ(values[static_cast<size_t>(e)],
                state_value(number, "weight", row(e / width) * width + e % width))
          << name << " " << e;
  }
  ScratchDirectory directory_;
  ModelConfig model_;
  std::unique_ptr<NumberedWeights> source_;
  int count_ = 0;
};

int64_t same(int64_t row) { return row; }

TEST_F(GgufExportTest, LlamasRowsOfQueriesAndKeysArePairs) {
  const GgufFile file = written(tiny_model(ModelType::kLlamaV2));
  EXPECT_EQ(file.keys["general.architecture"], "llama");
  EXPECT_EQ(file.keys["llama.block_count"], 2);
  EXPECT_EQ(file.keys["llama.embedding_length"], 8);
  EXPECT_EQ(file.keys["llama.feed_forward_length"], 12);
  EXPECT_EQ(file.keys["llama.attention.head_count"], 2);
  EXPECT_EQ(file.keys["llama.attention.head_count_kv"], 1);
  EXPECT_EQ(file.keys["llama.rope.dimension_count"], 4);
  EXPECT_EQ(file.keys["llama.context_length"], 6);
  EXPECT_EQ(file.keys["llama.vocab_size"], 300);
  EXPECT_EQ(file.tensors.size(), 3u + 2 * 9);
  expect_rows(file, "token_embd.weight", "model.embed_tokens.weight", same);
  expect_rows(file, "output.weight", "lm_head.weight", same);
  expect_rows(file, "output_norm.weight", "model.norm.weight", same);
  auto pairs = [](int64_t row) { return row / 4 * 4 + row % 2 * 2 + row % 4 / 2; };
  expect_rows(file, "blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj.weight", pairs);
  expect_rows(file, "blk.0.attn_k.weight", "model.layers.0.self_attn.k_proj.weight", pairs);
  expect_rows(file, "blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight", same);
  expect_rows(file, "blk.1.ffn_down.weight", "model.layers.1.mlp.down_proj.weight", same);
  expect_rows(file, "blk.1.ffn_norm.weight", "model.layers.1.post_attention_layernorm.weight",
              same);
}

TEST_F(GgufExportTest, OtherFamiliesHaveTheirOwnOrder) {
  GgufFile qwen = written(tiny_model(ModelType::kQwen2, true));
  EXPECT_EQ(qwen.keys["general.architecture"], "qwen2");
  EXPECT_FALSE(qwen.tensors.contains("output.weight")) << "it is the embedding";
  expect_rows(qwen, "blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight", same);
  expect_rows(qwen, "blk.0.attn_q.bias", "model.layers.0.self_attn.q_proj.bias", same);

  GgufFile gpt2 = written(tiny_model(ModelType::kGpt2, true));
  EXPECT_EQ(gpt2.keys["general.architecture"], "gpt2");
  EXPECT_EQ(gpt2.keys["gpt2.feed_forward_length"], 32);
  EXPECT_FALSE(gpt2.keys.contains("gpt2.rope.freq_base"));
  expect_rows(gpt2, "blk.1.attn_qkv.weight", "transformer.h.1.attn.c_attn.weight", same);
  expect_rows(gpt2, "position_embd.weight", "transformer.wpe.weight", same);

  ModelConfig bare = tiny_model(ModelType::kGpt2, true);
  bare.bias = false;
  gpt2 = written(bare);
  EXPECT_EQ(gpt2.values("blk.1.attn_norm.bias"), std::vector<float>(8, 0.0f))
      << "it must have some";

  GgufFile neox = written(tiny_model(ModelType::kGptNeox));
  EXPECT_EQ(neox.keys["general.architecture"], "gptneox");
  EXPECT_EQ(neox.keys["gptneox.use_parallel_residual"], model_.parallel_residual);
  auto parts_first = [](int64_t row) {  // [3, 2, 4] of [2, 3, 4]
    return (row % 8 / 4 * 3 + row / 8) * 4 + row % 4;
  };
  expect_rows(neox, "blk.1.attn_qkv.weight", "gpt_neox.layers.1.attention.query_key_value.weight",
              parts_first);
  expect_rows(neox, "blk.0.attn_qkv.bias", "gpt_neox.layers.0.attention.query_key_value.bias",
              parts_first);
}

TEST_F(GgufExportTest, ATiedHeadOfNeoXIsWrittenOnceMore) {
  const GgufFile file = written(tiny_model(ModelType::kGptNeox, true), DType::kBF16);
  EXPECT_EQ(file.tensors.at("output.weight").dims, file.tensors.at("token_embd.weight").dims);
  EXPECT_EQ(file.values("output.weight"), file.values("token_embd.weight"));
  EXPECT_EQ(file.keys["gptneox.vocab_size"], 300);
}

TEST_F(GgufExportTest, WhatLlamaCppDoesNotReadIsRefused) {
  auto refusal = [&](const ModelConfig& model) { return user_error([&] { written(model); }); };
  ModelConfig biased = tiny_model(ModelType::kQwen3);
  biased.attention_bias = biased.attention_output_bias = true;
  expect_contains(refusal(biased), "a qwen3 model whose attention has biases cannot be written");
  ModelConfig narrow = tiny_model(ModelType::kQwen2);
  narrow.head_dim = 2;
  expect_contains(refusal(narrow), "a qwen2 model whose heads together are not as wide as");
  for (ModelType family : {ModelType::kQwen2, ModelType::kQwen3}) {
    ModelConfig scaled = tiny_model(family);
    scaled.rope_scaling = {RopeScalingType::kLlama3, 8, 1, 4};
    scaled.rope_scaling.original_max_position = 8192;
    expect_contains(refusal(scaled), "whose rope is scaled as Llama 3's");
  }
  EXPECT_TRUE(fs::is_empty(directory_.path()));
}

TEST_F(GgufExportTest, MatricesAreRoundedAndVectorsAreNot) {
  const GgufFile file = written(tiny_model(ModelType::kLlamaV2), DType::kBF16);
  EXPECT_EQ(file.keys["general.file_type"], 32);
  EXPECT_EQ(file.tensors.at("blk.0.ffn_up.weight").type, 30u);
  EXPECT_EQ(file.tensors.at("blk.0.ffn_norm.weight").type, 0u);
  const size_t number = source_->number("model.layers.0.mlp.up_proj.weight");
  const std::vector<float> values = file.values("blk.0.ffn_up.weight");
  for (size_t e = 0; e < values.size(); ++e) {
    const BF16 rounded(state_value(number, "weight", static_cast<int64_t>(e)));
    ASSERT_EQ(values[e], static_cast<float>(rounded));
  }
}

TEST_F(GgufExportTest, TheTokenizerIsInIt) {
  const GgufFile file = written(tiny_model(ModelType::kLlamaV2));
  EXPECT_EQ(file.keys["tokenizer.ggml.model"], "gpt2");
  const Json& tokens = file.keys["tokenizer.ggml.tokens"];
  ASSERT_EQ(tokens.size(), 300u);
  EXPECT_EQ(tokens[65], "A");
  EXPECT_EQ(tokens[32], "\u0120");
  EXPECT_EQ(tokens[256], "<|endoftext|>");
  EXPECT_EQ(tokens[299], "[PAD299]");
  const Json& kinds = file.keys["tokenizer.ggml.token_type"];
  EXPECT_EQ(kinds[65], 1);
  EXPECT_EQ(kinds[256], 3);
  EXPECT_EQ(kinds[299], 5);
  EXPECT_EQ(file.keys["tokenizer.ggml.eos_token_id"], 256);
  EXPECT_EQ(file.keys["tokenizer.ggml.add_bos_token"], false);
  EXPECT_FALSE(file.keys.contains("tokenizer.chat_template"));
}

TEST_F(GgufExportTest, Llama3sFrequenciesAreFactors) {
  ModelConfig model = tiny_model(ModelType::kLlamaV3);
  model.head_dim = 4;
  model.rope_theta = 500000;
  model.rope_scaling = {RopeScalingType::kLlama3, 8, 1, 4};
  model.rope_scaling.original_max_position = 8192;
  const std::vector<float> factors = written(model).values("rope_freqs.weight");
  // Frequencies 1 and 1 / sqrt(500000): wavelengths 6.28 and 4443, between 2048 and 8192.
  ASSERT_EQ(factors.size(), 2u);
  EXPECT_EQ(factors[0], 1);
  const double wave = 2 * 3.14159265358979 * std::sqrt(500000.0), mix = (8192 / wave - 1) / 3;
  EXPECT_NEAR(factors[1], 1 / ((1 - mix) / 8 + mix), 1e-5);
}

TEST_F(GgufExportTest, RemovesWhatWasKilledBefore) {
  const fs::path left = directory_ / cat("m0.gguf.tmp-", ended_process());
  write_file_atomic(left, "half");
  written(tiny_model(ModelType::kLlamaV2));
  EXPECT_FALSE(fs::exists(left));
}

TEST_F(GgufExportTest, LeavesNothingWhereItFails) {
  written(tiny_model(ModelType::kLlamaV2));
  const fs::path path = directory_ / "m0.gguf";
  expect_contains(user_error([&] {
                    export_gguf(path, model_, *source_, {DType::kF32, "byte"});
                  }),
                  "is there: give another name");
  const fs::path other = directory_ / "other.gguf";
  GgufOptions options{DType::kF32, "byte", [](int64_t, int64_t) { request_interruption(); }};
  message_of<Interrupted>([&] { export_gguf(other, model_, *source_, options); });
  clear_interruption();
  model_.rope_scaling.type = RopeScalingType::kYarn;
  expect_contains(user_error([&] {
                    export_gguf(other, model_, *source_, {DType::kF32, "byte"});
                  }),
                  "YaRN");
  model_ = tiny_model(ModelType::kLlamaV2);
  expect_contains(user_error([&] {
                    export_gguf(other, model_, *source_, {DType::kF32, "byte"});
                  }),
                  "the tokenizer has 257 ids, the model's vocabulary only 11");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_.path()), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace tessera
