#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "models/model_config.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxBytes = 1 << 20;

// Typed access to one JSON object; every failure names the file and the key.
class Reader {
 public:
  Reader(const Json& object, std::string_view where) : object_(object), where_(where) {}

  // The value, or null when the key is absent or holds null.
  const Json* find(const char* key) const {
    auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  bool has(const char* key) const { return object_.contains(key); }

  int64_t integer(const char* key, int64_t fallback) const {
    const Json* value = find(key);
    if (!value) return fallback;
    // 2^40 is far above every bound of check() and exact in a double.
    double number = value->is_number() ? value->get<double>() : std::nan("");
    if (!(std::abs(number) < 0x1p40) || number != std::floor(number))
      fail(key, "an integer", *value);
    return static_cast<int64_t>(number);
  }
  double real(const char* key, double fallback) const {
    const Json* value = find(key);
    if (!value) return fallback;
    if (!value->is_number() || !std::isfinite(value->get<double>())) fail(key, "a number", *value);
    return value->get<double>();
  }
  double positive(const char* key, double fallback) const {
    double value = real(key, fallback);
    if (!(value > 0)) fail(key, "a number above 0", *find(key));
    return value;
  }
  bool boolean(const char* key, bool fallback) const {
    const Json* value = find(key);
    if (!value) return fallback;
    if (!value->is_boolean()) fail(key, "true or false", *value);
    return value->get<bool>();
  }
  std::string text(const char* key, const char* fallback) const {
    const Json* value = find(key);
    if (!value) return fallback;
    if (!value->is_string()) fail(key, "a string", *value);
    return value->get<std::string>().substr(0, 100);
  }
  [[noreturn]] void fail(const char* key, const char* expected, const Json& value) const {
    std::string shown = value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 60);
    throw UserError(cat(where_, ": '", key, "' must be ", expected, ": it is ", shown));
  }
  [[noreturn]] void refuse(std::string_view what) const {
    throw UserError(cat(where_, ": ", what));
  }

 private:
  const Json& object_;
  std::string_view where_;
};

// "llama" or "mistral", from `architectures` if there, else from `model_type`.
std::string architecture(const Reader& reader) {
  std::string found;
  if (const Json* list = reader.find("architectures")) {
    if (!list->is_array()) reader.fail("architectures", "a list of names", *list);
    for (const Json& entry : *list) {
      if (!entry.is_string()) reader.fail("architectures", "a list of names", *list);
      found = entry.get<std::string>().substr(0, 100);
      if (found == "LlamaForCausalLM") return "llama";
      if (found == "MistralForCausalLM") return "mistral";
    }
  }
  if (found.empty()) found = reader.text("model_type", "");
  if (found == "llama" || found == "mistral") return found;
  reader.refuse(cat("the architecture ", found.empty() ? "is not named" : cat("'", found, "'"),
                    found.empty() ? "" : " is not supported",
                    "; supported are LlamaForCausalLM (llama) and MistralForCausalLM (mistral)"));
}

void read_rope(const Reader& top, std::string_view where, ModelConfig& config) {
  config.rope_theta = top.positive("rope_theta", 1e4);
  bool newer = top.find("rope_parameters") != nullptr;
  const char* key = newer ? "rope_parameters" : "rope_scaling";
  const Json* object = top.find(key);
  if (!object) return;
  if (!object->is_object()) top.fail(key, "an object", *object);
  std::string place = cat(where, ": ", key);
  Reader rope(*object, place);
  config.rope_theta = rope.positive("rope_theta", config.rope_theta);
  std::string type = rope.text("rope_type", rope.text("type", "default").c_str());
  if (type == "default") return;
  if (type != "dynamic" && type != "llama3") {
    rope.refuse(
        cat("rope type '", type, "' is not supported; supported are default, dynamic, llama3"));
  }
  if (!rope.find("factor")) rope.refuse("'factor' is missing");
  config.rope_scaling.factor = rope.positive("factor", 1.0);
  config.rope_scaling.type = RopeScalingType::kDynamic;
  if (type == "dynamic") return;
  config.rope_scaling.type = RopeScalingType::kLlama3;
  config.rope_scaling.low_freq_factor = rope.positive("low_freq_factor", 1.0);
  config.rope_scaling.high_freq_factor = rope.positive("high_freq_factor", 4.0);
  config.rope_scaling.original_max_position =
      rope.integer("original_max_position_embeddings", 8192);
  if (config.rope_scaling.high_freq_factor <= config.rope_scaling.low_freq_factor) {
    rope.refuse("'high_freq_factor' must be above 'low_freq_factor'");
  }
  if (config.rope_scaling.original_max_position < 1) {
    rope.refuse("'original_max_position_embeddings' must be at least 1");
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
  Reader reader(json, where);
  bool mistral = architecture(reader) == "mistral";

  ModelConfig config;
  config.model_type = mistral ? ModelType::kMistral : ModelType::kLlamaV2;
  config.vocab_size = reader.integer("vocab_size", 32000);
  config.hidden_width = reader.integer("hidden_size", 4096);
  config.num_layers = reader.integer("num_hidden_layers", 32);
  config.num_heads = reader.integer("num_attention_heads", 32);
  // transformers: absent means 8 for Mistral; null means one a head for both.
  bool kv_absent = mistral && !reader.has("num_key_value_heads");
  config.num_key_value_heads =
      reader.integer("num_key_value_heads", kv_absent ? 8 : config.num_heads);
  config.intermediate_size = reader.integer("intermediate_size", mistral ? 14336 : 11008);
  config.max_context_width = reader.integer("max_position_embeddings", mistral ? 131072 : 2048);
  config.norm_epsilon = reader.positive("rms_norm_eps", 1e-6);
  config.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  config.initializer_range = reader.positive("initializer_range", 0.02);
  if (mistral && !reader.has("sliding_window")) config.sliding_window = 4096;
  if (mistral && reader.find("sliding_window")) {
    config.sliding_window = reader.integer("sliding_window", 0);
  }
  read_rope(reader, where, config);
  if (config.rope_scaling.type != RopeScalingType::kNone && !mistral) {
    config.model_type = ModelType::kLlamaV3;
  }

  if (reader.boolean("attention_bias", false)) reader.refuse("'attention_bias' is not supported");
  if (reader.boolean("mlp_bias", false)) reader.refuse("'mlp_bias' is not supported");
  std::string activation = reader.text("hidden_act", "silu");
  if (activation != "silu") {
    reader.refuse(cat("'hidden_act' must be silu: it is '", activation, "'"));
  }
  try {
    if (reader.find("head_dim")) {
      config.head_dim = reader.integer("head_dim", 0);
    } else {
      derive_shape(config);
    }
    check(config);
  } catch (const UserError& error) {
    reader.refuse(error.what());
  }
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
