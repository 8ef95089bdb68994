// Sums between GPUs in rank order: the bits of the host's communicators, for every dtype and shape
// of their suite; whole steps like those with NCCL's sums, as the emulated one adds in rank order
// too. Those of CudaRankOrder run on this machine's GPUs as well (cuda_fixture.h), two or more.
#include <algorithm>
#include <barrier>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/kernel_launch.h"
#include "backends/cuda/rank_order_sums.h"
#include "ops/collective/collective.h"
#include "tests/comm/collective_oracle.h"
#include "tests/comm/thread_channels.h"
#include "tests/cuda/cuda_fixture.h"

namespace tessera::cuda {
namespace {

std::vector<int> all_ranks(int world) {
  std::vector<int> ranks(static_cast<size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// An op of a rank by the backend's kernel, with buffers of its own, which the other ranks may read.
std::vector<std::byte> run_op(CudaBackend& backend, const Op& op, const Mesh& mesh,
                              const TensorType& input, const std::vector<std::byte>& content) {
  const std::vector<TensorType> inputs{input}, outputs = op.infer({inputs, mesh});
  Prepared prepared = backend.kernels().prepare({op, inputs, outputs, mesh, "a sum of the suite"});
  const Launch& launch = std::get<Launch>(prepared);
  CudaDevice& device = backend.device();
  const auto size = [](int64_t bytes) { return std::max<int64_t>(bytes, 1); };
  DeviceBlock from(device, size(input.bytes()), "x"), to(device, size(outputs[0].bytes()), "y");
  DeviceBlock workspace(device, size(launch.workspace_bytes), "workspace");
  const std::vector<int> ranks = all_ranks(mesh.world_size());
  if (PeerMemory* peers = backend.communicator()->peers()) {
    peers->share({{ranks, from.data(), from.bytes()}, {ranks, workspace.data(), workspace.bytes()}},
                 0);
    EXPECT_TRUE(peers->of(ranks, from.data()));
  }
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
  void check(int world, uint64_t every, bool peers) {
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
                             .sums = SumOrder::kRanks,
                             .peers = peers});
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
  check(2, 1, false);
  if (has_gpus(3)) check(3, 2, false);
}

TEST_F(CudaRankOrder, GivesTheSameBitsFromPeersMemory) {
  check(2, 1, true);
  if (has_gpus(3)) check(3, 2, true);
}

// Ranks on a device each, with an x of the suite and what sums take.
class CudaRankOrderSums : public CudaRankOrder {
 protected:
  static constexpr int kWorld = 3;
  static constexpr int64_t kCount = 1000, kPiece = 100 * kWorld * 4;
  struct Rank {
    CudaDevice& device;
    NcclCommunicator& communicator;
    const NcclCommunicator::Group& group;
    RankOrderSums& sums;
    DeviceBlock &x, &scratch;
    std::vector<std::byte> input, output;  // of an all-reduce of 1000: 333 each, one left over

    void fill() { device.fill(x.data(), x.bytes()); }
    void put() {
      const Driver& driver = device.driver();
      driver.call(driver.copy_to_device, at(), static_cast<const void*>(input.data()), input.size(),
                  device.stream());
    }
    std::vector<std::byte> get() {
      const Driver& driver = device.driver();
      std::vector<std::byte> got(input.size());
      device.finish();
      driver.call(driver.copy_to_host, static_cast<void*>(got.data()), at(), got.size(),
                  device.stream());
      return got;
    }
    void expect_sum() {
      const auto guard = device.lock();
      put();
      sums.all_reduce(group, {.label = "a sum"}, x.data(), x.data(), kCount, scratch.data());
      EXPECT_EQ(get(), output) << "of rank " << group.index;
    }
    CUdeviceptr at() const { return reinterpret_cast<CUdeviceptr>(x.data()); }
  };
  template <class Work>
  void on_ranks(bool peers, const Work& work) {
    auto hub = std::make_shared<ThreadHub>(kWorld);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < kWorld; ++rank) {
      threads.emplace_back([&, rank] {
        Channels channels = thread_channels(hub, rank, {std::chrono::seconds(60)});
        CudaDevice device(rank);
        NcclCommunicator communicator(device, *channels.control, std::chrono::seconds(60));
        const auto& group = communicator.make_group({all_ranks(kWorld)});
        RankOrderSums sums(device, &communicator, kPiece);
        const CollectiveCase c{.action = CommAction::kAllReduce, .inner = kCount, .seed = 5};
        const CommGroup host{.ranks = all_ranks(kWorld), .index = rank};
        std::vector<std::byte> input = input_of(c, host, rank);
        DeviceBlock x(device, std::ssize(input), "x"),
            scratch(device, sums.all_reduce_bytes(kWorld, kCount, DType::kF32), "scratch");
        if (peers) {
          communicator.reach_peers();
          communicator.peers()->share({{group.ranks, x.data(), x.bytes()}}, 7);
        }
        Rank own{device,
                 communicator,
                 group,
                 sums,
                 x,
                 scratch,
                 std::move(input),
                 expected_output(c, host, rank)};
        work(own);
      });
    }
  }
};

// What is larger than the scratch memory goes piece by piece, in place too; where it lies, as one.
TEST_F(CudaRankOrderSums, GiveTheSameBitsInPieces) {
  for (const bool peers : {false, true}) {
    for (const uint64_t seed : {1, 2, 3}) {
      reset(seed, kWorld);
      on_ranks(peers, [&](Rank& r) {
        EXPECT_EQ(r.sums.reduce_scatter_bytes(kWorld, kCount, DType::kF32), aligned_bytes(kPiece));
        r.expect_sum();
      });
      EXPECT_TRUE(findings().empty());
    }
  }
}

// Without the first fence a rank reads what another has not put there yet, without the second one
// the other puts the next there too early.
TEST_F(CudaRankOrderSums, EachFenceThatIsLeftOutIsFound) {
  for (const uint64_t seed : {1, 2, 3}) {
    for (const int left_out : {0, 1, 2}) {
      SCOPED_TRACE(cat("fence ", left_out, ", seed ", seed));
      reset(seed, kWorld);
      leave_out_fence(left_out);
      std::barrier begun(kWorld);
      on_ranks(true, [&](Rank& r) {
        DeviceBlock y(r.device, r.x.bytes(), "y");
        {
          const auto guard = r.device.lock();
          r.fill();
          r.sums.reduce_scatter(r.group, {.label = "a sum"}, r.x.data(), y.data(), kCount / kWorld,
                                r.scratch.data());
          r.fill();
        }
        begun.arrive_and_wait();  // what the host has waited for is in order
        const auto guard = r.device.lock();
        r.device.finish();
      });
      EXPECT_EQ(fences(), 2);
      const std::vector<std::string> texts = findings();
      const bool found = std::any_of(texts.begin(), texts.end(), [](const std::string& text) {
        return text.starts_with("order: ") && text.find("_apart on ") != std::string::npos;
      });
      EXPECT_EQ(found, left_out != 0);
    }
  }
}

// Ranks that have laid out their memory in different ways go another way, all of them.
TEST_F(CudaRankOrderSums, ReadPeersMemoryOnlyWhereItIsAlike) {
  reset(1, kWorld);
  on_ranks(true, [&](Rank& r) {
    PeerMemory& peers = *r.communicator.peers();
    EXPECT_TRUE(peers.of(r.group.ranks, r.x.data()));
    EXPECT_FALSE(peers.of(r.group.ranks, r.scratch.data()));
    EXPECT_FALSE(peers.of({r.group.index}, r.x.data()));
    peers.share({{r.group.ranks, r.x.data(), r.x.bytes()}}, r.group.index == 1 ? 8 : 7);
    EXPECT_FALSE(peers.of(r.group.ranks, r.x.data()));
    r.expect_sum();
  });
}

TEST_F(CudaRankOrderSums, GoThroughNcclWhereDevicesDoNotReachEachOther) {
  reset(1, kWorld);
  refuse_peers();
  on_ranks(true, [&](Rank& r) {
    EXPECT_FALSE(r.communicator.peers()->of(r.group.ranks, r.x.data()));
    r.expect_sum();
  });
}

// Not before the others have given it up, which they do when they next make something known.
TEST_F(CudaRankOrderSums, MemoryThatOthersReachIsFreedLate) {
  reset(1, kWorld);
  on_ranks(true, [&](Rank& r) {
    auto block = std::make_unique<DeviceBlock>(r.device, 640, "a block");
    PeerMemory& peers = *r.communicator.peers();
    const int64_t before = r.device.allocated_bytes();
    peers.share({{r.group.ranks, block->data(), 640}}, 1);
    block.reset();
    EXPECT_EQ(r.device.allocated_bytes(), before);
    peers.share({{r.group.ranks, r.x.data(), r.x.bytes()}}, 7);
    EXPECT_EQ(r.device.allocated_bytes(), before - 640);
  });
}

}  // namespace
}  // namespace tessera::cuda
