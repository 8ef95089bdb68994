#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/shallow_json.h"
#include "base/text.h"
#include "models/model_family.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxBytes = 1 << 20;

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

// A class and the family that its files are read as.
struct Architecture {
  const ModelFamily* family;
  const HuggingFaceClass* kind;
};

// Each once, for the first family that has it.
const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all = [] {
    std::vector<Architecture> found;
    for (const ModelFamily* family : kModelFamilies) {
      for (const HuggingFaceClass& kind : family->classes) {
        bool known = std::ranges::any_of(
            found, [&](const Architecture& a) { return a.kind->name == kind.name; });
        if (!known) found.push_back({family, &kind});
      }
    }
    return found;
  }();
  return all;
}

// The one whose class has this name or `model_type`; null if there is none.
const Architecture* find_architecture(std::string_view HuggingFaceClass::*field,
                                      std::string_view value) {
  for (const Architecture& a : architectures()) {
    if (a.kind->*field == value) return &a;
  }
  return nullptr;
}

// The first of the classes in `architectures` that is supported; null where there are none.
const Architecture* by_class(const HuggingFaceKeys& keys, std::string& unknown) {
  const Json* list = keys.find("architectures");
  if (!list) return nullptr;
  if (!list->is_array()) keys.fail("architectures", "a list of names", *list);
  for (const Json& entry : *list) {
    if (!entry.is_string()) keys.fail("architectures", "a list of names", *list);
    unknown = entry.get<std::string>().substr(0, 100);
    if (const Architecture* found = find_architecture(&HuggingFaceClass::name, unknown))
      return found;
  }
  return nullptr;
}

// transformers goes by `model_type`; a file that only names the class is as clear.
const Architecture& architecture(const HuggingFaceKeys& keys) {
  std::string type = keys.text("model_type", ""), unknown;
  const Architecture *named = by_class(keys, unknown),
                     *typed = find_architecture(&HuggingFaceClass::model_type, type);
  if (named && typed && named->family == typed->family) return *typed;
  if (named && type.empty()) return *named;
  if (typed && unknown.empty()) return *typed;
  if (named) {
    keys.refuse(cat("'model_type' is '", type, "', which is not the ", named->kind->model_type,
                    " of 'architectures' (", named->kind->name, "): make them agree"));
  }
  std::string found = unknown.empty() ? type : unknown;
  std::vector<std::string> supported;
  for (const Architecture& a : architectures())
    supported.push_back(cat(a.kind->name, " (", a.kind->model_type, ")"));
  keys.refuse(cat("the architecture ", found.empty() ? "is not named" : cat("'", found, "'"),
                  found.empty() ? "" : " is not supported", "; supported are ",
                  join(supported, ", ")));
}

// What holds for every family, and the keys that none of them may have.
void read_common_keys(const HuggingFaceKeys& keys, ModelConfig& config) {
  config.tie_word_embeddings = keys.boolean("tie_word_embeddings", config.tie_word_embeddings);
  config.initializer_range = keys.real("initializer_range", 0.02);
  if (!(config.initializer_range >= 0 && config.initializer_range <= 1))
    keys.refuse("'initializer_range' must lie in 0..1");
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
  Json json = parse_shallow_json(text, where);
  if (!json.is_object()) throw UserError(cat(where, ": not a JSON object"));
  HuggingFaceKeys keys(json, where);
  auto [family, kind] = architecture(keys);
  ModelConfig config = family_defaults(family->type);
  read_common_keys(keys, config);
  GivenWidths given = kind->read(keys, config);
  try {
    if (given.head_dim)
      config.head_dim = *given.head_dim;
    else
      derive_shape(config);
    if (given.mlp) config.intermediate_size = *given.mlp;
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
  if (std::filesystem::is_directory(path, ignored)) {
    const bool theirs = is_there(path / kMetaParamsName) && !is_there(path / "config.json");
    file /= theirs ? kMetaParamsName : "config.json";
  }
  // Checked before reading, so that neither a device nor a huge file is taken into memory.
  if (is_there(file) && !is_file(file)) {
    throw UserError(cat("cannot read '", file.string(), "': not a regular file"));
  }
  auto size = std::filesystem::file_size(file, ignored);
  if (!ignored && size > kMaxBytes) {
    throw UserError(cat(file.string(), ": a config.json has at most 1 MiB: this has ",
                        static_cast<uint64_t>(size), " bytes"));
  }
  if (file.filename() == kMetaParamsName) return parse_meta_params(read_file(file), file.string());
  return parse_hugging_face_config(read_file(file), file.string());
}

namespace {

const HuggingFaceClass& written_class(ModelType type) {
  const ModelFamily& family = model_family(type);
  if (!family.classes.empty()) return family.classes.front();
  throw UserError(
      cat("models of type ", family.name, " cannot be exchanged with transformers yet"));
}

}  // namespace

std::string_view hugging_face_model_type(ModelType type) { return written_class(type).model_type; }

std::string hugging_face_config_json(const ModelConfig& config) {
  const HuggingFaceClass& kind = written_class(config.model_type);
  nlohmann::ordered_json json{{"architectures", {kind.name}},
                              {"model_type", kind.model_type},
                              {"vocab_size", config.vocab_size}};
  model_family(config.model_type).write(config, json);
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["initializer_range"] = config.initializer_range;
  return json.dump(2) + "\n";
}

}  // namespace tessera
