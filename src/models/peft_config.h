#pragma once
#include <string>
#include <string_view>

#include "models/model_config.h"

namespace tessera {

// An adapter as PEFT keeps it: a directory with these two files.
inline constexpr std::string_view kPeftConfigName = "adapter_config.json";
inline constexpr std::string_view kPeftWeightsName = "adapter_model.safetensors";
// What the names of its tensors begin with, before those of ours.
inline constexpr std::string_view kPeftPrefix = "base_model.model.";

// What adapter_config.json says, but for the targets: the tensors of the adapter say what is
// adapted. UserError that names `where`: not JSON, larger than 1 MiB, an adapter of another kind, a
// key that changes what is computed and is not supported (DoRA, biases, ranks by layer), a value
// out of range. Keys that are not known here are refused unless they are null, false or empty.
Lora parse_peft_config(std::string_view text, std::string_view where);

// The inverse, as PEFT reads it: of `model.lora`, with the targets of targets_for(). `base_model`
// is a directory or hf://OWNER/NAME@REVISION, which is written as name and revision; may be empty.
std::string peft_config_json(const ModelConfig& model, std::string_view base_model);

}  // namespace tessera
