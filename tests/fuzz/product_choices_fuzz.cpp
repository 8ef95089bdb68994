#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "backends/cuda/product_choices.h"
#include "base/error.h"

namespace tessera::cuda {
extern const std::string_view kCarriedChoices;
const std::string_view kCarriedChoices;  // what the library carries is not read here
}  // namespace tessera::cuda

// Any bytes as choices of cublasLt's algorithms: choices that are written as they were read, or a
// UserError.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const cuda::ProductChoices choices = cuda::ProductChoices::parse(text, "input");
    const std::string written = choices.to_text();
    if (cuda::ProductChoices::parse(written, "written").to_text() != written) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
