#include "backends/xla/hlo_module.h"
#include "base/error.h"

// What is accepted has no more gathers than bytes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  if (size == 0) return 0;
  const std::string_view module(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const xla::HloGathers gathers = xla::count_gathers(module, data[0] & 1);
    TESSERA_CHECK(gathers.ops >= 0 && static_cast<size_t>(gathers.ops) <= size);
    TESSERA_CHECK(gathers.tensors >= 0 && static_cast<size_t>(gathers.tensors) <= size);
  } catch (const UserError&) {
  }
  return 0;
}
