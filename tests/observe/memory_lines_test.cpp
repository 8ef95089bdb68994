#include "observe/memory_lines.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace tessera {
namespace {

TEST(MemoryLines, AreThoseThatOtherProgramsRead) {
  constexpr int64_t kMiB = 1 << 20;
  const MemoryReport r{.step = 3,
                       .tag = "Loss",
                       .rank = 2,
                       .device = "cpu",
                       .allocated = 512 * kMiB,
                       .peak_allocated = 768 * kMiB,
                       .reserved = 1024 * kMiB,
                       .host_tensors = 1024 * kMiB,
                       .resident = 1280 * kMiB,
                       .resident_change = -256 * kMiB,
                       .first_resident = 64 * kMiB};
  const std::string of = cat("(torch, rank, device) = (", TESSERA_VERSION, ", 2, cpu), ");
  EXPECT_EQ(device_memory_line(r),
            cat("[GPU MEMORY]@0003 ", of,
                "(alloc, max_alloc, cache, max_cache) = ( 0.5000,  0.7500,  1.0000,  1.0000) GB. "
                "[Loss      ]"));
  EXPECT_EQ(host_memory_line(r),
            cat("[CPU MEMORY]@0003 ", of,
                "(torch tensor, mem, change since last measurement, base) = ( 1.0000,  1.2500, "
                "-0.2500,  0.0625): Loss"));
}

}  // namespace
}  // namespace tessera
