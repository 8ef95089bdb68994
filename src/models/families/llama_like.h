#pragma once
#include "models/model_family.h"

namespace tessera {

// Llama 2, 3, 3.1 and 3.2 (Touvron et al. 2023; Dubey et al. 2024) and those that differ from it in
// details: x + attention(norm(x)), then x + mlp(norm(x)), with RMS norms, rotary positions, grouped
// queries and SwiGLU.
ModelGraph llama_like(const ModelConfig& config, int64_t batch, int64_t length, ModelHead head);
// `head_norms`: RMS norms of the queries and keys of each head, before they turn.
ModelGraph llama_like(const ModelConfig& config, int64_t batch, int64_t length, ModelHead head,
                      bool head_norms);
int64_t count_llama_like(const ModelConfig& config);

// What transformers takes for keys that are absent.
struct LlamaLikeDefaults {
  int64_t vocab_size = 32000, intermediate_size = 11008, positions = 2048;
  int64_t key_value_heads = 0;       // 0: one for each head
  bool null_key_value_heads = true;  // null is allowed, and means one for each head
};

// The keys that all of them have.
GivenWidths read_llama_like(const HuggingFaceKeys& keys, const LlamaLikeDefaults& absent,
                            ModelConfig& config);
void write_llama_like(const ModelConfig& config, nlohmann::ordered_json& json);

// `layer_types`, a kind for each layer, if it is there.
bool read_layer_types(const HuggingFaceKeys& keys, ModelConfig& config);
void write_layer_types(const ModelConfig& config, nlohmann::ordered_json& json);

// Qwen's window: in the layers from max_window_layers on, or in those that layer_types names.
void read_qwen_window(const HuggingFaceKeys& keys, ModelConfig& config);
void write_qwen_window(const ModelConfig& config, nlohmann::ordered_json& json);

inline constexpr std::string_view kLlamaLoraTargets[] = {"q_proj", "v_proj"};
inline constexpr std::string_view kLlamaBuffers[] = {".rotary_emb.inv_freq"};
inline constexpr TensorNames kLlamaTensors{"model.", "model.embed_tokens.weight", "lm_head.weight",
                                           kLlamaBuffers};

}  // namespace tessera
