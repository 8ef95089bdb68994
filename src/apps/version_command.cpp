#include <cstdio>

#include "apps/commands.h"
#include "backends/cpu/kernels/isa.h"
#include "backends/cpu/kernels/matmul.h"
#include "base/error.h"
#include "base/text.h"
#include "base/thread_pool.h"

namespace tessera {

int version_command(std::span<const std::string> arguments) {
  if (!arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h")) {
    std::fputs("Usage: tessera version\n\nVersion, compiler and what this machine offers.\n",
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
  std::printf("\nbackends: cpu\n");
  return 0;
}

}  // namespace tessera
