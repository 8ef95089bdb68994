#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/fuzz/read_table.h"

// What stands at both ends of a Parquet file is put there, so that an input is what is between.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string content(reinterpret_cast<const char*>(data), size);
  if (!content.starts_with("PAR1")) content.insert(0, "PAR1");
  if (!content.ends_with("PAR1")) content.append("PAR1");
  tessera::read_table(std::move(content));
  return 0;
}
