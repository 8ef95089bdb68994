#include "models/build_model.h"

#include "base/text.h"
#include "models/model_family.h"

namespace tessera {

ModelGraph build_model(const ModelConfig& config, int64_t batch, int64_t length, ModelHead head) {
  TESSERA_CHECK(length <= longest_window(config).value_or(length),
                "a window that is longer than the model computes");
  const ModelFamily& family = model_family(config.model_type);
  TESSERA_CHECK(family.build, cat("models of type ", family.name, " have no graph"));
  return family.build(config, batch, length, head);
}

std::vector<std::string> linear_layers(const ModelConfig& config) {
  if (!model_family(config.model_type).build) return {};
  return build_model(config, 1, 1, ModelHead::kLogits).linear_layers;
}

ModelBuilder model_builder(const ModelConfig& config) {
  return [config](int64_t batch, int64_t length, ModelHead head) {
    return build_model(config, batch, length, head);
  };
}

}  // namespace tessera
