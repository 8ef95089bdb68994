#pragma once
#include <cstddef>
#include <cstdint>

// What NVTX 3 and the tools that attach to it have agreed on, declared here so that nothing of it
// is needed to build: numbers and layouts are those of nvtx3/nvtxDetail/nvtxTypes.h, held against
// it by a test where that is installed.

namespace tessera {

// The library of a tool is named by this variable, and attaches itself in a function of this name:
// int InitializeInjectionNvtx2(NvtxTable table), 0 where it does not want to.
inline constexpr const char *kNvtxToolVariable = "NVTX_INJECTION64_PATH",
                            *kNvtxAttach = "InitializeInjectionNvtx2";
// A table by its number; nullptr where there is none.
using NvtxTable = const void* (*)(uint32_t number);
constexpr uint32_t kNvtxTableOfCallbacks = 1, kNvtxTableOfVersion = 3;

using NvtxFunction = void (*)();
// The places of a module's functions, where a tool writes those that it wants to be called: in a
// list of pointers to them by the functions' numbers, which a null ends.
struct NvtxCallbacks {
  size_t size = sizeof(NvtxCallbacks);
  int (*places_of_module)(int module, NvtxFunction*** places, unsigned* count) = nullptr;
};
struct NvtxVersion {
  size_t size = sizeof(NvtxVersion);
  uint32_t version = 3, reserved = 0;
  void (*set_version_of_tool)(uint32_t version) = nullptr;
};
constexpr int kNvtxCore = 1, kNvtxCore2 = 5;                         // modules
constexpr size_t kNvtxCoreFunctions = 16, kNvtxCore2Functions = 16;  // number 0 is none
constexpr size_t kNvtxRangePush = 9, kNvtxRangePop = 11;
using NvtxRangePush = int (*)(const char* name);
using NvtxRangePop = int (*)();

}  // namespace tessera
