#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "remote/s3_answer.h"

// Any bytes as an answer of S3: texts of bounded length, or a UserError.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  try {
    const S3Answer answer =
        parse_s3_answer({reinterpret_cast<const char*>(data), size}, "R", "s3://b/");
    for (const auto& [path, text] : answer)
      if (path.empty() || path.size() > 1000 || text.size() > 8192) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
