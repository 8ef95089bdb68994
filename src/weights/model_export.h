#pragma once
#include <filesystem>
#include <string>

#include "base/dtype.h"
#include "hub/parameter_source.h"
#include "models/model_config.h"
#include "options/run_record.h"

namespace tessera {

struct ExportOptions {
  DType dtype = DType::kF32;                // of the weights: f32, bf16 or f16
  int64_t max_shard_bytes = 5'000'000'000;  // of one file of weights
  std::string tokenizer;                    // as --tokenizer names it; "" writes none
  std::string chat_template;                // as --chat_template names it; "": the tokenizer's own
  bool merge_adapter = false;               // of a model with adapters: see export_trained()
  std::string base_model;                   // what they adapt: peft_config_json()
};

// Writes a directory from which transformers loads model and tokenizer (AutoModelForCausalLM,
// AutoTokenizer): config.json, generation_config.json, model.safetensors or its shards and index,
// and the tokenizer's files: those of its directory, or of the tokenizer alone what transformers
// needs besides. Parameters that transformers' model has and this one lacks (biases of gpt2) are
// zeros. Token ids for the ends of a text are those of the tokenizer's directory if that is
// a model's, else the tokenizer's own end of text; without a tokenizer there are none.
//
// All is written beside the directory and renamed. UserError: a family that transformers does not
// have, a tokenizer that is gone or larger than the vocabulary, what check_export_directory
// reports, a full disk; `directory` is then what it was.
void export_model(const std::filesystem::path& directory, const ModelConfig& model,
                  const ParameterSource& source, const ExportOptions& options);

// Writes a directory from which PEFT loads the adapters of a model (nn/lora.h) and nothing else:
// adapter_config.json, adapter_model.safetensors. As export_model(), but for the tokenizer.
void export_adapter(const std::filesystem::path& directory, const ModelConfig& model,
                    const ParameterSource& source, const ExportOptions& options);

// What was trained: the adapters of a model that has some, else the model. Merged, the model with W
// + scale B A in the place of each matrix that is adapted. UserError: nothing to merge.
void export_trained(const std::filesystem::path& directory, const ModelConfig& model,
                    const ParameterSource& source, const ExportOptions& options);

// UserError: there are no adapters to be merged.
[[noreturn]] void refuse_merge();

// The model that a run began with, for ExportOptions::base_model; "" if none.
std::string base_model_of(const RunRecord& record);

// UserError where another directory cannot take its place: a mount point, the current directory.
void check_can_be_replaced(const std::filesystem::path& directory);

// UserError where nothing can be written beside a directory, as is done before it is replaced.
// Makes the directory above it.
void check_can_be_written(const std::filesystem::path& directory);

// UserError if something is there that the functions above did not write: it is never overwritten.
// Nor is a model by `adapters`, which may be of that very model; nor what check_can_be_replaced()
// refuses.
void check_export_directory(const std::filesystem::path& directory, bool adapters = false);

}  // namespace tessera
