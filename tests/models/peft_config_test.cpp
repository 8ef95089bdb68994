#include "models/peft_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/text.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

Lora parse(const std::string& text) { return parse_peft_config(text, "dir/adapter_config.json"); }
std::string error_of(const std::string& text) {
  return user_error([&] { parse(text); });
}

TEST(PeftConfig, ReadsWhatPeftWrites) {
  Lora lora = parse(
      read_file(cat(TESSERA_SOURCE_DIR, "/tests/goldens/lora/llama32_tiny/adapter_config.json")));
  EXPECT_EQ(lora, (Lora{.rank = 3, .alpha = 5, .rank_stabilised = true}));
  lora = parse(R"({"peft_type": "LORA", "r": 64, "lora_alpha": 0.5, "lora_dropout": 0.05,
                   "target_modules": "all-linear", "new_in_2030": null, "another": {}})");
  EXPECT_EQ(lora, (Lora{.rank = 64, .alpha = 0.5, .dropout = 0.05}));
  EXPECT_EQ(parse(R"({"peft_type": "LORA"})"), (Lora{.rank = 8, .alpha = 8})) << "PEFT's defaults";
}

TEST(PeftConfig, RefusesWhatWouldComputeSomethingElse) {
  auto with = [](const std::string& key, const std::string& value) {
    return error_of(cat(R"({"peft_type": "LORA", ")", key, "\": ", value, "}"));
  };
  expect_contains(error_of("{}"), "dir/adapter_config.json: 'peft_type' is ''");
  expect_contains(error_of(R"({"peft_type": "IA3"})"), "only adapters of type LORA can be read");
  expect_contains(error_of("[1]"), "is not a JSON object");
  expect_contains(error_of("{"), "is not a JSON object");
  expect_contains(with("lora_alpha", "1e400"),
                  "dir/adapter_config.json: its JSON has a number that is too large");
  expect_contains(error_of(std::string((1 << 20) + 1, ' ')), "larger than 1 MiB");
  expect_contains(with("r", std::string(100000, '[') + std::string(100000, ']')),
                  "dir/adapter_config.json: its JSON is nested in more than 64 levels");
  expect_contains(with("use_dora", "true"), "'use_dora' (DoRA) is not supported");
  expect_contains(with("rank_pattern", R"({"q_proj": 4})"), "'rank_pattern' (ranks by layer)");
  expect_contains(with("modules_to_save", R"(["lm_head"])"), "'modules_to_save'");
  expect_contains(with("bias", "\"all\""), "'bias' must be none");
  expect_contains(with("init_lora_weights", "\"pissa\""),
                  "'init_lora_weights' must be true, false");
  expect_contains(with("r", "0"), "'r' must be a rank of 1 to 65536: it is 0");
  expect_contains(with("r", "\"8\""), "'r' must be an integer");
  expect_contains(with("lora_alpha", "-1"), "'lora_alpha' must be a number above 0");
  expect_contains(with("lora_dropout", "1"), "'lora_dropout' must be a probability below 1");
  expect_contains(with("new_in_2030", "true"), "\"new_in_2030\" is not known here");
}

ModelConfig tiny(ModelType family) {
  ModelConfig c = family_defaults(family);
  c.vocab_size = 40;
  c.hidden_width = 32;
  c.num_layers = 2;
  c.num_heads = c.num_key_value_heads = 4;
  c.intermediate_size = 64;
  derive_shape(c);
  return c;
}

TEST(PeftConfig, WritesWhatPeftReads) {
  ModelConfig model = tiny(ModelType::kLlamaV3);
  model.lora = {
      .rank = 4, .alpha = 8, .rank_stabilised = true, .dropout = 0.125, .targets = {"all-linear"}};
  Json json = Json::parse(peft_config_json(model, "hf://meta-llama/Llama-3.2-1B@0123abcd"));
  EXPECT_EQ(json["peft_type"], "LORA");
  EXPECT_EQ(json["task_type"], "CAUSAL_LM");
  EXPECT_EQ(json["base_model_name_or_path"], "meta-llama/Llama-3.2-1B");
  EXPECT_EQ(json["revision"], "0123abcd");
  EXPECT_EQ(json["r"], 4);
  EXPECT_EQ(json["lora_alpha"], 8);
  EXPECT_EQ(json["lora_dropout"], 0.125);
  EXPECT_EQ(json["use_rslora"], true);
  EXPECT_EQ(json["fan_in_fan_out"], false);
  EXPECT_EQ(json["bias"], "none");
  EXPECT_EQ(json["target_modules"],
            (Json{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}));
  Lora again = parse(json.dump());
  again.targets = model.lora.targets;
  EXPECT_EQ(again, model.lora);
  model.lora.targets = {"1.self_attn.q_proj"};
  json = Json::parse(peft_config_json(model, ""));
  EXPECT_EQ(json["target_modules"], Json{"model.layers.1.self_attn.q_proj"});
  EXPECT_TRUE(json["base_model_name_or_path"].is_null());
  ModelConfig gpt2 = tiny(ModelType::kGpt2);
  gpt2.lora = {.rank = 4, .targets = {"c_attn"}};
  json = Json::parse(peft_config_json(gpt2, "models/gpt2"));
  EXPECT_EQ(json["fan_in_fan_out"], true) << "its matrices are stored as [in, out]";
  EXPECT_EQ(json["base_model_name_or_path"], "models/gpt2");
}

}  // namespace
}  // namespace tessera
