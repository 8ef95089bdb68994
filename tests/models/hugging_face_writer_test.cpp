#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text.h"
#include "models/model_config.h"

namespace tessera {
namespace {

ModelConfig written_and_read(const ModelConfig& config) {
  return parse_hugging_face_config(hugging_face_config_json(config), "written");
}

TEST(HuggingFaceWriter, IsTheInverseOfTheReader) {
  for (const char* name : {"llama2_tiny", "llama31_tiny", "llama32_tiny"}) {
    ModelConfig config = read_hugging_face_config(cat(TESSERA_SOURCE_DIR, "/tests/goldens/", name));
    EXPECT_EQ(written_and_read(config), config) << name;
  }
  for (const char* name : {"llama2_70b", "llama3.1_8b", "llama3.2_1b", "mathstral_7b"}) {
    ModelConfig config = preset_by_name(name);
    EXPECT_EQ(written_and_read(config), config) << name;
  }
  ModelConfig window = preset_by_name("mathstral_7b");
  window.sliding_window = 4096;
  EXPECT_EQ(written_and_read(window), window);
  ModelConfig dynamic = family_defaults(ModelType::kLlamaV3);
  EXPECT_EQ(written_and_read(dynamic), dynamic);
}

TEST(HuggingFaceWriter, NamesTheFamily) {
  EXPECT_EQ(hugging_face_model_type(ModelType::kLlamaV3), "llama");
  EXPECT_EQ(hugging_face_model_type(ModelType::kMistral), "mistral");
  EXPECT_THROW(hugging_face_model_type(ModelType::kMixtral), UserError);
}

}  // namespace
}  // namespace tessera
