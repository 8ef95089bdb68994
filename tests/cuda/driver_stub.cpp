// Stands for NVIDIA's driver with one GPU that does nothing, for what the program says before it
// uses one: TESSERA_STUB_DRIVER is its version (13000), TESSERA_STUB_CAPABILITY that of the GPU
// (90). All other functions fail: driver_stub_functions.cpp.
#include <cstdio>
#include <cstdlib>

#include "backends/cuda/driver_api.h"

using namespace tessera::cuda;  // NOLINT: for the parameters

namespace {

int number_of(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) { return kCudaSuccess; }
CUresult cuDriverGetVersion(int* version) {
  *version = number_of("TESSERA_STUB_DRIVER", 13000);
  return kCudaSuccess;
}
CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return kCudaSuccess;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return kCudaSuccess;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  std::snprintf(name, static_cast<size_t>(length), "a GPU that does nothing");
  return kCudaSuccess;
}
CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice) {
  std::snprintf(id, static_cast<size_t>(length), "0000:01:00.0");
  return kCudaSuccess;
}
CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice) {
  const int capability = number_of("TESSERA_STUB_CAPABILITY", 90);
  *value = attribute == kAttributeComputeCapabilityMajor   ? capability / 10
           : attribute == kAttributeComputeCapabilityMinor ? capability % 10
                                                           : 1;
  return kCudaSuccess;
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  *bytes = size_t{1} << 30;
  return kCudaSuccess;
}
}  // extern "C"
