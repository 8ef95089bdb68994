#include <algorithm>
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

void read_rope(const Reader& top, std::string_view where, ModelConfig& config) {
  config.rope_theta = top.positive("rope_theta", config.rope_theta);
  bool newer = top.find("rope_parameters") != nullptr;
  const char* key = newer ? "rope_parameters" : "rope_scaling";
  const Json* object = top.find(key);
  if (!object) return;
  if (!object->is_object()) top.fail(key, "an object", *object);
  std::string place = cat(where, ": ", key);
  Reader rope(*object, place);
  config.rope_theta = rope.positive("rope_theta", config.rope_theta);
  config.rotary_pct = rope.real("partial_rotary_factor", config.rotary_pct);
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

// What transformers takes for keys of Llama, Mistral and Qwen2 that are absent.
struct LlamaDefaults {
  int64_t vocab_size = 32000, intermediate_size = 11008, positions = 2048;
  int64_t key_value_heads = 0;  // 0: one for each head
};

void read_llama_keys(const Reader& reader, std::string_view where, const LlamaDefaults& absent,
                     ModelConfig& config) {
  config.vocab_size = reader.integer("vocab_size", absent.vocab_size);
  config.hidden_width = reader.integer("hidden_size", 4096);
  config.num_layers = reader.integer("num_hidden_layers", 32);
  config.num_heads = reader.integer("num_attention_heads", 32);
  // Null means one a head for all of them.
  bool by_default = absent.key_value_heads > 0 && !reader.has("num_key_value_heads");
  config.num_key_value_heads =
      reader.integer("num_key_value_heads", by_default ? absent.key_value_heads : config.num_heads);
  config.intermediate_size = reader.integer("intermediate_size", absent.intermediate_size);
  config.max_context_width = reader.integer("max_position_embeddings", absent.positions);
  config.norm_epsilon = reader.positive("rms_norm_eps", 1e-6);
  read_rope(reader, where, config);
  if (config.rotary_pct != 1) reader.refuse("rotary positions on a part of each head only");
  if (reader.boolean("mlp_bias", false)) reader.refuse("'mlp_bias' is not supported");
  std::string activation = reader.text("hidden_act", "silu");
  if (activation != "silu") {
    reader.refuse(cat("'hidden_act' must be silu: it is '", activation, "'"));
  }
}

void read_llama(const Reader& reader, std::string_view where, ModelConfig& config) {
  read_llama_keys(reader, where, {}, config);
  if (config.rope_scaling.type != RopeScalingType::kNone) config.model_type = ModelType::kLlamaV3;
  config.attention_bias = config.attention_output_bias = reader.boolean("attention_bias", false);
}

void read_mistral(const Reader& reader, std::string_view where, ModelConfig& config) {
  read_llama_keys(reader, where,
                  {.intermediate_size = 14336, .positions = 131072, .key_value_heads = 8}, config);
  if (!reader.has("sliding_window")) config.sliding_window = 4096;
  if (reader.find("sliding_window")) config.sliding_window = reader.integer("sliding_window", 0);
}

// Which of Qwen2's layers have a window: those from max_window_layers on, or those that the newer
// layer_types names.
void read_windows(const Reader& reader, ModelConfig& config) {
  if (!reader.boolean("use_sliding_window", false)) return;
  int64_t windows = config.num_layers - reader.integer("max_window_layers", 28);
  if (const Json* types = reader.find("layer_types")) {
    if (!types->is_array()) reader.fail("layer_types", "a list of names", *types);
    windows = std::ranges::count(*types, Json("sliding_attention"));
  }
  if (windows <= 0) return;
  if (windows < config.num_layers) {
    reader.refuse("'use_sliding_window': a window in some layers only is not supported");
  }
  config.sliding_window = reader.integer("sliding_window", 4096);
}

void read_qwen2(const Reader& reader, std::string_view where, ModelConfig& config) {
  config.rope_theta = 1e4;
  read_llama_keys(
      reader, where,
      {.vocab_size = 151936, .intermediate_size = 22016, .positions = 32768, .key_value_heads = 32},
      config);
  read_windows(reader, config);
}

// Both formulas that go by the name of GELU.
bool read_tanh_gelu(const Reader& reader, const char* key, const char* fallback) {
  std::string activation = reader.text(key, fallback);
  if (activation == "gelu") return false;
  if (activation == "gelu_new" || activation == "gelu_fast" || activation == "gelu_pytorch_tanh")
    return true;
  reader.refuse(cat("'", key, "' must be gelu, gelu_new, gelu_fast or gelu_pytorch_tanh: it is '",
                    activation, "'"));
}

void read_gpt2(const Reader& reader, std::string_view, ModelConfig& config) {
  config.vocab_size = reader.integer("vocab_size", 50257);
  config.hidden_width = reader.integer("n_embd", 768);
  config.num_layers = reader.integer("n_layer", 12);
  config.num_heads = config.num_key_value_heads = reader.integer("n_head", 12);
  config.max_context_width = reader.integer("n_positions", 1024);
  config.norm_epsilon = reader.positive("layer_norm_epsilon", 1e-5);
  config.tanh_gelu = read_tanh_gelu(reader, "activation_function", "gelu_new");
  config.bias = true;
  config.resid_pdrop = reader.real("resid_pdrop", 0.1);
  config.embd_pdrop = reader.real("embd_pdrop", 0.1);
  config.attn_pdrop = reader.real("attn_pdrop", 0.1);
  if (!reader.boolean("scale_attn_weights", true))
    reader.refuse("'scale_attn_weights' must be true");
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    if (reader.boolean(key, false)) reader.refuse(cat("'", key, "' is not supported"));
  }
}

void read_gpt_neox(const Reader& reader, std::string_view where, ModelConfig& config) {
  config.vocab_size = reader.integer("vocab_size", 50432);
  config.hidden_width = reader.integer("hidden_size", 6144);
  config.num_layers = reader.integer("num_hidden_layers", 44);
  config.num_heads = config.num_key_value_heads = reader.integer("num_attention_heads", 64);
  config.max_context_width = reader.integer("max_position_embeddings", 2048);
  config.norm_epsilon = reader.positive("layer_norm_eps", 1e-5);
  config.tanh_gelu = read_tanh_gelu(reader, "hidden_act", "gelu");
  config.parallel_residual = reader.boolean("use_parallel_residual", true);
  config.rope_theta = reader.positive("rotary_emb_base", 1e4);
  config.rotary_pct = reader.real("rotary_pct", 0.25);
  read_rope(reader, where, config);
  if (config.rope_scaling.type == RopeScalingType::kLlama3)
    reader.refuse("the rope type of gpt_neox must be default or dynamic");
  if (!reader.boolean("attention_bias", true)) reader.refuse("'attention_bias' must be true");
  for (const char* key : {"attention_dropout", "hidden_dropout"}) {
    if (reader.real(key, 0) != 0) reader.refuse(cat("'", key, "' must be 0"));
  }
}

struct Architecture {
  std::string_view class_name, model_type;
  ModelType type;
  void (*read)(const Reader&, std::string_view where, ModelConfig&);
  const char* mlp_width = nullptr;  // key that overrules 4 x hidden_width
};

constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", "llama", ModelType::kLlamaV2, read_llama},
    {"MistralForCausalLM", "mistral", ModelType::kMistral, read_mistral},
    {"Qwen2ForCausalLM", "qwen2", ModelType::kQwen2, read_qwen2},
    {"GPT2LMHeadModel", "gpt2", ModelType::kGpt2, read_gpt2, "n_inner"},
    {"GPTNeoXForCausalLM", "gpt_neox", ModelType::kGptNeox, read_gpt_neox, "intermediate_size"},
};

// From `architectures` if there, else from `model_type`.
const Architecture& architecture(const Reader& reader) {
  std::string found;
  if (const Json* list = reader.find("architectures")) {
    if (!list->is_array()) reader.fail("architectures", "a list of names", *list);
    for (const Json& entry : *list) {
      if (!entry.is_string()) reader.fail("architectures", "a list of names", *list);
      found = entry.get<std::string>().substr(0, 100);
      for (const Architecture& a : kArchitectures) {
        if (found == a.class_name) return a;
      }
    }
  }
  bool by_type = found.empty();
  if (by_type) found = reader.text("model_type", "");
  std::vector<std::string> supported;
  for (const Architecture& a : kArchitectures) {
    if (by_type && found == a.model_type) return a;
    supported.push_back(cat(a.class_name, " (", a.model_type, ")"));
  }
  reader.refuse(cat("the architecture ", found.empty() ? "is not named" : cat("'", found, "'"),
                    found.empty() ? "" : " is not supported", "; supported are ",
                    join(supported, ", ")));
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
  const Architecture& kind = architecture(reader);
  ModelConfig config = family_defaults(kind.type);
  config.tie_word_embeddings = reader.boolean("tie_word_embeddings", config.tie_word_embeddings);
  config.initializer_range = reader.positive("initializer_range", 0.02);
  kind.read(reader, where, config);
  bool own_heads = !kind.mlp_width && reader.find("head_dim");
  bool own_mlp = kind.mlp_width && reader.find(kind.mlp_width);
  int64_t head_dim = own_heads ? reader.integer("head_dim", 0) : 0;
  int64_t mlp_width = own_mlp ? reader.integer(kind.mlp_width, 0) : 0;
  try {
    if (own_heads)
      config.head_dim = head_dim;
    else
      derive_shape(config);
    if (own_mlp) config.intermediate_size = mlp_width;
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
