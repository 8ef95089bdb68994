#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "models/hugging_face_keys.h"
#include "models/model_config.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxBytes = 1 << 20;
constexpr int64_t kMaxLayers = 1 << 12;

// Keys that change nothing of what a causal language model computes, in any family: what a file
// says of itself, how it is loaded, token ids, other heads, generation, other programs' notes.
constexpr std::string_view kHarmless[] = {
    "_name_or_path", "name_or_path", "transformers_version", "_commit_hash", "auto_map",
    "custom_pipelines", "torch_dtype", "dtype", "use_cache", "use_bfloat16", "torchscript",
    "return_dict", "output_attentions", "output_hidden_states", "output_past",
    "tie_last_hidden_states", "gradient_checkpointing", "chunk_size_feed_forward",
    "attn_implementation", "_attn_implementation", "_attn_implementation_autoset",
    "_attn_implementation_internal", "experts_implementation", "_experts_implementation",
    "_experts_implementation_internal", "_flash_attn_2_enabled", "pretraining_tp", "n_ctx",
    "reorder_and_upcast_attn", "is_decoder", "seq_length", "max_sequence_length",
    "model_max_length",
    // Token ids and the tokenizer.
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id",
    "decoder_start_token_id", "tokenizer_class", "prefix",
    // Heads of other tasks.
    "task_specific_params", "finetuning_task", "problem_type", "id2label", "label2id", "num_labels",
    "_num_labels", "classifier_dropout", "summary_type", "summary_use_proj", "summary_activation",
    "summary_proj_to_labels", "summary_first_dropout", "n_special", "predict_special_tokens",
    // Generation.
    "max_length", "min_length", "max_new_tokens", "min_new_tokens", "do_sample", "early_stopping",
    "num_beams", "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "min_p",
    "typical_p", "epsilon_cutoff", "eta_cutoff", "repetition_penalty", "encoder_repetition_penalty",
    "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
    "num_return_sequences", "output_scores", "output_logits", "return_dict_in_generate",
    "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
    "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens", "penalty_alpha",
    "renormalize_logits", "guidance_scale", "low_memory", "max_time", "cache_implementation",
    // Notes of other programs.
    "transformers.js_config", "unsloth_version", "unsloth_fixed", "is_llama_config"};

// Keys of other architectures, which change nothing while they say that something is off.
constexpr std::string_view kOff[] = {"is_encoder_decoder",
                                     "add_cross_attention",
                                     "tie_encoder_decoder",
                                     "pruned_heads",
                                     "use_mrope",
                                     "rope_interleaved",
                                     "attention_probs_dropout_prob",
                                     "hidden_dropout_prob"};

bool is_off(const Json& value) {
  return value == false || value == 0 || (value.is_structured() && value.empty());
}

// What transformers takes for keys of Llama, Mistral and Qwen2 that are absent.
struct LlamaDefaults {
  int64_t vocab_size = 32000, intermediate_size = 11008, positions = 2048;
  int64_t key_value_heads = 0;  // 0: one for each head
};

// Null means one for each head, where it may be null.
int64_t key_value_heads(const HuggingFaceKeys& keys, const LlamaDefaults& absent,
                        const ModelConfig& config) {
  constexpr const char* kKey = "num_key_value_heads";
  bool null = keys.has(kKey) && !keys.find(kKey);
  if (null && config.model_type != ModelType::kMistral) return config.num_heads;
  return keys.integer(kKey, absent.key_value_heads > 0 ? absent.key_value_heads : config.num_heads);
}

void read_llama_keys(const HuggingFaceKeys& keys, const LlamaDefaults& absent,
                     ModelConfig& config) {
  config.vocab_size = keys.integer("vocab_size", absent.vocab_size);
  config.hidden_width = keys.integer("hidden_size", 4096);
  config.num_layers = keys.integer("num_hidden_layers", 32);
  config.num_heads = keys.integer("num_attention_heads", 32);
  config.num_key_value_heads = key_value_heads(keys, absent, config);
  config.intermediate_size = keys.integer("intermediate_size", absent.intermediate_size);
  config.max_context_width = keys.integer("max_position_embeddings", absent.positions);
  config.norm_epsilon = keys.positive("rms_norm_eps", 1e-6);
  config.attn_pdrop = keys.real("attention_dropout", 0);
  read_rope(keys, /*gpt_neox=*/false, config);
  if (config.rotary_pct != 1)
    keys.refuse("'partial_rotary_factor': rotary positions on a part of each head only");
  std::string activation = keys.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    keys.refuse(cat("'hidden_act' must be silu or swish: it is '", activation, "'"));
  if (!keys.find("pad_token_id")) return;
  int64_t padding = keys.integer("pad_token_id", 0);
  if (padding < 0) padding += config.vocab_size;  // counted from the end
  if (padding < 0 || padding >= config.vocab_size)
    keys.fail("pad_token_id", "one of the vocabulary's ids", *keys.find("pad_token_id"));
  config.padding_id = padding;
}

// Which layers have the window. All or none are said without a list.
void set_windowed_layers(ModelConfig& config, std::vector<bool> windowed) {
  auto windows = std::ranges::count(windowed, true);
  if (windows == 0) config.sliding_window.reset();
  if (windows == 0 || windows == std::ssize(windowed)) windowed.clear();
  config.windowed_layers = std::move(windowed);
}

// `layer_types`, if it is there: a kind for each layer.
bool read_layer_types(const HuggingFaceKeys& keys, ModelConfig& config) {
  const Json* types = keys.find("layer_types");
  if (!types) return false;
  if (!types->is_array() || std::ssize(*types) != config.num_layers) {
    keys.fail("layer_types",
              cat("a list of as many names as 'num_hidden_layers' says, ", config.num_layers),
              *types);
  }
  std::vector<bool> windowed;
  for (const Json& type : *types) {
    windowed.push_back(type == "sliding_attention");
    if (!windowed.back() && type != "full_attention")
      keys.fail("layer_types", "full_attention or sliding_attention for each layer", type);
    if (windowed.back() && !config.sliding_window)
      keys.refuse("'layer_types' has sliding_attention, but there is no 'sliding_window'");
  }
  set_windowed_layers(config, std::move(windowed));
  return true;
}

// transformers wants it though 'head_dim' may say another width.
void check_multiple(const HuggingFaceKeys& keys, const ModelConfig& config) {
  if (config.num_heads < 1 || config.hidden_width % config.num_heads == 0) return;
  keys.refuse(cat("'num_attention_heads' must divide 'hidden_size': ", config.hidden_width,
                  " is not a multiple of ", config.num_heads));
}

void read_llama(const HuggingFaceKeys& keys, ModelConfig& config) {
  read_llama_keys(keys, {}, config);
  RopeScalingType scaling = config.rope_scaling.type;
  if (scaling == RopeScalingType::kDynamic || scaling == RopeScalingType::kLlama3)
    config.model_type = ModelType::kLlamaV3;
  config.attention_bias = config.attention_output_bias = keys.boolean("attention_bias", false);
  if (keys.boolean("mlp_bias", false)) keys.refuse("'mlp_bias' is not supported");
  check_multiple(keys, config);
}

// Mistral, and Ministral, which has a window in some layers.
void read_mistral(const HuggingFaceKeys& keys, ModelConfig& config) {
  read_llama_keys(keys, {.intermediate_size = 14336, .positions = 131072, .key_value_heads = 8},
                  config);
  if (!keys.has("sliding_window")) config.sliding_window = 4096;
  if (keys.find("sliding_window")) config.sliding_window = keys.integer("sliding_window", 0);
  bool ministral = keys.has("layer_types") || keys.text("model_type", "") == "ministral";
  if (ministral && !keys.find("head_dim")) keys.refuse("'head_dim' is missing: Ministral needs it");
  read_layer_types(keys, config);
}

// The window is in the layers from max_window_layers on, or in those that layer_types names.
void read_qwen2(const HuggingFaceKeys& keys, ModelConfig& config) {
  read_llama_keys(
      keys,
      {.vocab_size = 151936, .intermediate_size = 22016, .positions = 32768, .key_value_heads = 32},
      config);
  bool used = keys.boolean("use_sliding_window", false);
  int64_t first = keys.integer("max_window_layers", 28);
  bool none = keys.has("sliding_window") && !keys.find("sliding_window");
  if (used && !none) config.sliding_window = keys.integer("sliding_window", 4096);
  if (keys.has("head_dim") && !keys.find("head_dim")) keys.refuse("'head_dim' must not be null");
  if (read_layer_types(keys, config)) return;
  std::vector<bool> windowed;
  for (int64_t l = 0; l < std::min(config.num_layers, kMaxLayers); ++l)  // check() refuses more
    windowed.push_back(config.sliding_window && l >= first);
  set_windowed_layers(config, std::move(windowed));
}

// Both formulas that go by the name of GELU.
bool read_tanh_gelu(const HuggingFaceKeys& keys, const char* key, const char* fallback) {
  constexpr std::string_view kExact[] = {"gelu", "gelu_python"};
  constexpr std::string_view kTanh[] = {"gelu_new", "gelu_fast", "gelu_pytorch_tanh",
                                        "gelu_python_tanh", "gelu_accurate"};
  std::string activation = keys.text(key, fallback);
  if (std::ranges::count(kExact, activation) > 0) return false;
  if (std::ranges::count(kTanh, activation) > 0) return true;
  keys.refuse(cat("'", key, "' must be gelu, gelu_new, gelu_fast, gelu_pytorch_tanh or another ",
                  "name of these: it is '", activation, "'"));
}

void read_gpt2(const HuggingFaceKeys& keys, ModelConfig& config) {
  config.vocab_size = keys.integer("vocab_size", 50257);
  config.hidden_width = keys.integer("n_embd", 768);
  config.num_layers = keys.integer("n_layer", 12);
  config.num_heads = config.num_key_value_heads = keys.integer("n_head", 12);
  config.max_context_width = keys.integer("n_positions", 1024);
  config.norm_epsilon = keys.positive("layer_norm_epsilon", 1e-5);
  config.tanh_gelu = read_tanh_gelu(keys, "activation_function", "gelu_new");
  config.bias = true;
  config.resid_pdrop = keys.real("resid_pdrop", 0.1);
  config.embd_pdrop = keys.real("embd_pdrop", 0.1);
  config.attn_pdrop = keys.real("attn_pdrop", 0.1);
  if (!keys.boolean("scale_attn_weights", true)) keys.refuse("'scale_attn_weights' must be true");
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    if (keys.boolean(key, false)) keys.refuse(cat("'", key, "' is not supported"));
  }
}

void read_gpt_neox(const HuggingFaceKeys& keys, ModelConfig& config) {
  config.vocab_size = keys.integer("vocab_size", 50432);
  config.hidden_width = keys.integer("hidden_size", 6144);
  config.num_layers = keys.integer("num_hidden_layers", 44);
  config.num_heads = config.num_key_value_heads = keys.integer("num_attention_heads", 64);
  config.max_context_width = keys.integer("max_position_embeddings", 2048);
  config.norm_epsilon = keys.positive("layer_norm_eps", 1e-5);
  config.tanh_gelu = read_tanh_gelu(keys, "hidden_act", "gelu");
  config.parallel_residual = keys.boolean("use_parallel_residual", true);
  config.attn_pdrop = keys.real("attention_dropout", 0);
  config.resid_pdrop = config.embd_pdrop = keys.real("hidden_dropout", 0);
  read_rope(keys, /*gpt_neox=*/true, config);
  if (!keys.boolean("attention_bias", true)) keys.refuse("'attention_bias' must be true");
}

// Key and absent value of the MLP's width where it is not 4 x hidden_width.
struct MlpWidth {
  const char* key = nullptr;
  int64_t absent = 0;
};

struct Architecture {
  std::string_view class_name, model_type;
  ModelType type;
  void (*read)(const HuggingFaceKeys&, ModelConfig&);
  MlpWidth mlp = {};
};

constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", "llama", ModelType::kLlamaV2, read_llama},
    {"MistralForCausalLM", "mistral", ModelType::kMistral, read_mistral},
    {"MinistralForCausalLM", "ministral", ModelType::kMistral, read_mistral},
    {"Qwen2ForCausalLM", "qwen2", ModelType::kQwen2, read_qwen2},
    {"GPT2LMHeadModel", "gpt2", ModelType::kGpt2, read_gpt2, {"n_inner"}},
    {"GPTNeoXForCausalLM",
     "gpt_neox",
     ModelType::kGptNeox,
     read_gpt_neox,
     {"intermediate_size", 24576}},
};

const Architecture* by_model_type(std::string_view type) {
  auto found = std::ranges::find(kArchitectures, type, &Architecture::model_type);
  return found == std::end(kArchitectures) ? nullptr : found;
}

// The first of the classes in `architectures` that is supported; null where there are none.
const Architecture* by_class(const HuggingFaceKeys& keys, std::string& unknown) {
  const Json* list = keys.find("architectures");
  if (!list) return nullptr;
  if (!list->is_array()) keys.fail("architectures", "a list of names", *list);
  for (const Json& entry : *list) {
    if (!entry.is_string()) keys.fail("architectures", "a list of names", *list);
    unknown = entry.get<std::string>().substr(0, 100);
    auto found = std::ranges::find(kArchitectures, unknown, &Architecture::class_name);
    if (found != std::end(kArchitectures)) return found;
  }
  return nullptr;
}

// transformers goes by `model_type`; a file that only names the class is as clear.
const Architecture& architecture(const HuggingFaceKeys& keys) {
  std::string type = keys.text("model_type", ""), unknown;
  const Architecture *named = by_class(keys, unknown), *typed = by_model_type(type);
  if (named && typed && named->type == typed->type) return *typed;
  if (named && type.empty()) return *named;
  if (typed && unknown.empty()) return *typed;
  if (named) {
    keys.refuse(cat("'model_type' is '", type, "', which is not the ", named->model_type,
                    " of 'architectures' (", named->class_name, "): make them agree"));
  }
  std::string found = unknown.empty() ? type : unknown;
  std::vector<std::string> supported;
  for (const Architecture& a : kArchitectures)
    supported.push_back(cat(a.class_name, " (", a.model_type, ")"));
  keys.refuse(cat("the architecture ", found.empty() ? "is not named" : cat("'", found, "'"),
                  found.empty() ? "" : " is not supported", "; supported are ",
                  join(supported, ", ")));
}

// What holds for every family, and the keys that none of them may have.
void read_common_keys(const HuggingFaceKeys& keys, ModelConfig& config) {
  config.tie_word_embeddings = keys.boolean("tie_word_embeddings", config.tie_word_embeddings);
  config.initializer_range = keys.positive("initializer_range", 0.02);
  if (config.initializer_range > 1) keys.refuse("'initializer_range' must be at most 1");
  // Null is not true there either.
  if (keys.has("is_causal") && !(keys.find("is_causal") && keys.boolean("is_causal", false)))
    keys.refuse("'is_causal' must be true: attention to later tokens is not supported");
  if (keys.find("quantization_config"))
    keys.refuse("'quantization_config': quantized weights are not supported");
  for (std::string_view key : kOff) {
    const Json* value = keys.find(key);
    if (value && !is_off(*value)) keys.refuse(cat("'", key, "' is not supported"));
  }
}

}  // namespace

ModelConfig parse_hugging_face_config(std::string_view text, std::string_view where) {
  if (text.size() > kMaxBytes) {
    throw UserError(
        cat(where, ": a config.json has at most 1 MiB: this has ", text.size(), " bytes"));
  }
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw UserError(cat(where, ": not a JSON object"));
  HuggingFaceKeys keys(json, where);
  const Architecture& kind = architecture(keys);
  ModelConfig config = family_defaults(kind.type);
  read_common_keys(keys, config);
  kind.read(keys, config);
  // A head's width or an MLP's, each only where the family lets it be anything.
  bool own_heads = !kind.mlp.key && keys.find("head_dim");
  bool own_mlp = kind.mlp.key && (kind.mlp.absent != 0 || keys.find(kind.mlp.key));
  int64_t head_dim = own_heads ? keys.integer("head_dim", 0) : 0;
  int64_t mlp_width = own_mlp ? keys.integer(kind.mlp.key, kind.mlp.absent) : 0;
  try {
    if (own_heads)
      config.head_dim = head_dim;
    else
      derive_shape(config);
    if (own_mlp) config.intermediate_size = mlp_width;
    check(config);
  } catch (const UserError& error) {
    keys.refuse(error.what());
  }
  keys.refuse_others(kHarmless);
  return config;
}

ModelConfig read_hugging_face_config(const std::filesystem::path& path) {
  std::error_code ignored;
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(path, ignored)) file /= "config.json";
  // Checked before reading, so that neither a device nor a huge file is taken into memory.
  if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored)) {
    throw UserError(cat("cannot read '", file.string(), "': not a regular file"));
  }
  auto size = std::filesystem::file_size(file, ignored);
  if (!ignored && size > kMaxBytes) {
    throw UserError(cat(file.string(), ": a config.json has at most 1 MiB: this has ",
                        static_cast<uint64_t>(size), " bytes"));
  }
  return parse_hugging_face_config(read_file(file), file.string());
}

}  // namespace tessera
