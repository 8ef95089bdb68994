#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/hash.h"
#include "base/shallow_json.h"
#include "data/prepared_manifest.h"

// Any bytes as a manifest of prepared data: refused, or one that comes back as it was written. Its
// hash is put right where there is a place for one.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  std::string text(reinterpret_cast<const char*>(data), size);
  try {
    auto json = parse_shallow_json<nlohmann::ordered_json>(text, "input");
    if (json.is_object() && json.erase("xxh3") > 0) {
      const auto replace = nlohmann::ordered_json::error_handler_t::replace;
      const std::string digest = hex(hash_text(json.dump(1, ' ', false, replace)));
      json["xxh3"] = digest;
      text = json.dump(1, ' ', false, replace);
    }
    const PreparedManifest manifest = parse_prepared_manifest(text, "input");
    if (parse_prepared_manifest(to_json(manifest), "again") != manifest) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
