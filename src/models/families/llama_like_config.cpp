#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "models/families/llama_like.h"

// The config.json of the families like Llama.
namespace tessera {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kMaxLayers = 1 << 12;

int64_t key_value_heads(const HuggingFaceKeys& keys, const LlamaLikeDefaults& absent,
                        const ModelConfig& config) {
  constexpr const char* kKey = "num_key_value_heads";
  bool null = keys.has(kKey) && !keys.find(kKey);
  if (null && absent.null_key_value_heads) return config.num_heads;
  return keys.integer(kKey, absent.key_value_heads > 0 ? absent.key_value_heads : config.num_heads);
}

// Which layers have the window. All or none are said without a list.
void set_windowed_layers(ModelConfig& config, std::vector<bool> windowed) {
  auto windows = std::ranges::count(windowed, true);
  if (windows == 0) config.sliding_window.reset();
  if (windows == 0 || windows == std::ssize(windowed)) windowed.clear();
  config.windowed_layers = std::move(windowed);
}

}  // namespace

GivenWidths read_llama_like(const HuggingFaceKeys& keys, const LlamaLikeDefaults& absent,
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
  read_rope(keys, {}, config);
  if (config.rotary_pct != 1)
    keys.refuse("'partial_rotary_factor': rotary positions on a part of each head only");
  std::string activation = keys.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    keys.refuse(cat("'hidden_act' must be silu or swish: it is '", activation, "'"));
  if (keys.find("pad_token_id")) {
    int64_t padding = keys.integer("pad_token_id", 0);
    if (padding < 0) padding += config.vocab_size;  // counted from the end
    if (padding < 0 || padding >= config.vocab_size)
      keys.fail("pad_token_id", "one of the vocabulary's ids", *keys.find("pad_token_id"));
    config.padding_id = padding;
  }
  if (!keys.find("head_dim")) return {};
  return {.head_dim = keys.integer("head_dim", 0)};
}

void write_llama_like(const ModelConfig& c, OrderedJson& json) {
  json.update({{"hidden_size", c.hidden_width},
               {"num_hidden_layers", c.num_layers},
               {"num_attention_heads", c.num_heads},
               {"num_key_value_heads", c.num_key_value_heads},
               {"head_dim", c.head_dim},
               {"intermediate_size", c.intermediate_size},
               {"hidden_act", "silu"},
               {"attention_dropout", c.attn_pdrop},
               {"max_position_embeddings", c.max_context_width},
               {"rms_norm_eps", c.norm_epsilon},
               {"rope_theta", c.rope_theta},
               {"rope_scaling", rope_scaling_json(c.rope_scaling)}});
  if (c.padding_id) json["pad_token_id"] = *c.padding_id;
}

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

void write_layer_types(const ModelConfig& c, OrderedJson& json) {
  json["layer_types"] = OrderedJson::array();
  for (int64_t l = 0; l < c.num_layers; ++l)
    json["layer_types"].push_back(layer_window(c, l) > 0 ? "sliding_attention" : "full_attention");
}

void read_qwen_window(const HuggingFaceKeys& keys, ModelConfig& config) {
  bool used = keys.boolean("use_sliding_window", false);
  int64_t first = keys.integer("max_window_layers", 28);
  bool none = keys.has("sliding_window") && !keys.find("sliding_window");
  if (used && !none) config.sliding_window = keys.integer("sliding_window", 4096);
  if (read_layer_types(keys, config)) return;
  std::vector<bool> windowed;
  for (int64_t l = 0; l < std::min(config.num_layers, kMaxLayers); ++l)  // check() refuses more
    windowed.push_back(config.sliding_window && l >= first);
  set_windowed_layers(config, std::move(windowed));
}

void write_qwen_window(const ModelConfig& c, OrderedJson& json) {
  json["use_sliding_window"] = c.sliding_window.has_value();
  json["sliding_window"] = c.sliding_window ? OrderedJson(*c.sliding_window) : OrderedJson(nullptr);
  json["max_window_layers"] = c.sliding_window ? 0 : c.num_layers;  // those before it have none
  if (!c.windowed_layers.empty()) write_layer_types(c, json);
}

}  // namespace tessera
