#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "models/peft_config.h"

// What is accepted can be part of a model, and can be written and read again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  try {
    Lora lora = parse_peft_config({reinterpret_cast<const char*>(data), size}, "fuzz");
    static const ModelConfig plain = [] {
      ModelConfig c = family_defaults(ModelType::kGpt2);
      c.num_layers = 1;
      c.vocab_size = c.max_context_width = 16;
      return c;
    }();
    ModelConfig model = plain;
    model.lora = lora;
    model.lora.targets = {"c_attn"};
    check(model);
    TESSERA_CHECK(parse_peft_config(peft_config_json(model, ""), "fuzz") == lora);
  } catch (const UserError&) {
  }
  return 0;
}
