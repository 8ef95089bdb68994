// Hugging Face's config.json of every family.
#include <gtest/gtest.h>

#include "models/model_config.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

constexpr const char* kLlama31 = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
  "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
  "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
  "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
  "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "tie_word_embeddings": false, "attention_bias": false, "initializer_range": 0.02})";

TEST(HuggingFaceConfig, Llama31IsThePresetExceptForItsWindow) {
  ModelConfig c = parse_hugging_face_config(kLlama31, "config.json");
  EXPECT_EQ(c.max_context_width, 131072);
  c.max_context_width = 8192;
  EXPECT_EQ(c, preset_by_name("llama3.1_8b"));
}

TEST(HuggingFaceConfig, NewerRopeParameters) {
  ModelConfig c = parse_hugging_face_config(
      R"({"model_type": "llama", "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0,
          "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 4096}})",
      "c");
  EXPECT_EQ(c.rope_theta, 5e5);
  EXPECT_EQ(c.rope_scaling.factor, 32.0);
  EXPECT_EQ(c.rope_scaling.original_max_position, 4096);
  EXPECT_EQ(c.model_type, ModelType::kLlamaV3);
  c = parse_hugging_face_config(
      R"({"model_type": "llama",
          "rope_parameters": {"rope_type": "default", "rope_theta": 20000}})",
      "c");
  EXPECT_EQ(c.rope_theta, 2e4);
  EXPECT_EQ(c.rope_scaling, RopeScaling{});
  EXPECT_EQ(c.model_type, ModelType::kLlamaV2);
}

TEST(HuggingFaceConfig, DefaultsOfBothFamilies) {
  ModelConfig llama =
      parse_hugging_face_config(R"({"model_type": "llama", "rope_scaling": null})", "c");
  EXPECT_EQ(parameter_count(llama), 6738415616);
  EXPECT_EQ(llama.norm_epsilon, 1e-6);
  EXPECT_EQ(llama.max_context_width, 2048);
  ModelConfig mistral =
      parse_hugging_face_config(R"({"architectures": ["MistralForCausalLM"]})", "c");
  EXPECT_EQ(mistral.model_type, ModelType::kMistral);
  EXPECT_EQ(mistral.num_key_value_heads, 8);
  EXPECT_EQ(mistral.intermediate_size, 14336);
  EXPECT_EQ(mistral.sliding_window, 4096);
  mistral = parse_hugging_face_config(R"({"model_type": "mistral", "sliding_window": null,
                                          "head_dim": 64})",
                                      "c");
  EXPECT_FALSE(mistral.sliding_window.has_value());
  EXPECT_EQ(mistral.head_dim, 64);
  // Null is one for each head in Llama and Qwen2, and refused by transformers' Mistral.
  for (const char* family : {"llama", "qwen2"}) {
    std::string text = cat(R"({"model_type": ")", family, R"(", "num_key_value_heads": null})");
    EXPECT_EQ(parse_hugging_face_config(text, "c").num_key_value_heads, 32);
  }
  expect_contains(user_error([] {
                    parse_hugging_face_config(
                        R"({"model_type": "mistral", "num_key_value_heads": null})", "c");
                  }),
                  "'num_key_value_heads' must be an integer: it is null");
}

TEST(HuggingFaceConfig, Gpt2) {
  ModelConfig c = parse_hugging_face_config(R"({"model_type": "gpt2"})", "c");
  EXPECT_EQ(c, preset_by_name("gpt2"));
  c = parse_hugging_face_config(
      R"({"architectures": ["GPT2LMHeadModel"], "n_embd": 1600, "n_head": 25, "n_layer": 48,
          "n_inner": null, "activation_function": "gelu_new", "attn_pdrop": 0.1,
          "embd_pdrop": 0.1, "resid_pdrop": 0.1, "n_ctx": 1024, "n_positions": 1024})",
      "c");
  EXPECT_EQ(c, preset_by_name("gpt2_xl"));
  c = parse_hugging_face_config(
      R"({"model_type": "gpt2", "n_inner": 100, "activation_function": "gelu", "embd_pdrop": 0.0,
          "tie_word_embeddings": false})",
      "c");
  EXPECT_EQ(c.intermediate_size, 100);
  EXPECT_FALSE(c.tanh_gelu);
  EXPECT_FALSE(c.tie_word_embeddings);
  EXPECT_EQ(c.embd_pdrop, 0);
  EXPECT_EQ(c.attn_pdrop, 0.1);
  auto with = [](const std::string& field) {
    return user_error(
        [&] { parse_hugging_face_config(R"({"model_type": "gpt2", )" + field + "}", "dir/c"); });
  };
  expect_contains(with(R"("activation_function": "relu")"),
                  "dir/c: 'activation_function' must be gelu, gelu_new");
  expect_contains(with(R"("scale_attn_by_inverse_layer_idx": true)"), "is not supported");
  expect_contains(with(R"("scale_attn_weights": false)"), "must be true");
  expect_contains(with(R"("resid_pdrop": 1.0)"), "a dropout probability must be below 1: it is 1");
  expect_contains(with(R"("n_inner": "wide")"), "dir/c: 'n_inner' must be an integer");
  expect_contains(with(R"("n_head": 7)"), "768 is not a multiple of 7");
}

TEST(HuggingFaceConfig, GptNeox) {
  ModelConfig c = parse_hugging_face_config(R"({"model_type": "gpt_neox"})", "c");
  EXPECT_EQ(parameter_count(c), 20554567680);
  EXPECT_EQ(c.rotary_pct, 0.25);
  EXPECT_EQ(c.rope_theta, 1e4);
  EXPECT_TRUE(c.parallel_residual);
  EXPECT_FALSE(c.tanh_gelu);
  EXPECT_EQ(c.rope_scaling, RopeScaling{});
  // Pythia 70M, and the form in which newer versions write the same.
  ModelConfig pythia = parse_hugging_face_config(
      R"({"architectures": ["GPTNeoXForCausalLM"], "hidden_size": 512, "intermediate_size": 2048,
          "num_attention_heads": 8, "num_hidden_layers": 6, "vocab_size": 50304,
          "rotary_emb_base": 20000, "rotary_pct": 0.5, "use_parallel_residual": false})",
      "c");
  EXPECT_EQ(pythia.rope_theta, 2e4);
  EXPECT_EQ(rotary_width(pythia), 32);
  EXPECT_FALSE(pythia.parallel_residual);
  EXPECT_EQ(parameter_count(pythia), 70426624);
  EXPECT_EQ(parse_hugging_face_config(
                R"({"architectures": ["GPTNeoXForCausalLM"], "hidden_size": 512,
                    "intermediate_size": 2048, "num_attention_heads": 8, "num_hidden_layers": 6,
                    "vocab_size": 50304, "use_parallel_residual": false, "rope_parameters": {
                    "rope_type": "default", "rope_theta": 20000, "partial_rotary_factor": 0.5}})",
                "c"),
            pythia);
  auto with = [](const std::string& field) {
    return user_error(
        [&] { parse_hugging_face_config(R"({"model_type": "gpt_neox", )" + field + "}", "c"); });
  };
  expect_contains(with(R"("attention_bias": false)"), "'attention_bias' must be true");
  expect_contains(with(R"("hidden_dropout": 1.0)"), "a dropout probability must be below 1");
  expect_contains(with(R"("rope_theta": 5000)"),
                  "'rope_theta' is 5000, but 'rotary_emb_base' (or its default) says 10000");
  expect_contains(with(R"("rotary_pct": 1.5)"), "--rotary_pct must lie in 0..1: it is 1.5");
  expect_contains(with(R"("rotary_pct": 0.01)"), "rotates 0 elements of a head of 96");
  expect_contains(with(R"("rope_scaling": {"type": "llama3", "factor": 8})"),
                  "rope_scaling: 'low_freq_factor' is missing");
}

TEST(HuggingFaceConfig, Qwen3) {
  // As published with Qwen3 0.6B.
  ModelConfig c = parse_hugging_face_config(
      R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
          "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
          "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
          "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
          "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
          "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
          "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
          "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false,
          "vocab_size": 151936})",
      "c");
  EXPECT_EQ(c, preset_by_name("qwen3_0.6b"));
  c = parse_hugging_face_config(R"({"model_type": "qwen3", "attention_bias": true})", "c");
  EXPECT_TRUE(c.attention_bias && c.attention_output_bias);
  EXPECT_EQ(c.head_dim, 128);
  // Whatever the width of the model is.
  c = parse_hugging_face_config(
      R"({"model_type": "qwen3", "hidden_size": 100, "num_attention_heads": 8,
          "num_key_value_heads": 8})",
      "c");
  EXPECT_EQ(c.head_dim, 128);
  expect_contains(user_error([] {
                    parse_hugging_face_config(R"({"model_type": "qwen3", "head_dim": 0})", "c");
                  }),
                  "c: a head must have 1..4096 elements: it has 0");
  expect_contains(user_error([] {
                    parse_hugging_face_config(R"({"model_type": "qwen3", "mlp_bias": true})", "c");
                  }),
                  "\"mlp_bias\" is not known here");
}

TEST(HuggingFaceConfig, Qwen2) {
  ModelConfig c = parse_hugging_face_config(
      R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "intermediate_size": 4864,
          "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
          "rope_theta": 1000000.0, "sliding_window": 32768, "max_window_layers": 24,
          "use_sliding_window": false, "tie_word_embeddings": true, "vocab_size": 151936})",
      "c");
  EXPECT_EQ(c.model_type, ModelType::kQwen2);
  EXPECT_TRUE(c.attention_bias);
  EXPECT_FALSE(c.attention_output_bias);
  EXPECT_FALSE(c.sliding_window.has_value());
  EXPECT_EQ(c.rope_theta, 1e6);
  EXPECT_EQ(parameter_count(c), 494032768);  // Qwen2 0.5B
  auto windows = [](const std::string& fields) {
    return parse_hugging_face_config(
        R"({"model_type": "qwen2", "use_sliding_window": true, "sliding_window": 99, )" + fields +
            "}",
        "c");
  };
  EXPECT_EQ(windows(R"("max_window_layers": 0)").sliding_window, 99);
  EXPECT_TRUE(windows(R"("max_window_layers": 0)").windowed_layers.empty()) << "all of them";
  EXPECT_FALSE(windows(R"("max_window_layers": 32)").sliding_window.has_value());
  EXPECT_EQ(
      windows(R"("num_hidden_layers": 1, "layer_types": ["sliding_attention"])").sliding_window,
      99);
  c = windows(R"("max_window_layers": 28)");
  EXPECT_EQ(layer_window(c, 27), 0);
  EXPECT_EQ(layer_window(c, 28), 99);
  EXPECT_EQ(layer_window(c, 31), 99);
  c = windows(R"("num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"])");
  EXPECT_EQ(c.windowed_layers, (std::vector{true, false}));
}

TEST(HuggingFaceConfig, BiasesOfLlama) {
  ModelConfig c =
      parse_hugging_face_config(R"({"model_type": "llama", "attention_bias": true})", "c");
  EXPECT_TRUE(c.attention_bias && c.attention_output_bias);
  EXPECT_EQ(parameter_count(c), 6738415616 + 32 * 4 * 4096);
  expect_contains(user_error([] {
                    parse_hugging_face_config(
                        R"({"model_type": "llama", "rope_parameters": {"rope_type": "default",
                            "partial_rotary_factor": 0.5}})",
                        "c");
                  }),
                  "on a part of each head only");
}

TEST(HuggingFaceConfig, ErrorsNameFileAndKey) {
  auto error = [](const std::string& text) {
    return user_error([&] { parse_hugging_face_config(text, "dir/config.json"); });
  };
  expect_contains(error("{"), "dir/config.json: not a JSON object");
  expect_contains(error("[1]"), "not a JSON object");
  expect_contains(error(""), "not a JSON object");
  expect_contains(error("{}"), "the architecture is not named");
  std::string unknown = error(R"({"architectures": ["BertForMaskedLM"], "model_type": "llama"})");
  expect_contains(unknown, "'BertForMaskedLM' is not supported");
  expect_contains(unknown, "LlamaForCausalLM");
  for (const char* supported :
       {"MistralForCausalLM (mistral)", "Qwen2ForCausalLM (qwen2)", "Qwen3ForCausalLM (qwen3)",
        "GPT2LMHeadModel (gpt2)", "GPTNeoXForCausalLM (gpt_neox)"})
    expect_contains(unknown, supported);
  auto with = [&](const std::string& field) {
    return error(R"({"model_type": "llama", )" + field + "}");
  };
  expect_contains(with(R"("hidden_size": "wide")"),
                  "'hidden_size' must be an integer: it is \"wide\"");
  expect_contains(with(R"("hidden_size": 4096.5)"), "'hidden_size' must be an integer");
  expect_contains(with(R"("hidden_size": 1e300)"), "'hidden_size' must be an integer");
  expect_contains(with(R"("hidden_size": -4096)"), "--hidden_width must lie in");
  expect_contains(with(R"("num_hidden_layers": 99999999)"), "--num_layers must lie in");
  expect_contains(with(R"("num_attention_heads": 33)"), "4096 is not a multiple of 33");
  expect_contains(with(R"("num_key_value_heads": 5)"), "32 is not a multiple of 5");
  expect_contains(with(R"("rms_norm_eps": 0)"), "'rms_norm_eps' must be a number above 0");
  expect_contains(with(R"("rope_theta": "x")"), "'rope_theta' must be a number");
  for (const char* range : {"-0.1", "1.5"})
    expect_contains(with(cat(R"("initializer_range": )", range)), "must lie in 0..1");
  EXPECT_EQ(  // whose weights are given need none
      parse_hugging_face_config(R"({"model_type": "llama", "initializer_range": 0.0})", "c")
          .initializer_range,
      0);
  expect_contains(with(R"("tie_word_embeddings": 1)"), "must be true or false");
  expect_contains(with(R"("hidden_act": "gelu")"), "'hidden_act' must be silu");
  expect_contains(with(R"("mlp_bias": true)"), "'mlp_bias' is not supported");
  expect_contains(with(R"("architectures": "LlamaForCausalLM")"), "must be a list of names");
  expect_contains(with(R"("rope_scaling": [])"), "'rope_scaling' must be an object");
  expect_contains(
      with(R"("rope_scaling": {"type": "longrope", "factor": 2})"),
      "'longrope' is not supported; supported are default, linear, dynamic, llama3, yarn");
  expect_contains(with(R"("rope_scaling": {"type": "linear", "factor": 2, "\u00e9": 1})"),
                  "dir/config.json: rope_scaling: \"\\u00e9\" is not known here");
  expect_contains(with(R"("rope_scaling": {"type": "linear", "rope_type": "yarn"})"),
                  "remove one of them");
  expect_contains(with(R"("use_mscale": 1)"), "dir/config.json: \"use_mscale\" is not known here");
  expect_contains(with(R"("pruned_heads": {"0": [1]})"), "'pruned_heads' is not supported");
  expect_contains(with(R"("quantization_config": {"bits": 4})"), "quantized weights");
  expect_contains(with(R"("architectures": ["MistralForCausalLM"])"),
                  "'model_type' is 'llama', which is not the mistral of 'architectures'");
  expect_contains(with(R"("rope_scaling": {"type": "llama3"})"),
                  "rope_scaling: 'factor' is missing");
  expect_contains(with(R"("rope_parameters": {"rope_type": "llama3", "factor": 8,
                          "low_freq_factor": 4.0, "high_freq_factor": 4.0})"),
                  "must be above");
  expect_contains(with(R"("head_dim": 0)"), "dir/config.json: a head must have 1..4096 elements");
}

// Keys of published files that change nothing.
TEST(HuggingFaceConfig, PublishedFilesLoad) {
  struct File {
    const char* text;
    int64_t parameters;
  };
  const File files[] = {
      // Llama 2 7B.
      {R"({"_name_or_path": "meta-llama/Llama-2-7b-hf", "architectures": ["LlamaForCausalLM"],
           "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096,
           "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 4096,
           "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
           "num_key_value_heads": 32, "pad_token_id": 0, "pretraining_tp": 1,
           "rms_norm_eps": 1e-05, "rope_scaling": null, "tie_word_embeddings": false,
           "torch_dtype": "float16", "transformers_version": "4.31.0.dev0", "use_cache": true,
           "vocab_size": 32000})",
       6738415616},
      // Vicuna with a longer context.
      {R"({"architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
           "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096,
           "max_sequence_length": 16384, "model_type": "llama", "pad_token_id": 0,
           "rope_scaling": {"factor": 4.0, "type": "linear"}, "vocab_size": 32000})",
       6738415616},
      // Mistral 7B v0.3.
      {R"({"architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
           "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
           "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
           "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
           "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": null,
           "tie_word_embeddings": false, "torch_dtype": "bfloat16",
           "transformers_version": "4.42.0.dev0", "use_cache": true, "vocab_size": 32768})",
       7248023552},
      // Qwen2.5 0.5B.
      {R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
           "bos_token_id": 151643, "eos_token_id": 151643, "hidden_act": "silu",
           "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864,
           "max_position_embeddings": 32768, "max_window_layers": 24, "model_type": "qwen2",
           "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
           "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
           "tie_word_embeddings": true, "torch_dtype": "bfloat16",
           "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false,
           "use_sliding_window": false, "vocab_size": 151936})",
       494032768},
      // GPT-2 XL and DistilGPT2.
      {R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
           "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256,
           "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2",
           "n_ctx": 1024, "n_embd": 1600, "n_head": 25, "n_layer": 48, "n_positions": 1024,
           "output_past": true, "resid_pdrop": 0.1, "summary_activation": null,
           "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
           "summary_type": "cls_index", "summary_use_proj": true,
           "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
           "vocab_size": 50257})",
       1557611200},
      {R"({"_num_labels": 1, "activation_function": "gelu_new",
           "architectures": ["GPT2LMHeadModel"], "id2label": {"0": "LABEL_0"},
           "label2id": {"LABEL_0": 0}, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768,
           "n_head": 12, "n_layer": 6, "n_positions": 1024, "n_special": 0,
           "predict_special_tokens": true, "vocab_size": 50257})",
       81912576},
      // GPT-NeoX 20B.
      {R"({"architectures": ["GPTNeoXForCausalLM"], "attention_probs_dropout_prob": 0,
           "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "gelu_fast",
           "hidden_dropout_prob": 0, "hidden_size": 6144, "initializer_range": 0.02,
           "intermediate_size": 24576, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048,
           "model_type": "gpt_neox", "num_attention_heads": 64, "num_hidden_layers": 44,
           "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": false,
           "torch_dtype": "float16", "transformers_version": "4.19.0.dev0", "use_cache": true,
           "vocab_size": 50432})",
       20554567680},
  };
  for (const File& file : files)
    EXPECT_EQ(parameter_count(parse_hugging_face_config(file.text, "c")), file.parameters)
        << file.text;
}

TEST(HuggingFaceConfig, FilesAreBounded) {
  ScratchDirectory dir;
  auto path = dir.write("config.json", kLlama31);
  EXPECT_EQ(read_hugging_face_config(dir.path()), read_hugging_face_config(path));
  dir.write("large.json", std::string((1 << 20) + 1, ' '));
  expect_contains(user_error([&] { read_hugging_face_config(dir / "large.json"); }),
                  "at most 1 MiB");
  expect_contains(user_error([&] { read_hugging_face_config(dir / "none.json"); }), "none.json");
  expect_contains(user_error([&] { read_hugging_face_config("/dev/zero"); }), "not a regular file");
  // Deep nesting must neither exhaust the stack nor be accepted.
  expect_contains(user_error([&] { parse_hugging_face_config(std::string(500000, '['), "deep"); }),
                  "deep: not a JSON object");
  auto nested = [](int levels) {
    return cat(R"({"model_type": )", std::string(static_cast<size_t>(levels - 1), '['),
               std::string(static_cast<size_t>(levels - 1), ']'), "}");
  };
  auto refusal = [](const std::string& text) {
    return user_error([&] { parse_hugging_face_config(text, "deep"); });
  };
  expect_contains(refusal(nested(64)), "'model_type' must be a string: it is [[[");
  expect_contains(refusal(nested(65)), "deep: its JSON is nested in more than 64 levels");
  expect_contains(refusal(nested(100000)), "nested in more than 64 levels");
}

}  // namespace
}  // namespace tessera
