#include "backends/cuda/kernel_facts.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"

namespace tessera::cuda {

// Of the source that the build makes of kernel_facts.txt.
extern const std::string_view kCarriedKernelFacts;

namespace {

constexpr int kFactCapabilities[] = {80, 90};
constexpr size_t kFactsEach = 4;

std::map<std::string, KernelFacts, std::less<>> read_facts(std::string_view text) {
  std::map<std::string, KernelFacts, std::less<>> all;
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    if (!line.starts_with("kernel ")) continue;
    const std::vector<std::string_view> words = split(line, ' ');
    TESSERA_CHECK(words.size() == 3 + kFactsEach * std::size(kFactCapabilities), std::string(line));
    size_t next = 2;
    auto number = [&] {
      const auto value = parse_number<int>(words[next++]);
      TESSERA_CHECK(value && *value >= 0, std::string(line));
      return *value;
    };
    KernelFacts& facts = all[std::string(words[1])];
    facts.most_threads = number();
    for (int capability : kFactCapabilities) {
      CompiledKernel& kernel = facts.compiled[capability];
      kernel.registers = number();
      kernel.shared_bytes = number();
      kernel.spilled_bytes = number();
      kernel.tensor_instructions = number();
    }
  }
  return all;
}

}  // namespace

const std::map<std::string, KernelFacts, std::less<>>& kernel_facts() {
  static const auto& facts = *new auto(read_facts(kCarriedKernelFacts));
  return facts;
}

Occupancy occupancy(int capability, const CompiledKernel& kernel, int threads, int given_shared) {
  // Of a multiprocessor: registers, which warps take in pieces, shared memory, of which a block
  // takes some beside its own, warps and blocks.
  constexpr int kRegisters = 65536, kPiece = 256, kOwnShared = 1024, kWarps = 64, kBlocks = 32,
                kWarp = 32;
  const int shared = capability >= 90 ? 233472 : 167936;
  const int warps = (threads + kWarp - 1) / kWarp;
  const int of_warp = (kernel.registers * kWarp + kPiece - 1) / kPiece * kPiece;
  Occupancy result;
  result.blocks = std::min({of_warp > 0 ? kRegisters / of_warp / warps : kBlocks,
                            shared / (kernel.shared_bytes + given_shared + kOwnShared),
                            kWarps / warps, kBlocks});
  result.share = static_cast<double>(result.blocks * warps) / kWarps;
  return result;
}

}  // namespace tessera::cuda
