// Kernels as host code: mistakes that are planted in them are found, in every order that is tried,
// and without them there is no finding.
#include <algorithm>
#include <numeric>

#include "tests/cuda/emulated_cuda.h"

namespace tessera::cuda {
namespace {

constexpr uint64_t kSeeds[] = {0, 1, 2, 3, 17, 4711};

std::vector<float> numbers(size_t n) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i % 13) - 5;
  return values;
}

// A mistake of a kernel and words of what has to be found.
struct Planted {
  int mistake;
  const char* words;
};

// Runs `body` for each seed and mistake. A launch that cannot go on is an error of the device.
template <class Body>
void each_planted(std::initializer_list<Planted> list, Body body) {
  for (const uint64_t seed : kSeeds) {
    for (const Planted& planted : list) {
      SCOPED_TRACE(testing::Message() << "mistake " << planted.mistake << ", seed " << seed);
      EmulatedCuda cuda("checked", seed);
      body(cuda, planted.mistake);
      if (planted.mistake) cuda.expect_found(planted.words);
    }
  }
}

TEST(EmulatedKernels, BarriersAndShufflesOfABlock) {
  each_planted(
      {{0, ""},
       {1, "shared memory: race: reads what another thread writes"},
       {2, "shared memory: race: writes what another thread reads"},
       {3, "barrier: threads of a block wait at different ones"},
       {4, "barrier: some threads of the block have ended"},
       {5, "warp: lanes wait for others of their mask that do not come"},
       {6, "shuffle: takes a value from a lane that is not there"},
       {7, "barrier: threads of a block wait at different ones"}},
      [](EmulatedCuda& cuda, int mistake) {
        const CUstream stream = cuda.make_stream();
        const auto x = numbers(3 * 256);
        const float* on_x = cuda.upload(x, stream);
        auto* sums = cuda.allocate<float>(3);
        EXPECT_EQ(cuda.launch("test_block_sum", 3, 256, stream, 0, on_x, sums, mistake), 0);
        if (mistake) {
          cuda.stream_synchronize(stream);
          return;
        }
        const auto result = cuda.download(sums, 3, stream);
        for (size_t b = 0; b < 3; ++b) {
          EXPECT_EQ(result[b],
                    std::accumulate(x.begin() + static_cast<ptrdiff_t>(b * 256),
                                    x.begin() + static_cast<ptrdiff_t>(b * 256 + 256), 0.0f));
        }
      });
}

TEST(EmulatedKernels, AsynchronousCopies) {
  constexpr const char* kPending = "touches bytes that an asynchronous copy still writes";
  each_planted({{0, ""},
                {1, kPending},
                {2, kPending},
                {3, "shared memory: race: reads what another thread writes"},
                {4, "race: writes what another thread reads"},
                {5, "access past the shared memory that the launch gives"},
                {6, "cp.async: an address is not a multiple of 16 bytes"},
                {7, kPending},
                {8, "shared memory: reads what nobody has written"}},
               [](EmulatedCuda& cuda, int mistake) {
                 const CUstream stream = cuda.make_stream();
                 std::vector<uint32_t> x((5 * 64 + 1) * 4);
                 std::iota(x.begin(), x.end(), 0u);
                 const uint32_t* on_x = cuda.upload(x, stream);
                 auto* y = cuda.allocate<uint32_t>(5 * 64 * 4);
                 EXPECT_EQ(cuda.launch("test_tiles", 1, 64, stream, 2048, on_x, y,
                                       mistake == 8 ? 1 : 5, mistake),
                           0);
                 if (mistake) {
                   cuda.stream_synchronize(stream);
                   return;
                 }
                 const auto result = cuda.download(y, 5 * 64 * 4, stream);
                 for (uint32_t n = 0; n < 5 * 64; ++n) {
                   EXPECT_EQ(result[n * 4 + 1], (n / 64 * 64 + 63 - n % 64) * 4 + 1);
                 }
               });
}

TEST(EmulatedKernels, MemoryOfTheDevice) {
  float of_the_host = 0;
  each_planted(
      {{0, ""},
       {1, "access past the end of device memory"},
       {2, "race: writes what another thread writes"},
       {3, "race: reads what another thread writes"},
       {4, "reads what nobody has written"},
       {5, "an address is not aligned to its type"},
       {6, "an index is outside its array"},
       {7, "access to memory that is in no buffer of the device"},
       {8, "race: writes what another thread writes"}},
      [&](EmulatedCuda& cuda, int mistake) {
        const CUstream stream = cuda.make_stream();
        const auto x = numbers(500);
        const float* on_x = cuda.upload(x, stream);
        auto *y = cuda.allocate<float>(500), *other = cuda.allocate<float>(500);
        if (mistake == 7) other = &of_the_host;
        EXPECT_EQ(cuda.launch("test_global", 4, 128, stream, 0, on_x, y, 500, other, mistake), 0);
        const CUresult result = cuda.stream_synchronize(stream);
        EXPECT_EQ(result == kCudaErrorIllegalAddress, mistake == 1 || mistake == 7);
        if (mistake) return;
        const auto doubled = cuda.download(y, 500, stream);
        for (size_t n = 0; n < 500; ++n) EXPECT_EQ(doubled[n], 2 * x[n]);
      });
  EXPECT_EQ(of_the_host, 0);
}

TEST(EmulatedKernels, NoMemoryIsTouchedOnceItIsFreed) {
  EmulatedCuda cuda;
  const CUstream stream = cuda.make_stream();
  const float* x = cuda.upload(numbers(500), stream);
  auto *y = cuda.allocate<float>(500), *freed = cuda.allocate<float>(500);
  EXPECT_EQ(cuda.mem_free(cuda.address(freed)), 0);
  EXPECT_EQ(cuda.launch("test_global", 4, 128, stream, 0, x, y, 500, freed, 7), 0);
  EXPECT_EQ(cuda.stream_synchronize(stream), kCudaErrorIllegalAddress);
  cuda.expect_found("which is freed");
}

TEST(EmulatedKernels, GuardedBytesAroundABufferInAnArena) {
  EmulatedCuda cuda;
  const CUstream stream = cuda.make_stream();
  auto* arena = cuda.allocate<float>(1024);
  EXPECT_EQ(cuda.fill_bytes(cuda.address(arena), 0, 4096, stream), 0);
  cuda.guard(arena + 500, 4, 1);
  auto* y = cuda.allocate<float>(500);
  EXPECT_EQ(cuda.launch("test_global", 4, 128, stream, 0, arena, y, 500, y, 0), 0);
  EXPECT_EQ(cuda.stream_synchronize(stream), 0);
  EXPECT_EQ(cuda.findings(), 0);
  EXPECT_EQ(cuda.launch("test_global", 4, 128, stream, 0, arena, y, 500, y, 1), 0);
  EXPECT_EQ(cuda.stream_synchronize(stream), 0);
  cuda.expect_found("touches guarded bytes");
}

TEST(EmulatedKernels, IntegerAtomics) {
  each_planted({{0, ""}, {1, "race:"}, {2, "race:"}}, [](EmulatedCuda& cuda, int mistake) {
    const CUstream stream = cuda.make_stream();
    std::vector<int> x(1000);
    for (int i = 0; i < 1000; ++i) x[static_cast<size_t>(i)] = i * 7919 % 1000;
    const int* on_x = cuda.upload(x, stream);
    int* counts = cuda.upload(std::vector<int>{0, 0, -1}, stream);
    EXPECT_EQ(
        cuda.launch("test_count", 11, 96, stream, 0, on_x, 1000, 400, counts, counts + 2, mistake),
        0);
    const auto result = cuda.download(counts, 3, stream);
    if (mistake == 0) {
      EXPECT_EQ(result[0], std::count_if(x.begin(), x.end(), [](int v) { return v > 400; }));
      EXPECT_EQ(result[2], 999);
    }
  });
}

TEST(EmulatedKernels, LanesOfAWarpAreOrderedByBarriersOnly) {
  each_planted({{0, ""}, {1, "race: reads"}, {2, "race: reads"}},
               [](EmulatedCuda& cuda, int mistake) {
                 const CUstream stream = cuda.make_stream();
                 const auto x = numbers(32);
                 const float* on_x = cuda.upload(x, stream);
                 auto* y = cuda.allocate<float>(32);
                 EXPECT_EQ(cuda.launch("test_warp", 1, 32, stream, 0, on_x, y, mistake), 0);
                 const auto result = cuda.download(y, 32, stream);
                 if (mistake) return;
                 for (size_t n = 0; n < 32; ++n) EXPECT_EQ(result[n], x[31 - n]);
               });
}

TEST(EmulatedKernels, NeighboursMayWriteBytesOfOneWord) {
  for (const uint64_t seed : kSeeds) {
    EmulatedCuda cuda("checked", seed);
    const CUstream stream = cuda.make_stream();
    const uint8_t* from = cuda.upload(std::vector<uint8_t>(64, 9), stream);
    auto* bytes = cuda.allocate<uint8_t>(64);
    auto* pairs = cuda.allocate<uint16_t>(128);
    EXPECT_EQ(cuda.launch("test_bytes", 1, 64, stream, 0, bytes, pairs, from), 0);
    const auto result = cuda.download(pairs, 128, stream);
    for (size_t n = 0; n < 64; ++n) EXPECT_EQ(result[64 + n], 63 - n + 10);
  }
}

// A kernel that goes on for ever in another's place shows in its results: the seed decides them.
TEST(EmulatedKernels, TheSameSeedIsTheSameOrder) {
  const auto run = [](uint64_t seed) {
    EmulatedCuda cuda("quick", seed);
    const CUstream stream = cuda.make_stream();
    const float* x = cuda.upload(numbers(500), stream);
    auto* y = cuda.allocate<float>(500);
    EXPECT_EQ(cuda.fill_bytes(cuda.address(y), 0, 2000, stream), 0);
    EXPECT_EQ(cuda.launch("test_global", 4, 128, stream, 0, x, y, 500, y, 3), 0);
    return cuda.download(y, 500, stream);
  };
  EXPECT_EQ(run(5), run(5));
  EXPECT_NE(run(5), run(6));
}

}  // namespace
}  // namespace tessera::cuda
