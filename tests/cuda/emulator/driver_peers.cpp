// The driver's functions for memory of other devices, of this process and of others.
#include <unistd.h>

#include <cstring>

#include "access_checks.h"
#include "driver_exports.h"
#include "handles.h"
#include "shared_memory.h"

namespace tessera::emulated_gpu {

void Machine::check_peers(int device, const Memory& memory, const std::string& label) const {
  if (memory.opened > 0 && memory.shared->has_ended()) {
    found("memory: " + label + " touches memory that the process that made it has freed");
  }
  if (memory.device < 0 || memory.device == device) return;
  if (!devices[static_cast<size_t>(device)].peers.contains(memory.device)) {
    found("memory: " + label + " touches memory of another device without access to it");
  }
}

}  // namespace tessera::emulated_gpu

using namespace tessera::emulated_gpu;

extern "C" {

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  const std::lock_guard lock(machine().mutex);
  const auto count = static_cast<int>(machine().devices.size());
  if (device < 0 || device >= count || peer < 0 || peer >= count) return kCudaErrorInvalidDevice;
  *can = device != peer && !machine().refuses_peers;
  return kCudaSuccess;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  TESSERA_DRIVER_CALL;
  Machine& m = machine();
  const int device = number_of(Handle::kContext, peer);
  if (flags != 0) return kCudaErrorInvalidValue;
  if (device < 0 || device >= static_cast<int>(m.devices.size()) || device == current_device() ||
      m.devices[static_cast<size_t>(device)].retained == 0) {
    found("cuCtxEnablePeerAccess: not the context of another device");
    return kCudaErrorInvalidContext;
  }
  if (m.refuses_peers) return kCudaErrorPeerAccessUnsupported;
  return m.devices[static_cast<size_t>(current_device())].peers.insert(device).second
             ? kCudaSuccess
             : kCudaErrorPeerAccessAlreadyEnabled;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  TESSERA_DRIVER_CALL;
  Machine& m = machine();
  Memory* memory = m.memory_of(reinterpret_cast<const void*>(address), 0, __func__);
  if (!memory) return kCudaErrorInvalidValue;
  if (reinterpret_cast<CUdeviceptr>(memory->begin) != address ||
      memory->device != current_device() || memory->opened > 0) {
    found("cuIpcGetMemHandle: not the begin of memory of the current device");
    return kCudaErrorInvalidValue;
  }
  constexpr int64_t kGuard = 4096;
  if (!memory->shared) {
    memory->shared = SharedMemory::share(memory->begin, memory->bytes, memory->mapped - kGuard);
  }
  if (!memory->shared) return kCudaErrorOutOfMemory;
  *handle = memory->shared->handle(memory->device);
  return kCudaSuccess;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  TESSERA_DRIVER_CALL;
  Machine& m = machine();
  if (flags != kIpcLazyEnablePeerAccess) return kCudaErrorInvalidValue;
  if (SharedMemory::process_of(handle) == ::getpid()) {
    found("cuIpcOpenMemHandle: of memory of the same process");
    return kCudaErrorInvalidContext;
  }
  if (m.refuses_peers) return kCudaErrorPeerAccessUnsupported;
  for (auto& [begin, known] : m.memories) {
    if (known.opened == 0 || known.device != current_device()) continue;
    const CUipcMemHandle same = known.shared->opened_by();
    if (std::memcmp(same.reserved, handle.reserved, sizeof same.reserved) != 0) continue;
    known.opened++;
    *address = reinterpret_cast<CUdeviceptr>(begin);
    return kCudaSuccess;
  }
  const auto shared = SharedMemory::open(handle);
  if (!shared) {
    found("cuIpcOpenMemHandle: of memory that is not there any more");
    return kCudaErrorInvalidHandle;
  }
  Memory memory;
  memory.begin = shared->begin();
  memory.bytes = shared->bytes();
  memory.mapped = shared->mapped();
  memory.device = current_device();
  memory.name = "memory of another process of " + std::to_string(memory.bytes) + " bytes";
  memory.opened = 1;
  memory.shared = shared;
  // What the other process has written is not known here.
  tessera::simt::add_memory(memory.begin, static_cast<size_t>(memory.bytes), memory.name, true);
  *address = reinterpret_cast<CUdeviceptr>(memory.begin);
  std::byte* const begin = memory.begin;
  m.memories[begin] = std::move(memory);
  return kCudaSuccess;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  TESSERA_DRIVER_CALL;
  Machine& m = machine();
  Memory* memory = m.memory_of(reinterpret_cast<const void*>(address), 0, __func__);
  if (!memory) return kCudaErrorInvalidValue;
  if (reinterpret_cast<CUdeviceptr>(memory->begin) != address || memory->opened == 0) {
    found("cuIpcCloseMemHandle: not memory that was opened");
    return kCudaErrorInvalidValue;
  }
  if (memory->opened == 1) {
    m.retire(*memory, "closed");
    memory->shared->close();
  }
  memory->opened--;
  return kCudaSuccess;
}

}  // extern "C"
