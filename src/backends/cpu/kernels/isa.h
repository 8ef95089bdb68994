#pragma once
#include <string_view>

namespace tessera::cpu {

// Instruction sets with kernels of their own, weakest first. kAmx is kAvx512 plus rounding to bf16
// in one instruction and bf16 matrix tiles.
enum class Isa { kPortable, kAvx2, kAvx512, kAmx };

// The strongest set that this machine and its operating system offer. The first call asks the
// kernel for permission to use the AMX tile registers.
Isa detect_isa();

// "portable", "avx2", "avx512", "amx".
std::string_view name(Isa isa);
// Inverse of name(); "auto" is detect_isa(). UserError for another word.
Isa isa_from_name(std::string_view text);
// UserError where this machine lacks it. What kernels need can be asked on any machine; only to run
// them takes their instructions.
void require_isa(Isa isa);

// Kernels are written once (isa/*.cpp) and compiled four times, into the namespaces portable, avx2,
// avx512 and, for kAmx, avx512_bf16. These two macros declare such a function and choose one of the
// four at run time.
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
#define TESSERA_SELECT(isa, function)                               \
  ((isa) == ::tessera::cpu::Isa::kAmx      ? &avx512_bf16::function \
   : (isa) == ::tessera::cpu::Isa::kAvx512 ? &avx512::function      \
   : (isa) == ::tessera::cpu::Isa::kAvx2   ? &avx2::function        \
                                           : &portable::function)

}  // namespace tessera::cpu
