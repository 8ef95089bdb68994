#pragma once
#include <string_view>

namespace tessera::cpu {

// Instruction sets with kernels of their own. kAvx512Bf16 adds rounding to bf16 in one instruction
// and dot products of bf16 pairs, kAmx bf16 matrix tiles. On AArch64 kPortable has the vectors that
// every such processor has, kNeonBf16 rounding to bf16 and products of 2 x 4 by 4 x 2 bf16.
enum class Isa { kPortable, kAvx2, kAvx512, kAvx512Bf16, kAmx, kNeonBf16 };
// Those of the architecture this is compiled for, weakest first: each has the instructions of those
// before it.
#if defined(__aarch64__)
inline constexpr Isa kIsas[] = {Isa::kPortable, Isa::kNeonBf16};
#else
inline constexpr Isa kIsas[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16,
                                Isa::kAmx};
#endif

// The strongest set that this machine and its operating system offer. The first call asks the
// kernel for permission to use the AMX tile registers.
Isa detect_isa();
// The set to use where none is asked for: the strongest, but kAvx512 for kAvx512Bf16 on processors
// of others than AMD. Intel's cores multiply bf16 pairs half as often as f32 numbers, so that only
// the rounding is gained. By vendor and not by timing: a machine always gives the same bits.
Isa default_isa();

// "portable", "avx2", "avx512", "avx512_bf16", "amx", "neon_bf16".
std::string_view name(Isa isa);
// Inverse of name(); "auto" is default_isa(). UserError for a word that names none of kIsas.
Isa isa_from_name(std::string_view text);
// UserError where this machine lacks it. What kernels need can be asked on any machine; only to run
// them takes their instructions.
void require_isa(Isa isa);

// Kernels are written once (isa/*.cpp) and compiled four times, into the namespaces portable, avx2,
// avx512 and, for kAvx512Bf16 and kAmx, avx512_bf16; on AArch64 twice, into portable and neon_bf16.
// These two macros declare such a function and choose one of them at run time.
#if defined(__aarch64__)
#define TESSERA_DECLARE_PER_ISA(signature) \
  namespace portable {                     \
  signature;                               \
  }                                        \
  namespace neon_bf16 {                    \
  signature;                               \
  }
#define TESSERA_SELECT(isa, function) \
  ((isa) == ::tessera::cpu::Isa::kNeonBf16 ? &neon_bf16::function : &portable::function)
#else
#define TESSERA_DECLARE_PER_ISA(signature) \
  namespace portable {                     \
  signature;                               \
  }                                        \
  namespace avx2 {                         \
  signature;                               \
  }                                        \
  namespace avx512 {                       \
  signature;                               \
  }                                        \
  namespace avx512_bf16 {                  \
  signature;                               \
  }
#define TESSERA_SELECT(isa, function)                                 \
  ((isa) >= ::tessera::cpu::Isa::kAvx512Bf16 ? &avx512_bf16::function \
   : (isa) == ::tessera::cpu::Isa::kAvx512   ? &avx512::function      \
   : (isa) == ::tessera::cpu::Isa::kAvx2     ? &avx2::function        \
                                             : &portable::function)
#endif

}  // namespace tessera::cpu
