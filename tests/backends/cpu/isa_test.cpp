#include "backends/cpu/kernels/isa.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "base/error.h"

namespace tessera::cpu {
namespace {

TEST(InstructionSets, HaveNames) {
  for (Isa isa : kIsas) EXPECT_EQ(isa_from_name(name(isa)), isa);
  EXPECT_EQ(isa_from_name("auto"), default_isa());
  EXPECT_LE(default_isa(), detect_isa());
  EXPECT_THROW(isa_from_name("sse9"), UserError);
}

TEST(InstructionSets, DotProductsOfBf16AreTheDefaultOnAmdOnly) {
  std::ifstream file("/proc/cpuinfo");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const bool amd = text.find("AuthenticAMD") != std::string::npos;
  EXPECT_EQ(default_isa(), detect_isa() == Isa::kAvx512Bf16 && !amd ? Isa::kAvx512 : detect_isa());
}

TEST(InstructionSets, OfAnotherMachineAreRefused) {
  EXPECT_NO_THROW(require_isa(default_isa()));
  const Isa strongest = std::end(kIsas)[-1];
  if (detect_isa() == strongest) GTEST_SKIP() << "this machine has all of them";
  EXPECT_THROW(require_isa(strongest), UserError);
}

}  // namespace
}  // namespace tessera::cpu
