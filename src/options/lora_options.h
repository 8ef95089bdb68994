#pragma once
#include <filesystem>
#include <string>

#include "models/model_config.h"
#include "options/option_parser.h"

namespace tessera {

// Gives a model the adapters that --lora_* ask for: new ones, or those of --lora_adapter.
// UserError: a target that names no linear layer of the model, with those that there are; what
// lora_of_adapter() reports. UsageError: options that say what an adapter says itself, or that say
// nothing without adapters.
void apply_lora_options(const ParsedOptions& parsed, ModelConfig& model);

// "adapters of rank 8 on q_proj, v_proj", "no adapters".
std::string describe(const Lora& lora);

// What the directory of an adapter, as PEFT saves it, adapts of this model, and how. UserError that
// names the file: it is missing, broken, of another kind, or of another model.
Lora lora_of_adapter(const std::filesystem::path& directory, const ModelConfig& model);

}  // namespace tessera
