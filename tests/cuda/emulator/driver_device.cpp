// The driver's functions for devices, contexts, memory, modules and launches.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "access_checks.h"
#include "driver_exports.h"
#include "faults.h"
#include "handles.h"

namespace tessera::emulated_gpu {

CUresult ready(const char* call) {
  if (!machine().initialized) {
    found(std::string(call) + ": before cuInit");
    return cuda::kCudaErrorNotInitialized;
  }
  const int device = current_device();
  if (device < 0) {
    found(std::string(call) + ": no context is current in this thread");
    return cuda::kCudaErrorInvalidContext;
  }
  return machine().devices[static_cast<size_t>(device)].sticky;
}

Stream* stream_of(cuda::CUstream handle, const char* call) {
  Machine& m = machine();
  Stream* stream = nullptr;
  if (!handle) {
    const int number = m.devices[static_cast<size_t>(current_device())].default_stream;
    if (!m.may_call(std::string(call) + " on the default stream")) return nullptr;
    stream = &m.streams[static_cast<size_t>(number)];
  } else {
    stream = object_of(Handle::kStream, m.streams, handle, call, "stream");
  }
  if (stream && stream->device != current_device()) {
    found(std::string(call) + ": the stream is of another context than the current one");
    return nullptr;
  }
  return stream;
}

namespace {

using namespace cuda;

constexpr unsigned kMostShared = 227 << 10;

// Shared memory that kernels declare, as nvcc compiled them: its table, of which the largest
// counts. None of kernels that are not in it.
unsigned declared_shared(const char* name) {
  static const std::map<std::string, unsigned> known = [] {
    std::map<std::string, unsigned> all;
    std::ifstream table(TESSERA_KERNEL_FACTS);
    for (std::string line; std::getline(table, line);) {
      std::istringstream words(line);
      std::string kind, kernel;
      unsigned threads = 0, facts[8] = {};
      if (!(words >> kind >> kernel >> threads) || kind != "kernel") continue;
      for (unsigned& fact : facts) words >> fact;
      all[kernel] = std::max(facts[1], facts[5]);
    }
    if (all.empty()) found(std::string("no kernels are in ") + TESSERA_KERNEL_FACTS);
    return all;
  }();
  const auto kernel = known.find(name);
  return kernel == known.end() ? 0 : kernel->second;
}

bool valid_device(CUdevice device) {
  return device >= 0 && device < static_cast<int>(machine().devices.size());
}
std::byte* bytes_at(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }

// Parameters as a launch keeps them: their values, copied when it is enqueued.
struct Parameters {
  std::vector<std::byte> memory;
  std::vector<size_t> offsets;
};
Parameters copy_parameters(const simt::KernelEntry& kernel, void** given) {
  Parameters p;
  const auto count = static_cast<size_t>(kernel.parameters);
  size_t end = count * sizeof(void*);
  for (size_t n = 0; n < count; ++n) {
    end = (end + 15) / 16 * 16;
    p.offsets.push_back(end);
    end += static_cast<size_t>(kernel.parameter_bytes[n]);
  }
  p.memory.resize(end);
  for (size_t n = 0; n < count; ++n) {
    std::memcpy(p.memory.data() + p.offsets[n], given[n],
                static_cast<size_t>(kernel.parameter_bytes[n]));
  }
  return p;
}

std::vector<Range> run_kernel(const simt::KernelEntry& kernel, simt::Shape grid, simt::Shape block,
                              unsigned shared_bytes, Parameters& parameters, int device) {
  Machine& m = machine();
  auto** pointers = reinterpret_cast<void**>(parameters.memory.data());
  for (size_t n = 0; n < parameters.offsets.size(); ++n) {
    pointers[n] = parameters.memory.data() + parameters.offsets[n];
  }
  simt::Launch launch{&kernel,
                      grid,
                      block,
                      shared_bytes,
                      pointers,
                      parameters.memory.data(),
                      parameters.memory.size(),
                      m.seed ? m.random() | 1 : 0};
  ++m.kernels;
  if (!simt::run(launch)) {
    m.devices[static_cast<size_t>(device)].sticky = kCudaErrorIllegalAddress;
  }
  std::vector<Range> ranges;
  for (const simt::Touched& t : simt::take_touched()) {
    ranges.push_back({t.begin, static_cast<int64_t>(t.bytes), t.writes});
  }
  return ranges;
}

}  // namespace
}  // namespace tessera::emulated_gpu

using namespace tessera::emulated_gpu;

extern "C" {

CUresult cuInit(unsigned) {
  const std::lock_guard lock(machine().mutex);
  if (machine().devices.empty()) return kCudaErrorNoDevice;
  machine().initialized = true;
  return kCudaSuccess;
}
CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return kCudaSuccess;
}

static const std::pair<CUresult, std::pair<const char*, const char*>> kErrors[] = {
    {0, {"CUDA_SUCCESS", "no error"}},
    {1, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {2, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {3, {"CUDA_ERROR_NOT_INITIALIZED", "initialization error"}},
    {100, {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"}},
    {101, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {200, {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}},
    {201, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {217,
     {"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
      "peer access is not supported between these two devices"}},
    {704, {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"}},
    {209, {"CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for the device"}},
    {400, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {500, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {600, {"CUDA_ERROR_NOT_READY", "device not ready"}},
    {700, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
    {701, {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"}},
    {719, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
    {900, {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not permitted when stream is capturing"}},
    {901, {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "failed due to a previous error"}},
    {903, {"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "not initiated in this stream"}},
    {904, {"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"}},
    {905, {"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency on uncaptured work"}},
    {907, {"CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on a captured event"}},
    {908, {"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "ended in another thread"}}};

CUresult cuGetErrorName(CUresult error, const char** text) {
  for (const auto& [code, texts] : kErrors) {
    if (code == error) return *text = texts.first, kCudaSuccess;
  }
  *text = nullptr;
  return kCudaErrorInvalidValue;
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  for (const auto& [code, texts] : kErrors) {
    if (code == error) return *text = texts.second, kCudaSuccess;
  }
  *text = nullptr;
  return kCudaErrorInvalidValue;
}

CUresult cuDeviceGetCount(int* count) {
  const std::lock_guard lock(machine().mutex);
  if (!machine().initialized) return kCudaErrorNotInitialized;
  *count = static_cast<int>(machine().devices.size());
  return kCudaSuccess;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  const std::lock_guard lock(machine().mutex);
  if (!machine().initialized) return kCudaErrorNotInitialized;
  if (!valid_device(ordinal)) return kCudaErrorInvalidDevice;
  *device = ordinal;
  return kCudaSuccess;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  if (!valid_device(device)) return kCudaErrorInvalidDevice;
  std::snprintf(name, static_cast<size_t>(length), "tessera emulated GPU");
  return kCudaSuccess;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  if (!valid_device(device)) return kCudaErrorInvalidDevice;
  std::memset(uuid->bytes, 0, sizeof uuid->bytes);
  uuid->bytes[15] = static_cast<char>(device + 1);
  return kCudaSuccess;
}
CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  if (!valid_device(device)) return kCudaErrorInvalidDevice;
  std::snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0", device + 1);
  return kCudaSuccess;
}
CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  if (!valid_device(device)) return kCudaErrorInvalidDevice;
  switch (attribute) {
    case kAttributeMaxSharedMemoryPerBlockOptin: *value = kMostShared; break;
    case kAttributeMultiprocessorCount: *value = 4; break;
    case kAttributeComputeCapabilityMajor: *value = 9; break;
    case kAttributeComputeCapabilityMinor: *value = 0; break;
    default: return kCudaErrorInvalidValue;
  }
  return kCudaSuccess;
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  const std::lock_guard lock(machine().mutex);
  if (!valid_device(device)) return kCudaErrorInvalidDevice;
  *bytes = static_cast<size_t>(machine().memory_limit);
  return kCudaSuccess;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const std::lock_guard lock(machine().mutex);
  if (!machine().initialized) return kCudaErrorNotInitialized;
  if (!valid_device(device)) return kCudaErrorInvalidDevice;
  machine().devices[static_cast<size_t>(device)].retained++;
  *context = make_handle<CUcontext>(Handle::kContext, device);
  return kCudaSuccess;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  const std::lock_guard lock(machine().mutex);
  if (!valid_device(device)) return kCudaErrorInvalidDevice;
  Device& d = machine().devices[static_cast<size_t>(device)];
  if (d.retained == 0) {
    found("cuDevicePrimaryCtxRelease: more often than it was retained");
    return kCudaErrorInvalidContext;
  }
  if (--d.retained == 0) {
    for (const auto& [begin, memory] : machine().memories) {
      if (memory.device == device && !memory.freed) {
        found("memory: " + memory.name + " is not freed when the context ends");
      }
    }
  }
  return kCudaSuccess;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  const std::lock_guard lock(machine().mutex);
  const int device = context ? number_of(Handle::kContext, context) : -1;
  if (context &&
      (!valid_device(device) || machine().devices[static_cast<size_t>(device)].retained == 0)) {
    found("cuCtxSetCurrent: there is no such context");
    return kCudaErrorInvalidContext;
  }
  current_device() = device;
  return kCudaSuccess;
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  TESSERA_DRIVER_CALL;
  const Machine& m = machine();
  *total = static_cast<size_t>(m.memory_limit);
  *free =
      static_cast<size_t>(m.memory_limit - m.devices[static_cast<size_t>(current_device())].in_use);
  return kCudaSuccess;
}
CUresult cuMemAlloc_v2(CUdeviceptr* memory, size_t bytes) {
  TESSERA_DRIVER_CALL;
  Machine& m = machine();
  const int device = current_device();
  if (!m.may_call("cuMemAlloc")) return kCudaErrorStreamCaptureUnsupported;
  if (bytes == 0) return kCudaErrorInvalidValue;
  const Device& d = m.devices[static_cast<size_t>(device)];
  const bool fails = ++m.allocations == m.fail_allocation || fault_at("allocation");
  if (fails || bytes > static_cast<size_t>(m.memory_limit - d.in_use)) {
    return kCudaErrorOutOfMemory;
  }
  std::byte* begin = m.allocate(static_cast<int64_t>(bytes), device, "device memory");
  if (!begin) return kCudaErrorOutOfMemory;
  *memory = reinterpret_cast<CUdeviceptr>(begin);
  return kCudaSuccess;
}
static CUresult free_memory(const void* at, bool on_device, const char* call) {
  Machine& m = machine();
  if (!m.may_call(call)) return kCudaErrorStreamCaptureUnsupported;
  Memory* memory = m.memory_of(at, 0, call);
  if (!memory) return kCudaErrorInvalidValue;
  if (memory->begin != at || (memory->device >= 0) != on_device || memory->opened > 0) {
    found(std::string(call) + ": not the address of an allocation of its kind");
    return kCudaErrorInvalidValue;
  }
  m.release(*memory);
  return kCudaSuccess;
}
CUresult cuMemFree_v2(CUdeviceptr memory) {
  TESSERA_DRIVER_CALL;
  return memory ? free_memory(bytes_at(memory), true, "cuMemFree") : kCudaSuccess;
}
CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  TESSERA_DRIVER_CALL;
  if (!machine().may_call("cuMemHostAlloc")) return kCudaErrorStreamCaptureUnsupported;
  if (bytes == 0) return kCudaErrorInvalidValue;
  if (++machine().allocations == machine().fail_allocation) return kCudaErrorOutOfMemory;
  *memory = machine().allocate(static_cast<int64_t>(bytes), -1, "pinned memory");
  return *memory ? kCudaSuccess : kCudaErrorOutOfMemory;
}
CUresult cuMemFreeHost(void* memory) {
  TESSERA_DRIVER_CALL;
  return free_memory(memory, false, "cuMemFreeHost");
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  TESSERA_DRIVER_CALL;
  // Any image will do: the kernels are those that were compiled into this library.
  if (!image) return kCudaErrorInvalidValue;
  Machine& m = machine();
  m.modules.push_back(current_device());
  *module = make_handle<CUmodule>(Handle::kModule, static_cast<int>(m.modules.size()) - 1);
  return kCudaSuccess;
}
CUresult cuModuleUnload(CUmodule module) {
  TESSERA_DRIVER_CALL;
  Machine& m = machine();
  int* device = object_of(Handle::kModule, m.modules, module, "cuModuleUnload", "module");
  if (!device || *device < 0) return kCudaErrorInvalidHandle;
  *device = -1;
  return kCudaSuccess;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  TESSERA_DRIVER_CALL;
  Machine& m = machine();
  const int* device =
      object_of(Handle::kModule, m.modules, module, "cuModuleGetFunction", "module");
  if (!device || *device < 0) return kCudaErrorInvalidHandle;
  Function f;
  f.kernel = tessera::simt::find_kernel(name);
  if (!f.kernel) return kCudaErrorNotFound;
  f.declared = declared_shared(name);
  f.dynamic_limit -= f.declared;
  f.device = *device;
  f.module = number_of(Handle::kModule, module);
  m.functions.push_back(f);
  *function = make_handle<CUfunction>(Handle::kFunction, static_cast<int>(m.functions.size()) - 1);
  return kCudaSuccess;
}
CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  TESSERA_DRIVER_CALL;
  Function* f =
      object_of(Handle::kFunction, machine().functions, function, "cuFuncSetAttribute", "function");
  if (!f) return kCudaErrorInvalidHandle;
  if (attribute != kFunctionAttributeMaxDynamicSharedSize || value < 0 ||
      static_cast<unsigned>(value) + f->declared > kMostShared) {
    return kCudaErrorInvalidValue;
  }
  f->dynamic_limit = std::max(f->dynamic_limit, static_cast<unsigned>(value));
  return kCudaSuccess;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void** parameters, void** extra) {
  TESSERA_DRIVER_CALL;
  Machine& m = machine();
  Function* f = object_of(Handle::kFunction, m.functions, function, __func__, "function");
  if (!f) return kCudaErrorInvalidHandle;
  Stream* s = stream_of(stream, __func__);
  if (!s) return kCudaErrorInvalidHandle;
  const tessera::simt::KernelEntry& kernel = *f->kernel;
  const auto wrong = [&](const char* what, CUresult code) {
    found(std::string("launch of ") + kernel.name + ": " + what);
    return code;
  };
  if (m.modules[static_cast<size_t>(f->module)] < 0 || f->device != s->device) {
    return wrong("its module is unloaded or of another context", kCudaErrorInvalidHandle);
  }
  const uint64_t threads = uint64_t{block_x} * block_y * block_z;
  if (grid_x == 0 || grid_y == 0 || grid_z == 0 || threads == 0 || grid_x > 0x7fffffffu ||
      grid_y > 65535 || grid_z > 65535 || block_z > 64 || threads > 1024) {
    return wrong("a grid or block that no device takes", kCudaErrorInvalidValue);
  }
  if (threads > static_cast<uint64_t>(kernel.max_threads)) {
    return wrong("more threads than it is compiled for", kCudaErrorLaunchOutOfResources);
  }
  if (shared_bytes > f->dynamic_limit) {
    return wrong("more shared memory than it is allowed", kCudaErrorInvalidValue);
  }
  if (extra || (kernel.parameters > 0 && !parameters)) {
    return wrong("parameters are not given", kCudaErrorInvalidValue);
  }
  const auto values = std::make_shared<Parameters>(copy_parameters(kernel, parameters));
  const tessera::simt::Shape grid{grid_x, grid_y, grid_z}, block{block_x, block_y, block_z};
  Work work;
  work.label = kernel.name;
  work.is_launch = true;
  work.prepare = [&kernel, grid, block, shared_bytes, values, device = s->device] {
    return [&kernel, grid, block, shared_bytes, values, device] {
      return run_kernel(kernel, grid, block, shared_bytes, *values, device);
    };
  };
  return m.add(*s, std::move(work));
}

}  // extern "C"
