#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "checkpoint/manifest.h"

// What is accepted survives a round trip and names plain files only.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    auto manifest = tessera::parse_manifest({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const tessera::ManifestFile& file : manifest.files) {
      if (file.name.empty() || file.name.find('/') != std::string::npos) std::abort();
    }
    std::string json = tessera::to_json(manifest);
    if (tessera::to_json(tessera::parse_manifest(json, "fuzz")) != json) std::abort();
  } catch (const tessera::UserError&) {
  }
  return 0;
}
