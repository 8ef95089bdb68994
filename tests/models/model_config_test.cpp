#include "models/model_config.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "models/model_family.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

ModelConfig shape(ModelType type, int64_t vocab, int64_t hidden, int64_t layers, int64_t heads,
                  int64_t key_value_heads, int64_t intermediate) {
  ModelConfig c = family_defaults(type);
  c.vocab_size = vocab;
  c.hidden_width = hidden;
  c.num_layers = layers;
  c.num_heads = heads;
  c.num_key_value_heads = key_value_heads;
  c.intermediate_size = intermediate;
  derive_shape(c);
  check(c);
  return c;
}

int64_t llama(int64_t vocab, int64_t hidden, int64_t layers, int64_t heads, int64_t key_value_heads,
              int64_t intermediate) {
  return parameter_count(
      shape(ModelType::kLlamaV2, vocab, hidden, layers, heads, key_value_heads, intermediate));
}

TEST(ParameterCount, LlamaVectors) {
  EXPECT_EQ(llama(50432, 4096, 32, 32, 32, 11008), 6889410560);
  EXPECT_EQ(llama(50432, 4096, 32, 32, 8, 14336), 7392727040);
  EXPECT_EQ(llama(32768, 4096, 32, 32, 8, 14336), 7248023552);
  EXPECT_EQ(llama(50432, 5120, 40, 40, 40, 13824), 13204608000);
  EXPECT_EQ(llama(50432, 8192, 80, 64, 8, 28672), 69278638080);
  EXPECT_EQ(llama(32000, 4096, 32, 32, 32, 11008), 6738415616);
  EXPECT_EQ(llama(32000, 5120, 40, 40, 40, 13824), 13015864320);
  EXPECT_EQ(llama(32000, 8192, 80, 64, 8, 28672), 68976648192);
  EXPECT_EQ(llama(50432, 2048, 16, 32, 2, 8192), 1154549760);
  EXPECT_EQ(llama(50432, 3072, 28, 24, 2, 8192), 2996481024);
  EXPECT_EQ(llama(50432, 2048, 16, 32, 8, 8192), 1179715584);
  EXPECT_EQ(llama(50432, 3072, 28, 24, 8, 11008), 3855264768);
  EXPECT_EQ(llama(128256, 4096, 32, 32, 8, 14336), 8030261248);
  EXPECT_EQ(llama(32000, 8192, 80, 64, 8, 28762), 69153595392);
  EXPECT_EQ(llama(50432, 5120, 40, 40, 40, 13760), 13165286400);
  EXPECT_EQ(llama(50432, 8192, 80, 64, 64, 28672), 78673879040);
}

TEST(ParameterCount, MixtralVectors) {
  ModelConfig c = shape(ModelType::kMixtral, 32000, 4096, 32, 32, 8, 14336);
  EXPECT_EQ(parameter_count(c), 46702792704);
}

TEST(ParameterCount, GptVectors) {
  EXPECT_EQ(parameter_count(shape(ModelType::kGptNeox, 50432, 768, 12, 12, 12, 11008)), 162519552);
  EXPECT_EQ(parameter_count(shape(ModelType::kGptNeox, 50432, 6144, 44, 64, 64, 1)), 20554567680);
  EXPECT_EQ(parameter_count(shape(ModelType::kGptNeox, 50432, 8192, 80, 64, 64, 1)), 65259323392);
  const std::pair<const char*, int64_t> published[] = {{"gpt2", 124439808},
                                                       {"gpt2-medium", 354823168},
                                                       {"gpt2_large", 774030080},
                                                       {"gpt2-xl", 1557611200}};
  const char* without_positions[] = {"123.65", "353.77", "772.72", "1555.97"};
  for (int i = 0; i < 4; ++i) {
    ModelConfig c = preset_by_name(published[i].first);
    EXPECT_EQ(parameter_count(c), published[i].second) << published[i].first;
    auto rest = parameter_count(c) - c.max_context_width * c.hidden_width;
    EXPECT_EQ(format("%.2f", static_cast<double>(rest) / 1e6), without_positions[i]);
  }
  ModelConfig scratch = preset_by_name("gpt2");
  scratch.bias = false;
  EXPECT_EQ(parameter_count(scratch), 124337664);
  ModelConfig defaults = shape(ModelType::kGpt2, 50432, 768, 12, 12, 12, 1);
  defaults.bias = true;
  EXPECT_EQ(defaults.max_context_width, 2048);
  EXPECT_EQ(parameter_count(defaults), 125360640);
}

TEST(Presets, CarryTheRealCounts) {
  const std::pair<const char*, int64_t> expected[] = {
      {"llama2_7b", 6738415616},   {"llama2_13b", 13015864320},   {"llama2_70b", 68976648192},
      {"llama3.1_8b", 8030261248}, {"llama3.1_70b", 70553706496}, {"llama3.2_1b", 1235814400},
      {"llama3.2_3b", 3212749824}, {"mathstral_7b", 7248023552},  {"mixtral_8x7b", 46702792704},
      {"gpt2", 124439808},         {"gpt2_medium", 354823168},    {"gpt2_large", 774030080},
      {"gpt2_xl", 1557611200},     {"qwen3_0.6b", 596049920},     {"qwen3_1.7b", 1720574976},
      {"qwen3_4b", 4022468096},    {"qwen3_8b", 8190735360},      {"qwen3_14b", 14768307200},
      {"qwen3_32b", 32762123264}};
  ASSERT_EQ(preset_names().size(), std::size(expected));
  for (auto [preset, count] : expected) {
    EXPECT_EQ(parameter_count(preset_by_name(preset)), count) << preset;
  }
  EXPECT_EQ(preset_by_name("llama3.1_8b").rope_scaling.type, RopeScalingType::kLlama3);
  EXPECT_EQ(preset_by_name("llama2_7b").max_context_width, 4096);
}

TEST(Presets, UnknownNameGivesTheSeedMessageAndTheNearestName) {
  std::string text = user_error([] { preset_by_name("llama2_7"); });
  expect_contains(text, "Model llama2_7 currently not supported.");
  expect_contains(text, "Did you mean llama2_7b?");
  for (const char* near : {"llama3_8b", "llama-3-8b", "llama3-8B"}) {
    expect_contains(user_error([&] { preset_by_name(near); }), "Did you mean llama3.1_8b?");
  }
  expect_contains(user_error([&] { preset_by_name("llama3_70b"); }), "Did you mean llama3.1_70b?");
  expect_contains(text, "llama3.2_1b");
  EXPECT_FALSE(find_preset("llama9").has_value());
}

TEST(Presets, Sizes) {
  auto sized = [](ModelType type, const char* size) {
    ModelConfig c = family_defaults(type);
    apply_preset_size(c, size);
    check(c);
    return parameter_count(c);
  };
  EXPECT_EQ(sized(ModelType::kLlamaV2, "7b"), 6889410560);
  EXPECT_EQ(sized(ModelType::kLlamaV2, "13b"), 13204608000);
  EXPECT_EQ(sized(ModelType::kLlamaV3, "70b"), 69278638080);
  EXPECT_EQ(sized(ModelType::kGptNeox, "20b"), 20554567680);
  EXPECT_EQ(sized(ModelType::kGptNeox, "65b"), 65259323392);
  for (const char* size : {"20b", "65b"}) {
    expect_contains(user_error([&] { sized(ModelType::kLlamaV2, size); }), "--model_type gpt_neox");
  }
  expect_contains(user_error([&] { sized(ModelType::kMistral, "7b"); }), "not a size of mistral");
  expect_contains(user_error([&] { sized(ModelType::kLlamaV2, "8b"); }), "7b, 13b, 20b, 65b, 70b");
}

TEST(Families, StandInTheirPlaces) {
  for (size_t i = 0; i < kModelFamilies.size(); ++i) {
    const ModelFamily& family = *kModelFamilies[i];
    EXPECT_EQ(static_cast<size_t>(family.type), i) << family.name;
    EXPECT_EQ(&model_family(family.type), &family);
    EXPECT_EQ(model_type_from_name(family.name), family.type);
  }
}

TEST(Families, Constants) {
  EXPECT_EQ(family_defaults(ModelType::kLlamaV2).norm_epsilon, 1e-5);
  EXPECT_EQ(family_defaults(ModelType::kLlamaV2).rope_scaling.type, RopeScalingType::kNone);
  EXPECT_EQ(family_defaults(ModelType::kLlamaV3).rope_scaling.type, RopeScalingType::kDynamic);
  EXPECT_EQ(family_defaults(ModelType::kLlamaV3).rope_scaling.factor, 2.0);
  EXPECT_EQ(family_defaults(ModelType::kLlamaV3).rope_theta, 1e4);
  EXPECT_EQ(family_defaults(ModelType::kMixtral).rope_theta, 1e6);
  EXPECT_TRUE(family_defaults(ModelType::kGpt2).tie_word_embeddings);
  EXPECT_EQ(family_defaults(ModelType::kGptNeox).intermediate_size, 4 * 768);
  expect_contains(user_error([] { model_type_from_name("llama"); }), "llama_v2, llama_v3, mistral");
  EXPECT_EQ(model_type_from_name("mixtral"), ModelType::kMixtral);
}

TEST(Check, NamesWhatDoesNotFit) {
  auto broken = [](auto change) {
    return user_error([&] {
      ModelConfig c = family_defaults(ModelType::kLlamaV2);
      change(c);
      derive_shape(c);
      check(c);
    });
  };
  expect_contains(broken([](auto& c) { c.num_heads = 7; }),
                  "--num_heads must divide --hidden_width: 768 is not a multiple of 7");
  expect_contains(broken([](auto& c) { c.num_key_value_heads = 5; }),
                  "--num_key_value_heads must divide --num_heads: 12 is not a multiple of 5");
  expect_contains(broken([](auto& c) { c.num_heads = c.num_key_value_heads = 768; }),
                  "even head size");
  expect_contains(broken([](auto& c) { c.num_heads = 0; }), "--num_heads must lie in");
  expect_contains(broken([](auto& c) { c.vocab_size = 0; }), "--vocab_size must lie in");
  expect_contains(broken([](auto& c) { c.num_layers = int64_t{1} << 40; }), "--num_layers");
  expect_contains(broken([](auto& c) { c.max_context_width = -1; }), "--max_context_width");
  expect_contains(broken([](auto& c) { c.sliding_window = 0; }), "--sliding_window");
  expect_contains(broken([](auto& c) { c.num_experts_per_tok = 2; }), "--num_experts_per_tok");
  expect_contains(broken([](auto& c) {
                    c.model_type = ModelType::kGpt2;
                    c.num_key_value_heads = 4;
                  }),
                  "gpt2 has no grouped-query attention");
  expect_contains(broken([](auto& c) {
                    c.model_type = ModelType::kGptNeox;
                    c.rotary_pct = 0.05;
                  }),
                  "--rotary_pct 0.05 rotates 3 elements of a head of 64");
  expect_contains(broken([](auto& c) { c.attn_pdrop = -0.1; }), "a dropout probability");
  expect_contains(broken([](auto& c) { c.windowed_layers = {true}; }), "--num_layers is 12");
  expect_contains(broken([](auto& c) { c.windowed_layers.assign(12, true); }),
                  "no --sliding_window");
  expect_contains(broken([](auto& c) { c.padding_id = c.vocab_size; }),
                  "outside of the vocabulary");
  expect_contains(broken([](auto& c) {
                    c.model_type = ModelType::kGptNeox;
                    c.rotary_pct = 0.25;
                    c.resid_pdrop = 0.1;
                  }),
                  "one dropout probability of embeddings and layers");
}

TEST(Check, TheLargestShapeStillCountsInside63Bits) {
  ModelConfig c = family_defaults(ModelType::kMixtral);
  c.vocab_size = 1 << 24;
  c.hidden_width = 1 << 18;
  c.num_layers = 1 << 12;
  c.num_heads = c.num_key_value_heads = 1 << 14;
  c.head_dim = 1 << 12;
  c.intermediate_size = 1 << 20;
  c.num_local_experts = 256;
  check(c);
  EXPECT_GT(parameter_count(c), int64_t{1} << 59);
}

TEST(ModelRecord, RoundTripsEveryField) {
  for (const std::string& preset : preset_names()) {
    ModelConfig c = preset_by_name(preset);
    EXPECT_EQ(model_config_from_json(model_config_json(c)), c) << preset;
  }
  ModelConfig c = preset_by_name("llama3.1_8b");  // every field away from its default
  c.model_type = ModelType::kMistral;
  c.norm_epsilon = 0.1;
  c.rope_scaling = {.type = RopeScalingType::kYarn,
                    .factor = 1.0 / 3,
                    .low_freq_factor = 2,
                    .high_freq_factor = 5,
                    .beta_fast = 31,
                    .beta_slow = 3,
                    .attention_factor = 1.25,
                    .truncate = false,
                    .original_max_position = 77};
  c.tie_word_embeddings = c.bias = true;
  c.initializer_range = 0.3;
  c.sliding_window = 9;
  c.windowed_layers.assign(32, true);
  c.windowed_layers[3] = false;
  c.padding_id = 11;
  c.rotary_pct = 0.5;
  c.attention_bias = c.attention_output_bias = c.tanh_gelu = c.parallel_residual = true;
  c.num_local_experts = 4;
  c.num_experts_per_tok = 3;
  c.resid_pdrop = 0.1;
  c.embd_pdrop = 0.2;
  c.attn_pdrop = 0.3;
  c.lora = {.rank = 3,
            .alpha = 2.5,
            .rank_stabilised = true,
            .dropout = 0.25,
            .targets = {"q_proj", "layers.0.mlp.up_proj"}};
  EXPECT_EQ(model_config_from_json(model_config_json(c)), c);
}

// A record from before some fields were there.
TEST(ModelRecord, OlderRecordsHaveTheDefaults) {
  ModelConfig c = preset_by_name("llama3.1_8b");
  std::string text = model_config_json(c);
  for (const char* key : {"rope_beta_fast", "rope_beta_slow", "rope_attention_factor",
                          "rope_truncate", "windowed_layers", "padding_id", "lora_rank",
                          "lora_alpha", "lora_rank_stabilised", "lora_dropout", "lora_targets"}) {
    size_t begin = text.find(cat(",\n  \"", key, "\"")), end = text.find_first_of(",\n", begin + 2);
    ASSERT_NE(begin, std::string::npos) << key;
    text.erase(begin, end - begin);
  }
  EXPECT_EQ(model_config_from_json(text), c);
}

TEST(ModelRecord, RefusesDamage) {
  auto error = [](std::string text) { return user_error([&] { model_config_from_json(text); }); };
  std::string good = model_config_json(preset_by_name("llama2_7b"));
  auto changed = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return error(text);
  };
  expect_contains(error("[]"), "not a JSON object");
  expect_contains(error(std::string((1 << 20) + 1, ' ')), "larger than 1 MiB");
  expect_contains(changed("\"bias\"", "\"bios\""), "'bias' is missing");
  expect_contains(changed("{", "{\"more\": 1,"), "not known here");
  expect_contains(changed("11008", "\"11008\""), "'intermediate_size' has another type");
  expect_contains(changed("11008", "0"), "--intermediate_size must lie in");
  expect_contains(changed("\"rope_scaling\": \"none\"", "\"rope_scaling\": \"x\""),
                  "none, linear, dynamic, llama3, yarn");
  expect_contains(changed("1e-05", "-1"), "the norm epsilon must be above 0");
}

}  // namespace
}  // namespace tessera
