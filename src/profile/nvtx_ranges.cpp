#include "profile/nvtx_ranges.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/log.h"
#include "base/text.h"

namespace tessera {
namespace {

// What a tool asks of NVTX when it is attached: two tables by their numbers, of which one gives
// lists of places for functions, and the other the version. Numbers, layouts and order are those of
// version 3, which says that they stay.
using NvtxFunction = void (*)();
constexpr uint32_t kTableOfCallbacks = 1, kTableOfVersion = 3, kNvtxVersion = 3;
constexpr int kModuleCore = 1, kModuleCore2 = 5;
constexpr size_t kFunctions = 16;  // of each of the two modules, the first of which is none
constexpr size_t kRangePush = 9, kRangePop = 11;

// Those that the tool wants to hear of; and for each module the list of their places, which a null
// ends.
NvtxFunction core_functions[kFunctions], core2_functions[kFunctions];
NvtxFunction* core_places[kFunctions + 1];
NvtxFunction* core2_places[kFunctions + 1];

int places_of_module(int module, NvtxFunction*** places, unsigned* count) {
  if (module != kModuleCore && module != kModuleCore2) return 0;
  if (places) *places = module == kModuleCore ? core_places : core2_places;
  if (count) *count = kFunctions;
  return 1;
}

struct CallbacksTable {
  size_t size = sizeof(CallbacksTable);
  int (*places_of_module)(int, NvtxFunction***, unsigned*) = &tessera::places_of_module;
};
struct VersionTable {
  size_t size = sizeof(VersionTable);
  uint32_t version = kNvtxVersion, reserved = 0;
  void (*set_version_of_tool)(uint32_t) = [](uint32_t) {};
};

const void* table(uint32_t number) {
  static const CallbacksTable callbacks;
  static const VersionTable version;
  if (number == kTableOfCallbacks) return &callbacks;
  return number == kTableOfVersion ? static_cast<const void*>(&version) : nullptr;
}

bool attach(const char* path) {
  void* library = ::dlopen(path, RTLD_LAZY);
  if (!library) {
    TESSERA_WARN(cat("NVTX_INJECTION64_PATH: ", ::dlerror(), ": there are no NVTX ranges"));
    return false;
  }
  using Attach = int (*)(const void* (*table)(uint32_t));
  const auto attach_tool = reinterpret_cast<Attach>(::dlsym(library, "InitializeInjectionNvtx2"));
  for (size_t i = 1; i < kFunctions; ++i) {
    core_places[i] = &core_functions[i];
    core2_places[i] = &core2_functions[i];
  }
  if (attach_tool && attach_tool(&table) != 0) return true;
  TESSERA_WARN(cat("NVTX_INJECTION64_PATH: '", path, "' ",
                   attach_tool ? "does not want to be attached" : "is no tool of NVTX",
                   ": there are no NVTX ranges"));
  ::dlclose(library);
  return false;
}

}  // namespace

const NvtxRanges& NvtxRanges::get() {
  static const NvtxRanges ranges;
  return ranges;
}

NvtxRanges::NvtxRanges() {
  const char* path = std::getenv("NVTX_INJECTION64_PATH");
  if (!path || !*path || !attach(path)) return;
  attached_ = core_functions[kRangePush] && core_functions[kRangePop];
}

void NvtxRanges::push(const char* name) const {
  if (attached_) reinterpret_cast<int (*)(const char*)>(core_functions[kRangePush])(name);
}

void NvtxRanges::pop() const {
  if (attached_) reinterpret_cast<int (*)()>(core_functions[kRangePop])();
}

}  // namespace tessera
