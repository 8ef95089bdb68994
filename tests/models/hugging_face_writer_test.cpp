#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text.h"
#include "models/model_family.h"

namespace tessera {
namespace {

ModelConfig written_and_read(const ModelConfig& config) {
  return parse_hugging_face_config(hugging_face_config_json(config), "written");
}

TEST(HuggingFaceWriter, IsTheInverseOfTheReader) {
  for (const auto& entry :
       std::filesystem::directory_iterator(cat(TESSERA_SOURCE_DIR, "/tests/goldens"))) {
    if (!std::filesystem::exists(entry.path() / "config.json")) continue;
    ModelConfig config = read_hugging_face_config(entry.path());
    EXPECT_EQ(written_and_read(config), config) << entry.path();
  }
  for (const char* name : {"llama2_70b", "llama3.1_8b", "llama3.2_1b", "mathstral_7b", "gpt2_xl"}) {
    ModelConfig config = preset_by_name(name);
    EXPECT_EQ(written_and_read(config), config) << name;
  }
  for (const ModelFamily* family : kModelFamilies) {
    if (family->classes.empty()) continue;
    ModelType type = family->type;
    ModelConfig config = family_defaults(type);
    if (family->complete) family->complete(config);  // what a config.json cannot deny
    EXPECT_EQ(written_and_read(config), config) << name(type);
    config.tie_word_embeddings = !config.tie_word_embeddings;
    config.tanh_gelu = type == ModelType::kGptNeox;
    if (type == ModelType::kMistral || type == ModelType::kQwen2) config.sliding_window = 64;
    if (type == ModelType::kGptNeox) config.parallel_residual = false;
    if (type == ModelType::kGpt2) config.resid_pdrop = 0;
    EXPECT_EQ(written_and_read(config), config) << name(type);
  }
}

TEST(HuggingFaceWriter, KeepsDropout) {
  ModelConfig config = family_defaults(ModelType::kQwen2);
  config.attn_pdrop = 0.25;
  EXPECT_EQ(written_and_read(config), config);
  config = family_defaults(ModelType::kGptNeox);
  config.attn_pdrop = 0.25;
  config.resid_pdrop = config.embd_pdrop = 0.5;
  EXPECT_EQ(written_and_read(config), config);
}

TEST(HuggingFaceWriter, CannotSayWhatItHasNoNameFor) {
  ModelConfig config = family_defaults(ModelType::kGpt2);
  EXPECT_FALSE(config.bias);
  EXPECT_TRUE(written_and_read(config).bias);
}

TEST(HuggingFaceWriter, NamesTheFamily) {
  EXPECT_EQ(hugging_face_model_type(ModelType::kLlamaV3), "llama");
  EXPECT_EQ(hugging_face_model_type(ModelType::kQwen2), "qwen2");
  EXPECT_THROW(hugging_face_model_type(ModelType::kMixtral), UserError);
}

}  // namespace
}  // namespace tessera
