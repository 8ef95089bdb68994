#pragma once
#include <string>
#include <vector>

#include "backends/cuda/driver.h"

namespace tessera::cuda {

// What this machine and this build have for --device_type cuda. Of a library: its version and path,
// or why it does not load. Without a driver the other libraries are not looked for.
struct InstalledCuda {
  bool has_kernels = false;  // in this program
  bool has_driver = false, emulated = false;
  std::string driver;  // "CUDA 13.0, '/usr/lib/libcuda.so.1'"
  std::vector<GpuFacts> gpus;
  std::string cublaslt, cudnn, nccl;
  std::string cupti;  // for profiles
};
// Starts the driver, but makes no context: nothing is taken of a GPU's memory.
InstalledCuda installed_cuda();

// Those that the driver shows to this process; none where there is no driver. Loads nothing else.
std::vector<GpuFacts> shown_gpus();
// Whether there is something to run on them: kernels in this program, or those of an emulated GPU.
bool has_kernels();

// "compiled", "none in this build".
std::string kernels_text(const InstalledCuda& cuda);
// "NVIDIA H100 80GB HBM3, 79.6 GiB, compute capability 9.0, PCI 0000:1B:00.0".
std::string to_string(const GpuFacts& gpu);

}  // namespace tessera::cuda
