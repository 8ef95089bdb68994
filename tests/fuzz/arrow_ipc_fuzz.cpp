#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/fuzz/read_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::read_table(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
