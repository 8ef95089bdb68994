#include "backends/xla/cuda_files.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/text.h"

namespace tessera::xla {

namespace fs = std::filesystem;

namespace {

constexpr const char* kDeviceLibrary = "nvvm/libdevice/libdevice.10.bc";

fs::path first_file(const fs::path& root, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    std::error_code error;
    if (fs::is_regular_file(root / name, error)) return root / name;
  }
  return {};
}

}  // namespace

// SITE-PACKAGES/jax_plugins/xla_cuda13/xla_cuda_plugin.so has SITE-PACKAGES/nvidia/cu13 beside it.
std::vector<fs::path> cuda_roots(const fs::path& plugin) {
  std::error_code error;
  const fs::path here = fs::absolute(plugin, error).parent_path();
  std::vector<fs::path> all{here.parent_path().parent_path() / "nvidia/cu13", here / "nvidia/cu13",
                            here};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* value = std::getenv(variable);
    if (value && *value) all.emplace_back(value);
  }
  all.emplace_back("/usr/local/cuda");
  return all;
}

CudaFiles find_cuda_files(const std::vector<fs::path>& roots) {
  bool device_library = false;
  std::vector<std::string> looked_at;
  for (const fs::path& root : roots) {
    looked_at.push_back(cat("'", root.string(), "'"));
    if (first_file(root, {kDeviceLibrary}).empty()) continue;
    device_library = true;
    CudaFiles files{root, first_file(root, {"lib/libnvJitLink.so.13", "lib64/libnvJitLink.so.13"}),
                    first_file(root, {"bin/ptxas"})};
    if (!files.nvjitlink.empty() || !files.ptxas.empty()) return files;
  }
  throw UserError(
      cat("XLA cannot compile for CUDA without ",
          device_library ? "libnvJitLink.so.13 or ptxas beside its device library"
                         : cat(kDeviceLibrary, ", and libnvJitLink.so.13 or ptxas"),
          ": looked in ", join(looked_at, ", "),
          "; `tools/packages install xla_cuda` gets them, or set CUDA_HOME to a toolkit of "
          "CUDA 13 (docs/xla.md)"));
}

void use_cuda_files(const CudaFiles& files) {
  const char* flags = std::getenv("XLA_FLAGS");
  ::setenv(
      "XLA_FLAGS",
      cat(flags ? flags : "", flags ? " " : "", "--xla_gpu_cuda_data_dir=", files.root.string())
          .c_str(),
      1);
  if (!files.ptxas.empty()) {
    const char* path = std::getenv("PATH");
    ::setenv("PATH",
             cat(files.ptxas.parent_path().string(), path ? ":" : "", path ? path : "").c_str(), 1);
  }
  // XLA opens it by its name; it is found then, wherever it is.
  if (!files.nvjitlink.empty()) ::dlopen(files.nvjitlink.c_str(), RTLD_NOW | RTLD_GLOBAL);
}

}  // namespace tessera::xla
