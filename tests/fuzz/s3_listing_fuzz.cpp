#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "remote/s3_listing.h"

// Any bytes as an answer to ListObjectsV2: objects with keys, or a UserError.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  std::vector<S3Object> objects;
  try {
    parse_s3_listing({reinterpret_cast<const char*>(data), size}, "s3://b/", objects);
    for (const S3Object& object : objects) {
      if (object.key.size() > 8192 || object.etag.size() > 514) std::abort();
    }
  } catch (const UserError&) {
  }
  return 0;
}
