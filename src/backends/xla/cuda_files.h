#pragma once
#include <filesystem>
#include <vector>

namespace tessera::xla {

// What XLA needs to compile for CUDA beside its plug-in: NVIDIA's device library, and an assembler.
struct CudaFiles {
  std::filesystem::path root;       // with nvvm/libdevice/libdevice.10.bc below it
  std::filesystem::path nvjitlink;  // empty: there is none
  std::filesystem::path ptxas;      // empty: there is none
};

// Where they may be: beside the plug-in, as Python's packages put them, in $CUDA_HOME, $CUDA_PATH
// and /usr/local/cuda.
std::vector<std::filesystem::path> cuda_roots(const std::filesystem::path& plugin);

// The first root that has them. XLA ends its process where they are missing: UserError that says
// which, and where they were looked for.
CudaFiles find_cuda_files(const std::vector<std::filesystem::path>& roots);

// Tells XLA, by the environment of this process; before the plug-in is loaded.
void use_cuda_files(const CudaFiles& files);

}  // namespace tessera::xla
