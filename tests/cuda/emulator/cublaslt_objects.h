#pragma once
#include <deque>
#include <string>

#include "backends/cuda/cublaslt_api.h"
#include "handles.h"

// What callers of the double of cublasLt make: handles, descriptions, layouts, preferences.
using namespace tessera::cuda;  // NOLINT: the parameters of what is exported
extern "C" {
#pragma GCC visibility push(default)
#define TESSERA_EXPORTED(result, name, member, parameters) result name parameters;
TESSERA_CUBLASLT_FUNCTIONS(TESSERA_EXPORTED)
#undef TESSERA_EXPORTED
#pragma GCC visibility pop
}

namespace tessera::emulated_gpu {

struct LtLibrary {
  int device = -1;
  bool destroyed = false;
};
struct Description {
  int compute = 0, scale = 0;
  int32_t transpose_a = kCublasOperationNone, transpose_b = kCublasOperationNone;
  uint32_t epilogue = kEpilogueDefault;
  const std::byte* bias = nullptr;
  int32_t bias_type = -1;
  bool destroyed = false;
};
struct Layout {
  int type = 0;
  int64_t rows = 0, columns = 0, leading = 0, batches = 1, stride = 0;
  bool destroyed = false;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t alignment[4] = {256, 256, 256, 256};
  uint32_t schemes = 0xffffffff;  // of kReductionScheme...
  bool destroyed = false;
};
struct LtObjects {
  std::deque<LtLibrary> libraries;
  std::deque<Description> descriptions;
  std::deque<Layout> layouts;
  std::deque<Preference> preferences;
};
LtObjects& lt_objects();

// A finding; false.
bool lt_wrong(const std::string& what);

}  // namespace tessera::emulated_gpu
