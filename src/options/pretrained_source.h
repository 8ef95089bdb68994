#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "options/run_config.h"
#include "options/run_record.h"

namespace tessera {

// Where a fine-tuning run takes configuration, weights and tokenizer from: the rules of
// docs/fine_tuning.md, by the options alone.

// The directory of a model: `name` itself, the directory of a config.json, or the model of that
// name in Hugging Face's cache of this machine (--hf_home). nullopt if there is none. UserError for
// another file: which of several it would stand for nobody says.
std::optional<std::filesystem::path> find_model_directory(const std::string& name,
                                                          const RunConfig& config);

// The files with the weights that a run starts from: a directory, or one file. nullopt: it starts
// from random weights. UserError for a model that is not on this machine: how to get it.
std::optional<std::filesystem::path> find_pretrained_weights(const RunConfig& config);

// The configuration beside --pretrained_checkpoint_file, if there is one.
std::optional<std::filesystem::path> configuration_of_file(const RunConfig& config);

// With --finetune and --resume_from_checkpoint, what the checkpoint says: everything is taken from
// it. nullopt if there is no checkpoint, or these options are not given together.
std::optional<RunRecord> resumed_fine_tuning(const RunConfig& config);

// The directory whose tokenizer goes with the weights, if it has one.
std::optional<std::filesystem::path> find_pretrained_tokenizer(const RunConfig& config);

}  // namespace tessera
