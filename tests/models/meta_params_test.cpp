// params.json as it is published with Meta's own files.
#include <gtest/gtest.h>

#include "models/model_config.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

constexpr const char* kLlama2 =
    R"({"dim": 4096, "multiple_of": 256, "n_heads": 32, "n_layers": 32, "norm_eps": 1e-05,
        "vocab_size": -1})";

struct Published {
  const char* preset;
  const char* params;
  int64_t positions;
};

TEST(MetaParams, ArePublishedModels) {
  for (const Published& model :
       {Published{"llama2_7b", kLlama2, 4096},
        Published{"llama3.1_8b",
                  R"({"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8,
                      "vocab_size": 128256, "ffn_dim_multiplier": 1.3, "multiple_of": 1024,
                      "norm_eps": 1e-05, "rope_theta": 500000.0, "use_scaled_rope": true})",
                  131072},
        Published{"llama3.1_70b",
                  R"({"dim": 8192, "ffn_dim_multiplier": 1.3, "multiple_of": 4096, "n_heads": 64,
                      "n_kv_heads": 8, "n_layers": 80, "norm_eps": 1e-05, "rope_theta": 500000.0,
                      "use_scaled_rope": true, "vocab_size": 128256})",
                  131072},
        Published{"llama3.2_1b",
                  R"({"dim": 2048, "ffn_dim_multiplier": 1.5, "multiple_of": 256, "n_heads": 32,
                      "n_kv_heads": 8, "n_layers": 16, "norm_eps": 1e-05, "rope_theta": 500000.0,
                      "use_scaled_rope": true, "vocab_size": 128256})",
                  131072},
        Published{"llama3.2_3b",
                  R"({"dim": 3072, "ffn_dim_multiplier": 1.0, "multiple_of": 256, "n_heads": 24,
                      "n_kv_heads": 8, "n_layers": 28, "norm_eps": 1e-05, "rope_theta": 500000.0,
                      "use_scaled_rope": true, "vocab_size": 128256})",
                  131072}}) {
    ModelConfig config = parse_meta_params(model.params, "params.json");
    EXPECT_EQ(config.max_context_width, model.positions) << model.preset;
    ModelConfig expected = preset_by_name(model.preset);
    config.max_context_width = expected.max_context_width;
    EXPECT_EQ(config, expected) << model.preset;
  }
}

TEST(MetaParams, AreReadWhereThereIsNoConfigJson) {
  ScratchDirectory scratch;
  scratch.write("params.json", kLlama2);
  EXPECT_EQ(read_hugging_face_config(scratch.path()).hidden_width, 4096);
  EXPECT_EQ(read_hugging_face_config(scratch / "params.json").hidden_width, 4096);
  scratch.write("config.json", R"({"model_type": "llama", "hidden_size": 64,
                                   "num_attention_heads": 2, "num_key_value_heads": 2})");
  EXPECT_EQ(read_hugging_face_config(scratch.path()).hidden_width, 64);
}

TEST(MetaParams, RefusesWhatItDoesNotKnow) {
  auto refusal = [](std::string_view text) {
    return user_error([&] { parse_meta_params(text, "params.json"); });
  };
  expect_contains(refusal("[]"), "params.json: not a JSON object");
  expect_contains(refusal(R"({"dim": 64})"), "'n_layers' is missing");
  expect_contains(
      refusal(cat(R"({"dim": )", std::string(100000, '['), std::string(100000, ']'), "}")),
      "params.json: its JSON is nested in more than 64 levels");
  const std::string start = R"({"dim": 64, "n_layers": 2, "n_heads": 2, )";
  expect_contains(refusal(start + R"("n_experts": 8})"), "n_experts");
  expect_contains(refusal(start + R"("ffn_dim_multiplier": 1e30})"), "must be at most 64");
  expect_contains(refusal(start + R"("multiple_of": 0})"), "'multiple_of' must be above 0");
  expect_contains(refusal(start + R"("quantization_args": {"group_size": 32}})"),
                  "only weights as they were trained are read");
  expect_contains(refusal(R"({"dim": 64, "n_layers": 2, "n_heads": 3})"), "64");
}

}  // namespace
}  // namespace tessera
