// Stands for libcudart, and for a tool that takes NVTX ranges: writes every call to the file that
// TESSERA_STUB_CALLS names.
#include <cstdio>
#include <cstdlib>

#include "profile/nvtx_api.h"

namespace {

int note(const char* call, const char* argument = "") {
  if (std::FILE* file = std::fopen(std::getenv("TESSERA_STUB_CALLS"), "a")) {
    std::fprintf(file, "%s%s\n", call, argument);
    std::fclose(file);
  }
  return 0;
}

#ifndef STUB_OF_RUNTIME
using namespace tessera;  // NOLINT: for the parameters

int depth = 0;
int push(const char* name) {
  note("push ", name);
  return depth++;
}
int pop() {
  note(depth > 0 ? "pop" : "pop of nothing");
  return --depth;
}
#endif

}  // namespace

extern "C" {
#ifdef STUB_OF_RUNTIME
int cudaProfilerStart() { return note("start"); }
int cudaProfilerStop() {
  note("stop");
  return std::getenv("TESSERA_STUB_FAILS") ? 35 : 0;
}
#else
int InitializeInjectionNvtx2(NvtxTable table_of) {
  const auto* callbacks = static_cast<const NvtxCallbacks*>(table_of(kNvtxTableOfCallbacks));
  const auto* version = static_cast<const NvtxVersion*>(table_of(kNvtxTableOfVersion));
  NvtxFunction** places = nullptr;
  unsigned count = 0;
  if (!callbacks || !version || version->version != 3 || table_of(2) ||
      callbacks->places_of_module(99, &places, &count) != 0 ||
      callbacks->places_of_module(kNvtxCore, &places, &count) != 1 || count <= kNvtxRangePop ||
      std::getenv("TESSERA_STUB_REFUSES"))
    return 0;
  *places[kNvtxRangePush] = reinterpret_cast<NvtxFunction>(&push);
  *places[kNvtxRangePop] = reinterpret_cast<NvtxFunction>(&pop);
  return 1;
}
#endif
}
