#include "models/families/llama_like.h"

namespace tessera {
namespace {

void set_defaults(ModelConfig& c) {
  c.rope_theta = 1e6;
  c.num_local_experts = 8;
  c.num_experts_per_tok = 2;
}

constexpr std::string_view kOptions[] = {"sliding_window", "num_local_experts",
                                         "num_experts_per_tok"};

constexpr ModelPreset kPresets[] = {
    {.name = "mixtral_8x7b",
     .vocab = 32000,
     .hidden = 4096,
     .layers = 32,
     .heads = 32,
     .key_value_heads = 8,
     .intermediate = 14336,
     .context = 32768,
     .theta = 1e6},
};

}  // namespace

// Mixtral (Jiang et al. 2024): a Mistral with several MLPs, of which each token passes through
// some.
constinit const ModelFamily families::kMixtral{
    .type = ModelType::kMixtral,
    .name = "mixtral",
    .set_defaults = set_defaults,
    .check = check_rotary_heads,
    .parameter_count = count_llama_like,
    .options = kOptions,
    .presets = kPresets,
};

}  // namespace tessera
