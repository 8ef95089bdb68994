#include <commit.h>  // of the build: cmake/commit.cmake
#include <gnu/libc-version.h>
#include <link.h>
#include <sys/utsname.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "apps/commands.h"
#include "backends/cpu/kernels/isa.h"
#include "backends/cpu/kernels/matmul.h"
#include "backends/cuda/installed_cuda.h"
#include "backends/xla/installed_plugins.h"
#include "base/error.h"
#include "base/text.h"
#include "base/thread_pool.h"

namespace tessera {
namespace {

// The files of the libraries in use, by whose names versions can be told.
std::string libraries() {
  std::string names;
  ::dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* to) {
        std::error_code error;
        auto file = std::filesystem::canonical(library->dlpi_name, error);
        if (!error) static_cast<std::string*>(to)->append(" ").append(file.filename().string());
        return 0;
      },
      &names);
  return names;
}

}  // namespace

int version_command(std::span<const std::string> arguments) {
  if (!arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h")) {
    std::fputs(
        "Usage: tessera version\n\nVersion, build, libraries and what this machine offers: a bug "
        "report needs it.\n",
        stdout);
    return 0;
  }
  if (!arguments.empty()) throw UsageError(cat("version takes no options: '", arguments[0], "'"));
  cpu::Isa isa = cpu::default_isa();
  std::printf("tessera %s, compiled by g++ %s\n", TESSERA_VERSION, __VERSION__);
  std::printf("machine: %d cores, instruction set %.*s\n", available_cores(),
              static_cast<int>(name(isa).size()), name(isa).data());
  std::printf("matrix products: ");
  for (const cpu::MatmulImplementation& m : cpu::matmul_implementations())
    std::printf("%.*s ", static_cast<int>(m.name.size()), m.name.data());
  std::printf("\nbackends: cpu, cuda, xla\n");
  const cuda::InstalledCuda cuda = cuda::installed_cuda();
  std::printf("CUDA kernels: %s\n", cuda::kernels_text(cuda).c_str());
  std::printf("CUDA driver: %s\n", cuda.driver.c_str());
  for (const cuda::GpuFacts& gpu : cuda.gpus)
    std::printf("GPU %d: %s\n", gpu.ordinal, cuda::to_string(gpu).c_str());
  if (cuda.has_driver)
    std::printf("cublasLt: %s\ncuDNN: %s\nNCCL: %s\nCUPTI: %s\n", cuda.cublaslt.c_str(),
                cuda.cudnn.c_str(), cuda.nccl.c_str(), cuda.cupti.c_str());
  const auto plugins = xla::installed_plugins();
  if (plugins.empty()) std::printf("XLA: no plug-in (docs/xla.md)\n");
  for (const xla::InstalledPlugin& plugin : plugins)
    std::printf("XLA: %s\n", xla::to_string(plugin).c_str());
  std::printf("commit %s, %s build\n", TESSERA_COMMIT, TESSERA_BUILD_TYPE);
  utsname system{};
  ::uname(&system);
  std::printf("%s %s %s, glibc %s\n", system.sysname, system.release, system.machine,
              ::gnu_get_libc_version());
  std::printf("libraries:%s\n", libraries().c_str());
  return 0;
}

}  // namespace tessera
