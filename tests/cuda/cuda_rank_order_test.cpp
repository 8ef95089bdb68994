// Sums between GPUs in rank order: the bits of the host's communicators, for every dtype and shape
// of their suite; whole steps like those with NCCL's sums, as the emulated one adds in rank order
// too.
#include <cstring>
#include <memory>
#include <thread>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/kernel_launch.h"
#include "backends/cuda/rank_order_sums.h"
#include "comm/thread_channels.h"
#include "ops/collective/collective.h"
#include "tests/comm/collective_oracle.h"
#include "tests/cuda/cuda_fixture.h"

namespace tessera::cuda {
namespace {

// An op of a rank by the backend's kernel, with buffers of its own.
std::vector<std::byte> run_op(CudaBackend& backend, const Op& op, const Mesh& mesh,
                              const TensorType& input, const std::vector<std::byte>& content) {
  const std::vector<TensorType> inputs{input}, outputs = op.infer({inputs, mesh});
  Prepared prepared = backend.kernels().prepare({op, inputs, outputs, mesh, "a sum of the suite"});
  const Launch& launch = std::get<Launch>(prepared);
  CudaDevice& device = backend.device();
  const auto size = [](int64_t bytes) { return std::max<int64_t>(bytes, 1); };
  DeviceBlock from(device, size(input.bytes()), "x"), to(device, size(outputs[0].bytes()), "y");
  DeviceBlock workspace(device, size(launch.workspace_bytes), "workspace");
  const auto guard = device.lock();
  const Driver& driver = device.driver();
  const auto address = [](const void* p) { return reinterpret_cast<CUdeviceptr>(p); };
  if (!content.empty())
    driver.call(driver.copy_to_device, address(from.data()),
                static_cast<const void*>(content.data()), content.size(), device.stream());
  const void* const ins[] = {from.data()};
  void* const outs[] = {to.data()};
  launch.run({ins, outs, workspace.data()});
  device.finish();
  std::vector<std::byte> result(static_cast<size_t>(outputs[0].bytes()));
  if (!result.empty())
    driver.call(driver.copy_to_host, static_cast<void*>(result.data()), address(to.data()),
                result.size(), device.stream());
  return result;
}

class CudaRankOrder : public CudaTest {
 protected:
  void SetUp() override {
    if (!std::getenv("TESSERA_EMULATED_VARIANT"))
      ::setenv("TESSERA_EMULATED_VARIANT", "checked", 1);
    CudaTest::SetUp();
  }
  void check(int world, uint64_t every) {
    reset(1, world);
    const CollectiveTable table(world, every);
    auto hub = std::make_shared<ThreadHub>(world);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < world; ++rank) {
      threads.emplace_back([&, rank] {
        Channels channels = thread_channels(hub, rank, {std::chrono::seconds(60)});
        CudaBackend backend({.gpu = rank,
                             .cublaslt = false,
                             .control = channels.control.get(),
                             .sums = SumOrder::kRanks});
        for (const CollectiveTable::Entry& entry : table.entries)
          check(backend, entry, rank, world);
      });
    }
  }

 private:
  static void check(CudaBackend& backend, const CollectiveTable::Entry& entry, int rank,
                    int world) {
    const CollectiveCase& c = entry.c;
    constexpr int64_t kMost = 1 << 16;  // the emulated GPU looks at every access
    const bool reduces_all = c.action == CommAction::kAllReduce;
    if ((!reduces_all && c.action != CommAction::kReduceScatter) || c.outer * c.inner > kMost ||
        (reduces_all && c.dtype != c.output_dtype) ||
        (!reduces_all && c.reduction == Reduction::kMax))
      return;
    const Mesh mesh({{"shard", world}});
    const AxisSet axes = mesh.all_axes();
    std::unique_ptr<const Op> op;
    TensorType input{{c.outer, reduces_all ? c.inner : world * c.inner}, c.dtype, axes};
    if (reduces_all)
      op = std::make_unique<AllReduceOp>(axes, c.reduction);
    else
      op = std::make_unique<Collective>(CollectiveKind::kReduceScatter, axes, 1, 0, c.output_dtype);
    const auto got = run_op(backend, *op, mesh, input, entry.inputs[static_cast<size_t>(rank)]);
    EXPECT_EQ(got, entry.output(rank)) << describe(c) << " of rank " << rank;
  }
};

TEST_F(CudaRankOrder, GivesTheBitsOfTheHostsCommunicators) {
  check(2, 1);
  check(3, 2);
}

// What is larger than the scratch memory goes piece by piece, in place too.
TEST_F(CudaRankOrder, GivesTheSameBitsInPieces) {
  constexpr int kWorld = 3;
  reset(1, kWorld);
  auto hub = std::make_shared<ThreadHub>(kWorld);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kWorld; ++rank) {
    threads.emplace_back([&, rank] {
      Channels channels = thread_channels(hub, rank, {std::chrono::seconds(60)});
      CudaDevice device(rank);
      NcclCommunicator communicator(device, *channels.control, std::chrono::seconds(60));
      const auto& group = communicator.make_group({{0, 1, 2}});
      constexpr int64_t kCount = 1000, kPiece = 100 * kWorld * 4;
      RankOrderSums sums(device, &communicator, kPiece);
      EXPECT_EQ(sums.reduce_scatter_bytes(kWorld, kCount, DType::kF32), aligned_bytes(kPiece));
      // An all-reduce of 1000: parts of 333 and one element left over.
      CollectiveCase c{.action = CommAction::kAllReduce, .inner = kCount, .seed = 5};
      CommGroup host{.ranks = {0, 1, 2}, .index = rank};
      const auto input = input_of(c, host, rank);
      DeviceBlock x(device, std::ssize(input), "x"),
          scratch(device, sums.all_reduce_bytes(kWorld, kCount, DType::kF32), "scratch");
      const auto guard = device.lock();
      const Driver& driver = device.driver();
      const auto at = reinterpret_cast<CUdeviceptr>(x.data());
      driver.call(driver.copy_to_device, at, static_cast<const void*>(input.data()), input.size(),
                  device.stream());
      sums.all_reduce(group, {.label = "a sum in pieces"}, x.data(), x.data(), kCount,
                      scratch.data());
      device.finish();
      std::vector<std::byte> got(input.size());
      driver.call(driver.copy_to_host, static_cast<void*>(got.data()), at, got.size(),
                  device.stream());
      EXPECT_EQ(got, expected_output(c, host, rank)) << rank;
    });
  }
}

}  // namespace
}  // namespace tessera::cuda
