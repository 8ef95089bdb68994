#include "backends/cuda/driver.h"

#include <array>

#include "base/error.h"
#include "base/text.h"

namespace tessera::cuda {
namespace {

constexpr const char* kDriverNames[] = {"libcuda.so.1"};
constexpr int kOldestVersion = 12000;

}  // namespace

const Driver& Driver::get() {
  // A process that ends has no use for the driver's own tidying up.
  static const Driver& driver = *new Driver;
  return driver;
}

Driver::Driver() : library_("driver", kDriverNames) {
#define TESSERA_LOAD(library_name, own_name, parameters) library_.load(own_name);
  TESSERA_CUDA_DRIVER_FUNCTIONS(TESSERA_LOAD)
#undef TESSERA_LOAD
  emulated_ = library_.find("tessera_emulated_gpu") != nullptr;
  call(driver_get_version, &version_);
  if (version_ < kOldestVersion)
    throw DeviceError(cat("CUDA: the driver is too old: it is for CUDA ", version_text(),
                          ", and this program needs one for CUDA 12.0 or later"));
  if (const CUresult result = init(0u)) {
    if (result == kCudaErrorNoDevice)
      throw DeviceError("CUDA: no GPU: the driver is there and shows none to this process");
    fail("cuInit", result);
  }
}

std::string Driver::version_text() const { return cat(version_ / 1000, ".", version_ % 1000 / 10); }

std::string Driver::text_of(CUresult result) const {
  const char *name = nullptr, *text = nullptr;
  if (get_error_name(result, &name) != kCudaSuccess || !name) return cat("error ", result);
  if (get_error_string(result, &text) != kCudaSuccess || !text) return name;
  return cat(text, " (", name, ")");
}

void Driver::fail(const std::string& what, CUresult result) const {
  throw DeviceError(cat("CUDA: ", what, ": ", text_of(result)));
}

std::vector<GpuFacts> list_gpus(const Driver& driver) {
  int count = 0;
  driver.call(driver.device_get_count, &count);
  std::vector<GpuFacts> list;
  for (int i = 0; i < count; ++i) {
    CUdevice device = 0;
    driver.call(driver.device_get, &device, i);
    GpuFacts gpu;
    gpu.ordinal = i;
    std::array<char, 256> text{};
    driver.call(driver.device_get_name, text.data(), static_cast<int>(text.size()), device);
    gpu.name = text.data();
    driver.call(driver.device_get_pci_bus_id, text.data(), static_cast<int>(text.size()), device);
    gpu.pci_id = text.data();
    driver.call(driver.device_get_attribute, &gpu.major, kAttributeComputeCapabilityMajor, device);
    driver.call(driver.device_get_attribute, &gpu.minor, kAttributeComputeCapabilityMinor, device);
    driver.call(driver.device_get_attribute, &gpu.multiprocessors, kAttributeMultiprocessorCount,
                device);
    driver.call(driver.device_get_attribute, &gpu.shared_bytes,
                kAttributeMaxSharedMemoryPerBlockOptin, device);
    size_t bytes = 0;
    driver.call(driver.device_total_mem, &bytes, device);
    gpu.memory = static_cast<int64_t>(bytes);
    list.push_back(gpu);
  }
  return list;
}

}  // namespace tessera::cuda
