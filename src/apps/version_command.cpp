#include <cstdio>

#include "apps/commands.h"
#include "backends/cpu/kernels/isa.h"
#include "backends/cpu/kernels/matmul.h"
#include "base/thread_pool.h"

namespace tessera {

int version_command(std::span<const std::string>) {
  cpu::Isa isa = cpu::detect_isa();
  std::printf("tessera %s, compiled by g++ %s\n", TESSERA_VERSION, __VERSION__);
  std::printf("machine: %d cores, instruction set %.*s\n", available_cores(), static_cast<int>(name(isa).size()), name(isa).data());
  std::printf("matrix products: ");
  for (const cpu::MatmulImplementation& m : cpu::matmul_implementations()) std::printf("%.*s ", static_cast<int>(m.name.size()), m.name.data());
  std::printf("\nbackends: cpu\n");
  return 0;
}

}  // namespace tessera
