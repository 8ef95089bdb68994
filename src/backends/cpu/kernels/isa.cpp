#include "backends/cpu/kernels/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "base/error.h"
#include "base/text.h"

namespace tessera::cpu {
namespace {

#if defined(__x86_64__)

bool amx_permitted() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  if ((d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
  constexpr long kArchReqXcompPerm = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kTileData) == 0;
}

Isa probe() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    // Every core with AMX has AVX512-BF16 too, but a virtual machine may hide that.
    if (!__builtin_cpu_supports("avx512bf16")) return Isa::kAvx512;
    return amx_permitted() ? Isa::kAmx : Isa::kAvx512Bf16;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::kAvx2;
  return Isa::kPortable;
}

#elif defined(__aarch64__)

Isa probe() { return (getauxval(AT_HWCAP2) & HWCAP2_BF16) ? Isa::kNeonBf16 : Isa::kPortable; }

#endif

}  // namespace

Isa detect_isa() {
  static const Isa isa = probe();
  return isa;
}

Isa default_isa() {
  const Isa isa = detect_isa();
#if defined(__x86_64__)
  if (isa == Isa::kAvx512Bf16 && !__builtin_cpu_is("amd")) return Isa::kAvx512;
#endif
  return isa;
}

std::string_view name(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return "portable";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Bf16: return "avx512_bf16";
    case Isa::kAmx: return "amx";
    case Isa::kNeonBf16: return "neon_bf16";
  }
  return "?";
}

Isa isa_from_name(std::string_view text) {
  if (text == "auto") return default_isa();
  std::string known = "auto";
  for (Isa isa : kIsas) {
    if (text == name(isa)) return isa;
    known += cat(" ", name(isa));
  }
  throw UserError(
      cat("this program has no kernels for the instruction set '", text, "'; known: ", known));
}

void require_isa(Isa isa) {
  if (isa <= detect_isa()) return;
  throw UserError(cat("this machine has no ", name(isa), "; its strongest instruction set is ",
                      name(detect_isa()), " (tessera plan takes any)"));
}

}  // namespace tessera::cpu
