// Waits of a stream for another's work are left out of a step, one in turn: the emulated GPU finds
// that nothing puts the accesses in order, or there are none, and the step gives the same bits.
#include <algorithm>
#include <thread>

#include "backends/cuda/cuda_backend.h"
#include "options/run_config.h"
#include "tests/comm/thread_channels.h"
#include "tests/cuda/cuda_fixture.h"
#include "tests/programs/tiny_model.h"

namespace tessera::cuda {
namespace {

constexpr int64_t kRows = 2, kLength = 8;

class CudaWaitsTest : public CudaTest {
 protected:
  void SetUp() override {
    ::setenv("TESSERA_EMULATED_VARIANT", "checked", 1);
    CudaTest::SetUp();
  }

  // The state after a step of all ranks, each on its thread and GPU.
  std::vector<uint64_t> step(int world, bool far_tier, int64_t left_out) {
    const SumOrder sums = sums_;
    reset(3, world);
    leave_out_wait(left_out);
    leave_out_fence(without_fence_);
    auto hub = std::make_shared<ThreadHub>(world);
    std::vector<uint64_t> states(static_cast<size_t>(world));
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < world; ++rank) {
      threads.emplace_back([&, rank] {
        Channels channels = thread_channels(hub, rank, {std::chrono::seconds(60)});
        CudaBackend backend({.gpu = rank,
                             .graphs = false,
                             .cublaslt = false,
                             .control = world > 1 ? channels.control.get() : nullptr,
                             .sums = sums});
        states[static_cast<size_t>(rank)] = step_of(backend, rank, world, far_tier);
      });
    }
    threads.clear();
    return states;
  }

  void each_left_out(int world, bool far_tier, int64_t runs) {
    const std::vector<uint64_t> right = step(world, far_tier, 0);
    EXPECT_TRUE(findings().empty());
    const int64_t count = waits();
    ASSERT_GT(count, 0);
    // To begin on another lane is to come behind all that compute has done, also where nothing of
    // that is touched.
    expect_found(right, count, runs, "wait", [&](int64_t n) { return step(world, far_tier, n); });
  }

  // Fences of a step whose sums read peers' memory.
  void each_fence_left_out(int world, int64_t runs) {
    sums_ = SumOrder::kRanks;
    const std::vector<uint64_t> right = step(world, false, 0);
    EXPECT_TRUE(findings().empty());
    const int64_t count = fences();
    ASSERT_GT(count, 4);
    expect_found(right, count, runs, "fence", [&](int64_t n) {
      without_fence_ = n;
      return step(world, false, 0);
    });
  }

  SumOrder sums_ = SumOrder::kLibrary;
  int64_t without_fence_ = 0;

 private:
  // Steps without the n-th of `count`, for some n: each is right all the same, or found, and a
  // third or more are found.
  template <class Step>
  void expect_found(const std::vector<uint64_t>& right, int64_t count, int64_t runs,
                    const char* what, Step step_without) {
    int64_t tried = 0, found = 0;
    for (int64_t n = 1; n <= count; n += std::max<int64_t>(1, count / runs)) {
      const std::vector<uint64_t> states = step_without(n);
      const bool is_found = !findings().empty();
      EXPECT_TRUE(is_found || states == right) << what << " " << n << " of " << count;
      tried++;
      found += is_found;
    }
    EXPECT_GE(found * 3, tried);
  }

  static uint64_t step_of(Backend& backend, int rank, int world, bool far_tier) {
    RunConfig config;
    config.sharding_strategy = "full_shard";
    config.max_context_width = kLength;
    ProgramOptions options = tiny_programs(kRows, kLength, DType::kF32);
    if (world > 1) options.parallelism = make_parallelism(config, tiny_model(), world, world);
    options.batch = options.validation_batch = kRows / options.parallelism.data_ranks();
    if (far_tier) {
      options.residency.offload = true;
      options.residency.share_numerator = 0;
      options.far_state = true;
    }
    Session session(build_programs(model_builder(tiny_model()), options), backend, rank);
    session.allocate();
    ThreadPool pool(1);
    session.initialize(7, pool);
    session.set_decay(0.1, false);
    const int64_t first = options.parallelism.data_rank(rank) * options.batch;
    const TinyBatch batch(TinyBatch(kRows, kLength, 1), kLength, first, first + options.batch);
    session.step(std::vector{batch.view()}, 1e-2, 0.5);
    return fingerprint_of(session);
  }
};

TEST_F(CudaWaitsTest, OfExchangesBetweenRanks) { each_left_out(2, false, 5); }
TEST_F(CudaWaitsTest, OfSumsInRankOrder) {
  sums_ = SumOrder::kRanks;
  each_left_out(2, false, 3);
}
TEST_F(CudaWaitsTest, OfRanksThatReadEachOthersMemory) { each_fence_left_out(2, 5); }
TEST_F(CudaWaitsTest, OfCopiesToTheFarTier) { each_left_out(1, true, 5); }

}  // namespace
}  // namespace tessera::cuda
