#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "hub/weight_index.h"

// What is accepted names files of the same directory only, and can be written and read again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  try {
    WeightIndex index = parse_weight_index({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const auto& [tensor, file] : index)
      TESSERA_CHECK(is_plain_name(file) &&
                    (file.ends_with(".safetensors") || file.ends_with(".bin")));
    TESSERA_CHECK(parse_weight_index(weight_index_json(index, 1), "fuzz") == index);
  } catch (const UserError&) {
  }
  return 0;
}
