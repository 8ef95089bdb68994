// The emulated driver does what CUDA's does, where it is used rightly.
#include <numeric>

#include "tests/cuda/emulated_cuda.h"

namespace tessera::cuda {
namespace {

TEST(EmulatedDriver, AddsTwoVectorsInBothVariants) {
  for (const char* variant : {"checked", "quick"}) {
    EmulatedCuda cuda(variant, 3);
    const CUstream stream = cuda.make_stream();
    const size_t n = 1000;
    std::vector<float> a(n), b(n, 2);
    std::iota(a.begin(), a.end(), 0.0f);
    float *on_a = cuda.upload(a, stream), *on_b = cuda.upload(b, stream);
    auto* c = cuda.allocate<float>(n);
    ASSERT_EQ(cuda.launch("test_add", 4, 256, stream, 0, on_a, on_b, c, static_cast<int>(n)),
              kCudaSuccess);
    const auto sums = cuda.download(c, n, stream);
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(sums[i], a[i] + 2);
    for (float* memory : {on_a, on_b, c}) EXPECT_EQ(cuda.mem_free(cuda.address(memory)), 0);
    EXPECT_EQ(cuda.memory_in_use(0), 0);
  }
}

TEST(EmulatedDriver, WorkIsDoneWhenTheHostWaitsAndNotBefore) {
  EmulatedCuda cuda;
  const CUstream stream = cuda.make_stream();
  auto* on_device = cuda.allocate<int>(1);
  auto* on_host = static_cast<int*>(cuda.pinned(sizeof(int)));
  *on_host = 7;
  EXPECT_EQ(cuda.fill_bytes(cuda.address(on_device), 0, 4, stream), kCudaSuccess);
  EXPECT_EQ(cuda.copy_to_host(on_host, cuda.address(on_device), 4, stream), kCudaSuccess);
  EXPECT_EQ(*on_host, 7);
  EXPECT_EQ(cuda.stream_synchronize(stream), kCudaSuccess);
  EXPECT_EQ(*on_host, 0);
}

}  // namespace
}  // namespace tessera::cuda
