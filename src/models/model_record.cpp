#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "models/model_config.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kMaxRecordBytes = 1 << 20;

constexpr std::pair<RopeScalingType, const char*> kScalings[] = {
    {RopeScalingType::kNone, "none"},       {RopeScalingType::kLinear, "linear"},
    {RopeScalingType::kDynamic, "dynamic"}, {RopeScalingType::kLlama3, "llama3"},
    {RopeScalingType::kYarn, "yarn"},
};

// Every field once, for reading and for writing: `visit(name, field)`.
template <class Config, class Visitor>
void for_each_field(Config& c, Visitor&& visit) {
  visit("vocab_size", c.vocab_size);
  visit("hidden_width", c.hidden_width);
  visit("num_layers", c.num_layers);
  visit("num_heads", c.num_heads);
  visit("num_key_value_heads", c.num_key_value_heads);
  visit("head_dim", c.head_dim);
  visit("intermediate_size", c.intermediate_size);
  visit("max_context_width", c.max_context_width);
  visit("norm_epsilon", c.norm_epsilon);
  visit("rope_theta", c.rope_theta);
  visit("rope_factor", c.rope_scaling.factor);
  visit("rope_low_freq_factor", c.rope_scaling.low_freq_factor);
  visit("rope_high_freq_factor", c.rope_scaling.high_freq_factor);
  visit("rope_original_max_position", c.rope_scaling.original_max_position);
  visit("tie_word_embeddings", c.tie_word_embeddings);
  visit("initializer_range", c.initializer_range);
  visit("sliding_window", c.sliding_window);
  visit("rotary_pct", c.rotary_pct);
  visit("bias", c.bias);
  visit("attention_bias", c.attention_bias);
  visit("attention_output_bias", c.attention_output_bias);
  visit("tanh_gelu", c.tanh_gelu);
  visit("parallel_residual", c.parallel_residual);
  visit("num_local_experts", c.num_local_experts);
  visit("num_experts_per_tok", c.num_experts_per_tok);
  visit("resid_pdrop", c.resid_pdrop);
  visit("embd_pdrop", c.embd_pdrop);
  visit("attn_pdrop", c.attn_pdrop);
}

// Fields that older records lack: absent, they have their defaults.
template <class Config, class Visitor>
void for_each_newer_field(Config& c, Visitor&& visit) {
  visit("rope_beta_fast", c.rope_scaling.beta_fast);
  visit("rope_beta_slow", c.rope_scaling.beta_slow);
  visit("rope_attention_factor", c.rope_scaling.attention_factor);
  visit("rope_truncate", c.rope_scaling.truncate);
  visit("windowed_layers", c.windowed_layers);
  visit("padding_id", c.padding_id);
  visit("lora_rank", c.lora.rank);
  visit("lora_alpha", c.lora.alpha);
  visit("lora_rank_stabilised", c.lora.rank_stabilised);
  visit("lora_dropout", c.lora.dropout);
  visit("lora_targets", c.lora.targets);
}

[[noreturn]] void fail(std::string_view what) { throw UserError(cat("model record: ", what)); }

const OrderedJson& take(const OrderedJson& json, const char* key, OrderedJson::value_t type) {
  auto it = json.find(key);
  if (it == json.end()) fail(cat("'", key, "' is missing"));
  bool fits = it->type() == type ||
              (it->is_number_integer() && type == OrderedJson::value_t::number_integer) ||
              (it->is_number() && type == OrderedJson::value_t::number_float);
  if (!fits) fail(cat("'", key, "' has another type"));
  return *it;
}

void read(const OrderedJson& json, const char* key, int64_t& field) {
  field = take(json, key, OrderedJson::value_t::number_integer).get<int64_t>();
}
void read(const OrderedJson& json, const char* key, double& field) {
  field = take(json, key, OrderedJson::value_t::number_float).get<double>();
}
void read(const OrderedJson& json, const char* key, bool& field) {
  field = take(json, key, OrderedJson::value_t::boolean).get<bool>();
}
void read(const OrderedJson& json, const char* key, std::optional<int64_t>& field) {
  field.reset();
  if (json.contains(key) && json.at(key).is_null()) return;
  read(json, key, field.emplace());
}
void read(const OrderedJson& json, const char* key, std::vector<bool>& field) {
  field.clear();
  for (const OrderedJson& element : take(json, key, OrderedJson::value_t::array)) {
    if (!element.is_boolean()) fail(cat("'", key, "' has another type"));
    field.push_back(element.get<bool>());
  }
}
void read(const OrderedJson& json, const char* key, std::vector<std::string>& field) {
  field.clear();
  for (const OrderedJson& element : take(json, key, OrderedJson::value_t::array)) {
    if (!element.is_string()) fail(cat("'", key, "' has another type"));
    field.push_back(element.get<std::string>());
  }
}

template <class T>
OrderedJson to_json(const T& value) {
  return value;
}
OrderedJson to_json(const std::optional<int64_t>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

}  // namespace

std::string model_config_json(const ModelConfig& config) {
  OrderedJson json;
  json["model_type"] = name(config.model_type);
  for (auto [type, text] : kScalings) {
    if (type == config.rope_scaling.type) json["rope_scaling"] = text;
  }
  auto write = [&](const char* key, const auto& field) { json[key] = to_json(field); };
  for_each_field(config, write);
  for_each_newer_field(config, write);
  return json.dump(2) + "\n";
}

ModelConfig model_config_from_json(std::string_view text) {
  if (text.size() > kMaxRecordBytes) fail("larger than 1 MiB");
  OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) fail("not a JSON object");
  ModelConfig config;
  size_t known = 2;
  config.model_type = model_type_from_name(
      take(json, "model_type", OrderedJson::value_t::string).get<std::string>());
  std::string scaling = take(json, "rope_scaling", OrderedJson::value_t::string).get<std::string>();
  bool found = false;
  for (auto [type, word] : kScalings) {
    if (scaling != word) continue;
    config.rope_scaling.type = type;
    found = true;
  }
  if (!found) fail("'rope_scaling' is not one of none, linear, dynamic, llama3, yarn");
  auto take_field = [&](const char* key, auto& field) {
    read(json, key, field);
    ++known;
  };
  for_each_field(config, take_field);
  for_each_newer_field(config, [&](const char* key, auto& field) {
    if (json.contains(key)) take_field(key, field);
  });
  if (json.size() != known)
    fail("it has fields that are not known here; was it written by another version?");
  check(config);
  return config;
}

}  // namespace tessera
