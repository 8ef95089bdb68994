#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/dtype.h"
#include "hub/parameter_source.h"
#include "models/model_config.h"

namespace tessera {

struct GgufOptions {
  DType dtype = DType::kF32;  // of matrices: f32, f16 or bf16; everything else is f32
  std::string tokenizer;      // as --tokenizer names it
  std::function<void(int64_t done, int64_t total)> progress = {};  // bytes
  std::string chat_template = {};  // as --chat_template names it; "": the tokenizer's own
};

// Writes one file from which llama.cpp's programs run the model: sizes, weights and tokenizer,
// under the names and in the order of rows that its own converter gives them. `llama-quantize`
// makes smaller ones of it.
//
// All is written beside the file and renamed. UserError: something is there under that name; what
// those programs have no words for (YaRN, Llama 3's rope or biases in families that have none
// there, a family without an architecture there, a tokenizer that is larger than the vocabulary);
// weights too large for f16; a full disk.
void export_gguf(const std::filesystem::path& file, const ModelConfig& model,
                 const ParameterSource& source, const GgufOptions& options);

}  // namespace tessera
