#include "options/model_options.h"
#include "tests/base/scratch_directory.h"
#include "tests/options/option_testing.h"

namespace tessera {
namespace {

using namespace option_testing;

ModelConfig model_of(const std::vector<std::string>& arguments,
                     OptionScope scope = OptionScope::kPlan) {
  ParsedOptions parsed = parse(arguments, scope);
  return resolve_model(parsed);
}

template <class Expected>
std::string model_error(const std::vector<std::string>& arguments,
                        OptionScope scope = OptionScope::kPlan) {
  return message_of<Expected>([&] { model_of(arguments, scope); });
}

TEST(ModelOptions, ShapeOptions) {
  ModelConfig c = model_of({"--model_type=llama_v2", "--hidden_width=4096", "--num_layers=32",
                            "--num_heads=32", "--max_context_width=4096"});
  EXPECT_EQ(parameter_count(c), 6889410560);
  EXPECT_EQ(c.num_key_value_heads, 32);
  EXPECT_EQ(c.max_context_width, 4096);
  EXPECT_EQ(model_of({"--model_type=llama_v3"}).rope_scaling.type, RopeScalingType::kDynamic);
  EXPECT_TRUE(model_of({"--model_type=llama_v2", "--tie_word_embeddings"}).tie_word_embeddings);
  EXPECT_EQ(model_of({"--model_type=mistral", "--sliding_window=64"}).sliding_window, 64);
  ModelConfig neox = model_of({});
  EXPECT_EQ(parameter_count(neox), 162519552);
  EXPECT_EQ(neox.rotary_pct, 0.25);
  neox = model_of({"--rotary_pct=0.5", "--rotary_emb_base=500"});
  EXPECT_EQ(neox.rotary_pct, 0.5);
  EXPECT_EQ(neox.rope_theta, 500);
  EXPECT_TRUE(model_of({"--model_type=qwen2"}).attention_bias);
  EXPECT_EQ(model_of({"--model_type=qwen3"}).head_dim, 64);
  EXPECT_EQ(model_of({"--model_type=qwen3", "--head_dim=128"}).head_dim, 128);
  expect_contains(model_error<UsageError>({"--head_dim=128"}),
                  "the heads of gpt_neox make up its width: 12 heads of 128 are not 768");
}

TEST(ModelOptions, Gpt2) {
  ModelConfig c = model_of({"--model_type=gpt2"});
  EXPECT_TRUE(c.tanh_gelu);
  EXPECT_FALSE(c.bias);
  EXPECT_EQ(c.attn_pdrop, 0.1);
  c = model_of({"--model_type=gpt2", "--gelu=exact", "--bias=1", "--dropout=0"});
  EXPECT_FALSE(c.tanh_gelu);
  EXPECT_TRUE(c.bias);
  EXPECT_EQ(c.attn_pdrop + c.embd_pdrop + c.resid_pdrop, 0);
  c = model_of({"--hf_model=gpt2", "--resid_pdrop=0.3", "--bias=0"});
  EXPECT_EQ(c.resid_pdrop, 0.3);
  EXPECT_EQ(c.embd_pdrop, 0.1);
  EXPECT_TRUE(c.bias) << "the description wins";
}

TEST(ModelOptions, LearnedPositionsBoundTheWindow) {
  ParsedOptions parsed = parse({"--hf_model=gpt2"});
  EXPECT_EQ(resolve_model(parsed).max_context_width, 1024);
  EXPECT_EQ(parsed.config.max_context_width, 1024);
  EXPECT_TRUE(any_contains(parsed.notes, "windows of 1024 tokens, the model's learned positions"));
  ParsedOptions shorter = parse({"--hf_model=gpt2", "--block_size=256"});
  EXPECT_EQ(resolve_model(shorter).max_context_width, 1024);
  EXPECT_EQ(shorter.config.max_context_width, 256);
  expect_contains(model_error<UserError>({"--hf_model=gpt2", "--block_size=2048"}),
                  "--max_context_width 2048: the model has only 1024 learned positions");
  EXPECT_EQ(model_of({"--model_name=gpt2", "--block_size=2048"}).max_context_width, 2048);
}

// Behind them its frequencies follow from the length of each text, which no window has.
TEST(ModelOptions, DynamicRopeBoundsTheWindow) {
  ScratchDirectory scratch;
  scratch.write("config.json", R"({"model_type": "llama", "max_position_embeddings": 1024,
      "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}})");
  std::string model = cat("--model_config=", scratch.path().string());
  ParsedOptions parsed = parse({model});
  EXPECT_EQ(resolve_model(parsed).max_context_width, 1024);
  EXPECT_EQ(parsed.config.max_context_width, 1024);
  EXPECT_EQ(model_of({model, "--max_context_width=512"}).max_context_width, 1024);
  expect_contains(model_error<UserError>({model, "--max_context_width=2048"}),
                  "--max_context_width 2048: the model has only 1024 positions before its dynamic");
  EXPECT_EQ(model_of({"--model_type=llama_v3", "--max_context_width=4096"}).max_context_width,
            4096);
}

TEST(ModelOptions, WhatTheFamilyDecidesIsSaid) {
  auto warnings = [](const std::vector<std::string>& words) {
    ParsedOptions parsed = parse(words);
    resolve_model(parsed);
    return parsed.warnings;
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(
      warnings({"--model_type=gpt2", "--intermediate_size=50", "--tie_word_embeddings=0"}),
      (Lines{"--intermediate_size has no effect: the MLP of gpt2 is always 4 times as wide as "
             "the model",
             "--tie_word_embeddings has no effect: the embeddings of gpt2 are always tied"}));
  EXPECT_EQ(warnings({"--model_type=gpt2", "--hidden_width=64", "--num_heads=4",
                      "--intermediate_size=256", "--tie_word_embeddings=1"}),
            Lines{});
  EXPECT_EQ(warnings({"--model_type=llama_v2", "--intermediate_size=50"}), Lines{});
  const Lines offload{"--model_type=llama_v2", "--num_layers=3", "--offload_activations=1"};
  EXPECT_EQ(warnings(offload), Lines{});
  Lines more = offload;
  more.emplace_back("--activation_loading_horizon=3");
  EXPECT_EQ(warnings(more), Lines{"--offload_activations has no effect: the last 3 layers stay "
                                  "(--activation_loading_horizon), and the model has 3"});
}

TEST(ModelOptions, OptionsOfOtherFamiliesAreIdle) {
  ParsedOptions parsed = parse({"--model_type=llama_v2", "--dropout=0.1", "--rotary_pct=0.5"});
  resolve_model(parsed);
  EXPECT_EQ(parsed.warnings.size(), 4u);
  EXPECT_TRUE(any_contains(
      parsed.warnings, "--attn_pdrop has no effect: it belongs to gpt2, the model is llama_v2"));
  EXPECT_TRUE(any_contains(parsed.warnings, "--rotary_pct has no effect: it belongs to gpt_neox"));
  ParsedOptions none = parse({"--model_type=llama_v2", "--sliding_window=None"});
  resolve_model(none);
  EXPECT_TRUE(none.warnings.empty());
  ParsedOptions described = parse({"--hf_model=llama2_7b", "--bias=1", "--dropout=0"});
  resolve_model(described);
  EXPECT_EQ(described.warnings.size(), 4u) << "--bias is told once, as ignored";
}

TEST(ModelOptions, PresetsYieldToGivenOptions) {
  EXPECT_EQ(parameter_count(model_of({"--model_name=llama2_7b"})), 6738415616);
  EXPECT_EQ(model_of({"--model_name=llama2_7b"}).max_context_width, 4096);
  EXPECT_EQ(parameter_count(model_of({"--model_name=llama2_7b", "--vocab_size=50432"})),
            6889410560);
  ModelConfig smaller = model_of({"--model_name=llama2_7b", "--num_heads=16"});
  EXPECT_EQ(smaller.num_key_value_heads, 16);
  EXPECT_EQ(smaller.head_dim, 256);
  EXPECT_EQ(model_of({"--model_name=llama2_70b", "--num_heads=32"}).num_key_value_heads, 8);
  EXPECT_EQ(parameter_count(model_of({"--model_name=gpt2", "--bias=False"})), 124337664);
  EXPECT_TRUE(model_of({"--model_name=llama3.2_1b"}).tie_word_embeddings);
  // Heads that do not share the width among them keep theirs.
  EXPECT_EQ(parameter_count(model_of({"--model_name=qwen3_0.6b"})), 596049920);
  EXPECT_EQ(model_of({"--model_name=qwen3_0.6b", "--num_layers=2"}).head_dim, 128);
  EXPECT_EQ(model_of({"--model_name=qwen3_0.6b", "--num_heads=8"}).head_dim, 128);  // 1024 / 8
  EXPECT_EQ(model_of({"--model_name=qwen3_0.6b", "--hidden_width=512"}).head_dim, 32);
  EXPECT_EQ(model_of({"--model_name=qwen3_0.6b", "--hidden_width=512", "--head_dim=128"}).head_dim,
            128);
  expect_contains(model_error<UsageError>({"--model_name=llama2_8b"}),
                  "Model llama2_8b currently not supported.");
}

TEST(ModelOptions, Sizes) {
  EXPECT_EQ(parameter_count(model_of({"--model_type=llama_v2", "--model_size=70b"})), 69278638080);
  EXPECT_EQ(parameter_count(model_of({"--model_size=20b"})), 20554567680);
  EXPECT_EQ(parameter_count(model_of(
                {"--model_type=llama_v2", "--model_size=70b", "--num_key_value_heads=64"})),
            78673879040);
  EXPECT_EQ(parameter_count(model_of(
                {"--model_type=llama_v2", "--model_size=13b", "--intermediate_size=13760"})),
            13165286400);
  expect_contains(model_error<UsageError>({"--model_type=llama_v2", "--model_size=65b"}),
                  "gpt_neox");
}

TEST(ModelOptions, Conflicts) {
  expect_contains(model_error<UsageError>({"--model_name=llama2_7b", "--model_size=7b"}),
                  "--model_name and --model_size both describe the model");
  expect_contains(model_error<UsageError>({"--model_name=llama2_7b", "--model_type=mistral"}),
                  "contradicts --model_type mistral");
  expect_contains(model_error<UsageError>({"--model_type=llama_v2", "--sliding_window=64"}),
                  "--sliding_window belongs to mistral and mixtral");
  expect_contains(
      model_error<UsageError>({"--model_type=qwen2", "--sliding_window=64"}),
      "not to qwen2: a family beside these that has windows takes them from its config");
  expect_contains(model_error<UsageError>({"--model_type=llama_v2", "--num_heads=7"}),
                  "768 is not a multiple of 7");
  expect_contains(model_error<UsageError>({"--model_type=llama_v2", "--num_key_value_heads=5"}),
                  "12 is not a multiple of 5");
}

TEST(ModelOptions, FamiliesThatAreNotBuilt) {
  EXPECT_EQ(model_of({"--model_type=llama_v2"}, OptionScope::kTrain).model_type,
            ModelType::kLlamaV2);
  EXPECT_EQ(model_of({}, OptionScope::kTrain).model_type, ModelType::kGptNeox);
  expect_contains(model_error<UserError>({"--model_name=mixtral_8x7b"}, OptionScope::kTrain),
                  "models of type mixtral are not built yet; --model_type can be gpt_neox, "
                  "llama_v2, llama_v3, mistral, gpt2, qwen2, qwen3");
  ParsedOptions parsed = parse({"--model_name=mixtral_8x7b"});
  resolve_model(parsed);
  EXPECT_TRUE(any_contains(parsed.notes, "models of type mixtral are not built yet"));
}

TEST(ModelOptions, SaysWhichWindowItTakesWhereTheModelIsMadeForAnother) {
  std::string note =
      "windows of 2048 tokens, the default of --max_context_width; the model is made for 4096";
  for (const char* model : {"--model_name=llama2_70b", "--hf_model=llama2_70b"}) {
    ParsedOptions silent = parse({model});
    resolve_model(silent);
    EXPECT_TRUE(any_contains(silent.notes, note)) << model;
    ParsedOptions given = parse({model, "--max_context_width=2048"});
    resolve_model(given);
    EXPECT_FALSE(any_contains(given.notes, "--max_context_width")) << model;
  }
}

TEST(ModelOptions, HuggingFaceDescriptions) {
  ScratchDirectory scratch;
  std::string dir = scratch.path();
  scratch.write("config.json", R"({"model_type": "llama", "hidden_size": 256,
      "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 1000})");
  ParsedOptions parsed = parse({cat("--model_config=", dir), "--num_layers=9"});
  ModelConfig c = resolve_model(parsed);
  EXPECT_EQ(c.num_layers, 2);
  EXPECT_EQ(c.max_context_width, 2048);
  EXPECT_TRUE(any_contains(parsed.warnings,
                           "ignored, since --model_config describes the model: --num_layers"));
  EXPECT_FALSE(any_contains(parsed.notes, "--max_context_width")) << "2048 is the default too";
  c = model_of({cat("--hf_model=", dir, "/config.json"), "--block_size=64"});
  EXPECT_EQ(c.max_context_width, 2048) << "a shorter window does not make it another model";
  c = model_of({cat("--hf_model=", dir), "--block_size=4096"});
  EXPECT_EQ(c.max_context_width, 4096);
  EXPECT_EQ(parameter_count(model_of({"--hf_model=gpt2-xl"})), 1557611200);
  expect_contains(model_error<UserError>({"--hf_model=someone/thing"}),
                  "neither a directory nor a model in Hugging Face's cache");
  expect_contains(model_error<UserError>({cat("--model_config=", dir, "/none")}), "none");
}

}  // namespace
}  // namespace tessera
