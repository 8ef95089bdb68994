#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "models/model_config.h"
#include "options/option_record.h"
#include "options/run_record.h"

// One text for the four readers of configurations: whatever they accept can be written and read
// again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    ModelConfig model = parse_hugging_face_config(text, "fuzz");
    TESSERA_CHECK(parameter_count(model) > 0);
    TESSERA_CHECK(model_config_from_json(model_config_json(model)) == model);
    TESSERA_CHECK(parse_hugging_face_config(hugging_face_config_json(model), "fuzz") == model);
  } catch (const UserError&) {
  }
  try {
    ModelConfig model = model_config_from_json(text);
    TESSERA_CHECK(model_config_from_json(model_config_json(model)) == model);
  } catch (const UserError&) {
  }
  try {
    std::string record = run_config_json(run_config_from_json(text));
    TESSERA_CHECK(run_config_json(run_config_from_json(record)) == record);
  } catch (const UserError&) {
  }
  try {
    std::string record = to_json(run_record_from_json(text, "fuzz"));
    TESSERA_CHECK(to_json(run_record_from_json(record, "fuzz")) == record);
  } catch (const UserError&) {
  }
  return 0;
}
