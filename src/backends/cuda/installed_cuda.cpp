#include "backends/cuda/installed_cuda.h"

#include "backends/cuda/cublaslt_products.h"
#include "backends/cuda/cudnn.h"
#include "backends/cuda/cupti_activity.h"
#include "backends/cuda/kernel_images.h"
#include "backends/cuda/nccl_communicator.h"
#include "base/error.h"
#include "base/text.h"

namespace tessera::cuda {
namespace {

template <class L>
std::string version_of() {
  try {
    const L& library = L::get();
    return cat(library.version(), ", '", library.path(), "'");
  } catch (const DeviceError& error) {
    return error.what();
  }
}

}  // namespace

InstalledCuda installed_cuda() {
  InstalledCuda found;
  found.has_kernels = !kernel_images().empty();
  try {
    const Driver& driver = Driver::get();
    found.has_driver = true;
    found.emulated = driver.emulated();
    found.driver = cat(found.emulated ? "emulated, CUDA " : "CUDA ", driver.version_text(), ", '",
                       driver.path(), "'");
    found.gpus = list_gpus(driver);
    found.cublaslt = version_of<CublasLt>();
    found.cudnn = version_of<Cudnn>();
    found.nccl = version_of<Nccl>();
    found.cupti = version_of<Cupti>();
  } catch (const DeviceError& error) {
    if (!found.has_driver) found.driver = error.what();
  }
  return found;
}

std::vector<GpuFacts> shown_gpus() {
  try {
    return list_gpus(Driver::get());
  } catch (const DeviceError&) {
    return {};
  }
}

bool has_kernels() { return !kernel_images().empty() || Driver::get().emulated(); }

std::string kernels_text(const InstalledCuda& cuda) {
  return cuda.has_kernels ? "compiled" : "none in this build";
}

std::string to_string(const GpuFacts& gpu) {
  return cat(gpu.name, ", ", format_bytes(gpu.memory), ", compute capability ", gpu.major, ".",
             gpu.minor, ", PCI ", gpu.pci_id);
}

}  // namespace tessera::cuda
