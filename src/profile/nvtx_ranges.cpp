#include "profile/nvtx_ranges.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/log.h"
#include "base/text.h"
#include "profile/nvtx_api.h"

namespace tessera {
namespace {

// The functions that the tool wants to hear of, and for each module the list of their places.
NvtxFunction core_functions[kNvtxCoreFunctions], core2_functions[kNvtxCore2Functions];
NvtxFunction* core_places[kNvtxCoreFunctions + 1];
NvtxFunction* core2_places[kNvtxCore2Functions + 1];

int places_of_module(int module, NvtxFunction*** places, unsigned* count) {
  if (module != kNvtxCore && module != kNvtxCore2) return 0;
  if (places) *places = module == kNvtxCore ? core_places : core2_places;
  if (count) *count = module == kNvtxCore ? kNvtxCoreFunctions : kNvtxCore2Functions;
  return 1;
}

const void* table_of(uint32_t number) {
  static const NvtxCallbacks callbacks{.places_of_module = &places_of_module};
  static const NvtxVersion version{.set_version_of_tool = [](uint32_t) {}};
  if (number == kNvtxTableOfCallbacks) return &callbacks;
  return number == kNvtxTableOfVersion ? static_cast<const void*>(&version) : nullptr;
}

bool attach(const char* path) {
  void* library = ::dlopen(path, RTLD_LAZY);
  if (!library) {
    TESSERA_WARN(cat(kNvtxToolVariable, ": ", ::dlerror(), ": there are no NVTX ranges"));
    return false;
  }
  using Attach = int (*)(NvtxTable);
  const auto attach_tool = reinterpret_cast<Attach>(::dlsym(library, kNvtxAttach));
  for (size_t i = 1; i < kNvtxCoreFunctions; ++i) core_places[i] = &core_functions[i];
  for (size_t i = 1; i < kNvtxCore2Functions; ++i) core2_places[i] = &core2_functions[i];
  if (attach_tool && attach_tool(&table_of) != 0) return true;
  TESSERA_WARN(cat(kNvtxToolVariable, ": '", path, "' ",
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
  const char* path = std::getenv(kNvtxToolVariable);
  if (!path || !*path || !attach(path)) return;
  attached_ = core_functions[kNvtxRangePush] && core_functions[kNvtxRangePop];
}

void NvtxRanges::push(const char* name) const {
  if (attached_) reinterpret_cast<NvtxRangePush>(core_functions[kNvtxRangePush])(name);
}

void NvtxRanges::pop() const {
  if (attached_) reinterpret_cast<NvtxRangePop>(core_functions[kNvtxRangePop])();
}

}  // namespace tessera
