#pragma once
#include <filesystem>
#include <string>

#include "generate/decoder.h"
#include "models/model_config.h"

namespace tessera {

// A model with its weights where they lie.
struct TrainedModel {
  std::filesystem::path path;  // the checkpoint or the directory, for messages
  ModelConfig model;
  int64_t window = 1;           // tokens that it saw at once
  DType compute = DType::kF32;  // in which it was trained
  std::string tokenizer;        // name or path, as load_tokenizer() takes it
  ReadParameter read;           // keeps its files open
};

// A checkpoint, of one part or of several ranks' parts, or the newest complete one of a directory.
// UserError that names the path: there is none, or it is damaged.
TrainedModel open_trained_model(const std::filesystem::path& path);

}  // namespace tessera
