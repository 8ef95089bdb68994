#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "tables/saved_dataset.h"

// What is accepted names nothing outside its directory.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    for (const auto& file : tessera::parse_saved_state(text, "fuzz").files)
      if (!tessera::is_plain_name(file)) std::abort();
  } catch (const tessera::UserError&) {
  }
  try {
    for (const auto& split : tessera::splits_of_dataset_dict(text, "fuzz"))
      if (!tessera::is_plain_name(split)) std::abort();
  } catch (const tessera::UserError&) {
  }
  return 0;
}
