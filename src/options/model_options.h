#pragma once
#include <span>
#include <string_view>

#include "models/model_config.h"
#include "options/option_parser.h"

namespace tessera {

// The model that the options ask for, checked. In this order: with --finetune, that of the
// checkpoint which is resumed; --hf_pretrained_model_name_or_dir or --pretrained_model_name (a
// directory with config.json, a model in Hugging Face's cache or the name of a preset),
// --model_config, the config.json beside --pretrained_checkpoint_file, --model_name, --model_size
// with --model_type, or the shape options. With a config.json the shape options are ignored with a
// warning, save a longer --max_context_width; beside a name or size a given option wins over the
// preset's value. Where the model computes fewer positions (longest_window) than the default of
// --max_context_width, that option is lowered. --lora_* add adapters (options/lora_options.h). The
// tokenizer that lies with pretrained weights becomes that of the run unless one is given.
// UsageError: two of these sources at once, a family that contradicts the preset, a window for a
// family without one, --finetune with nothing to start from. UserError: what models/model_config.h
// throws, longer windows than the model computes and, except in `plan`, a family that is not built
// yet (in `plan` a note). Adds to parsed.notes and parsed.warnings.
ModelConfig resolve_model(ParsedOptions& parsed);

// Options that describe the shape of a model, and the names of those that are known.
std::span<const std::string_view> shape_options();

// The option that describes a whole model ("model_name"), or "" if the shape options do.
// UsageError: several do.
std::string_view model_source(const ParsedOptions& parsed);

// Gives the shape options the values with which they describe this model.
void set_shape(RunConfig& config, const ModelConfig& model);

}  // namespace tessera
