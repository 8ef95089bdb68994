#include "models/build_model.h"

#include "models/gpt2.h"
#include "models/gpt_neox.h"
#include "models/llama.h"

namespace tessera {

ModelGraph build_model(const ModelConfig& config, int64_t batch, int64_t length, ModelHead head) {
  TESSERA_CHECK(length <= longest_window(config).value_or(length),
                "a window that is longer than the model computes");
  switch (config.model_type) {
    case ModelType::kGpt2: return gpt2(config, batch, length, head);
    case ModelType::kGptNeox: return gpt_neox(config, batch, length, head);
    case ModelType::kLlamaV2:
    case ModelType::kLlamaV3:
    case ModelType::kMistral:
    case ModelType::kQwen2: return llama(config, batch, length, head);
    case ModelType::kMixtral: break;
  }
  throw InternalError(cat("models of type ", name(config.model_type), " have no graph"));
}

ModelBuilder model_builder(const ModelConfig& config) {
  return [config](int64_t batch, int64_t length, ModelHead head) {
    return build_model(config, batch, length, head);
  };
}

}  // namespace tessera
