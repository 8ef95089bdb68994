#pragma once
#include <cstdint>
#include <string>

#include "findings.h"
#include "machine.h"

// What callers hold of the emulated GPUs: numbers that are never used again, so that what is stale
// or made up is found.
namespace tessera::emulated_gpu {

enum class Handle : uintptr_t {
  kContext = 1,
  kModule,
  kFunction,
  kStream,
  kEvent,
  kGraph,
  kExecutable,
  kLibrary,
  kDescription,
  kLayout,
  kPreference,
  kCommunicator,
  kRegistration,
  kCudnnHandle,
  kCudnnDescriptor
};

template <class Pointer>
Pointer make_handle(Handle kind, int number) {
  return reinterpret_cast<Pointer>(static_cast<uintptr_t>(kind) << 40 |
                                   static_cast<uintptr_t>(number + 1) << 4);
}
// -1 if it is none of this kind.
template <class Pointer>
int number_of(Handle kind, Pointer handle) {
  const auto bits = reinterpret_cast<uintptr_t>(handle);
  if (bits >> 40 != static_cast<uintptr_t>(kind) || bits % 16 != 0) return -1;
  return static_cast<int>((bits & 0xffffffffffu) >> 4) - 1;
}
// The live object of a list, or null and a finding.
template <class List, class Pointer>
auto* object_of(Handle kind, List& list, Pointer handle, const char* call, const char* what) {
  const int number = number_of(kind, handle);
  auto* object = number >= 0 && number < static_cast<int>(list.size())
                     ? &list[static_cast<size_t>(number)]
                     : nullptr;
  if constexpr (requires { object->destroyed; }) {
    if (object && object->destroyed) object = nullptr;
  }
  if (!object) found(std::string(call) + ": there is no such " + what);
  return object;
}

// The stream of a handle (null: the default stream of the current device); null and a finding if
// there is none.
Stream* stream_of(cuda::CUstream handle, const char* call);
Event* event_of(cuda::CUevent handle, const char* call);
// What every call looks at first: initialised, a current context, no failure before.
CUresult ready(const char* call);
// How a call of the driver begins: with the machine locked, and its error where it may not go on.
#define TESSERA_DRIVER_CALL                    \
  const std::lock_guard lock(machine().mutex); \
  if (const CUresult r = ready(__func__)) return r

}  // namespace tessera::emulated_gpu
