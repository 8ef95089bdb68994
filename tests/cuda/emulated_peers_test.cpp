// Memory of other devices: who may touch it, what exchanges put in order between ranks, and memory
// of other processes. Mistakes are planted and have to be found; without them nothing is found.
#include <sys/mman.h>

#include <atomic>
#include <barrier>
#include <new>
#include <thread>

#include "tests/cuda/rank_processes.h"

namespace tessera::cuda {
namespace {

TEST(EmulatedPeers, KernelsReachOtherDevicesWhereThatIsEnabled) {
  for (const bool enabled : {false, true}) {
    EmulatedCuda cuda("checked", 1, 2);
    const CUstream first = cuda.make_stream();
    float* x = cuda.upload(std::vector<float>(100, 1), first);
    EXPECT_EQ(cuda.stream_synchronize(first), 0);
    cuda.use_device(1);
    int can = 0;
    EXPECT_EQ(cuda.device_can_access_peer(&can, 1, 0), 0);
    EXPECT_EQ(can, 1);
    CUcontext peer = nullptr;
    EXPECT_EQ(cuda.primary_context_retain(&peer, 0), 0);
    if (enabled) {
      EXPECT_EQ(cuda.enable_peer_access(peer, 0), 0);
      EXPECT_EQ(cuda.enable_peer_access(peer, 0), kCudaErrorPeerAccessAlreadyEnabled);
    }
    const CUstream second = cuda.make_stream();
    auto* y = cuda.allocate<float>(100);
    EXPECT_EQ(cuda.launch("test_add", 1, 128, second, 0, x, x, y, 100), 0);
    EXPECT_EQ(cuda.download(y, 100, second), std::vector<float>(100, 2));
    if (!enabled) cuda.expect_found("touches memory of another device without access to it");
    EXPECT_EQ(cuda.primary_context_release(0), 0);
  }
}

TEST(EmulatedPeers, AccessIsToAnotherDeviceThatHasAContext) {
  EmulatedCuda cuda("checked", 1, 2);
  CUcontext own = nullptr, peer = nullptr;
  EXPECT_EQ(cuda.primary_context_retain(&own, 0), 0);
  EXPECT_EQ(cuda.enable_peer_access(own, 0), kCudaErrorInvalidContext);
  cuda.expect_found("not the context of another device");
  EXPECT_EQ(cuda.primary_context_retain(&peer, 1), 0);
  EXPECT_EQ(cuda.primary_context_release(1), 0);
  EXPECT_EQ(cuda.enable_peer_access(peer, 0), kCudaErrorInvalidContext);
  cuda.expect_found("not the context of another device");
  EXPECT_EQ(cuda.primary_context_release(0), 0);
}

// Two ranks, threads with a device each: each writes its x, reads that of both and writes its own
// again, with an exchange before reading and one behind it. By hand and as a graph.
enum class Mistake { kNone, kFirstFence, kSecondFence, kBySend, kGathersInto };

void read_each_other(EmulatedCuda& cuda, Mistake mistake, bool graph) {
  NcclFunctions nccl(cuda);
  float* x[2] = {};
  std::barrier meet(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      cuda.use_device(rank);
      const CUstream stream = cuda.make_stream();
      ncclComm* comm = nullptr;
      ncclConfig config;
      config.blocking = 0;
      nccl.comm_init_rank_config(&comm, 2, nccl.id, rank, &config);
      ASSERT_TRUE(nccl.settle(comm));
      x[rank] = cuda.upload(part(rank, 100), stream);
      int* word = cuda.upload(std::vector<int>{0}, stream);
      int* taken = cuda.upload(std::vector<int>{0}, stream);
      auto* y = cuda.allocate<float>(100);
      EXPECT_EQ(cuda.stream_synchronize(stream), 0);
      meet.arrive_and_wait();
      CUcontext peer = nullptr;
      EXPECT_EQ(cuda.primary_context_retain(&peer, 1 - rank), 0);
      EXPECT_EQ(cuda.enable_peer_access(peer, 0), 0);
      const auto fence = [&](bool by_send) {
        if (!by_send) {
          EXPECT_EQ(nccl.all_reduce(word, word, 1, kNcclInt32, kNcclSum, comm, stream), 0);
          return;
        }
        // Only from rank 0 to rank 1: rank 0 hears nothing of rank 1.
        nccl.group_start();
        if (rank == 0) nccl.send(word, 1, kNcclInt32, 1, comm, stream);
        if (rank == 1) nccl.receive(taken, 1, kNcclInt32, 0, comm, stream);
        nccl.group_end();
      };
      const auto work = [&] {
        EXPECT_EQ(cuda.launch("test_add", 1, 128, stream, 0, x[rank], x[rank], x[rank], 100), 0);
        if (mistake != Mistake::kFirstFence) fence(mistake == Mistake::kBySend);
        EXPECT_EQ(cuda.launch("test_add", 1, 128, stream, 0, x[0], x[1], y, 100), 0);
        if (mistake == Mistake::kGathersInto) {  // an exchange that writes is no fence for itself
          nccl.all_gather(x[rank] + 50 * rank, x[rank], 50, kNcclFloat32, comm, stream);
        } else if (mistake != Mistake::kSecondFence) {
          fence(false);
        }
        EXPECT_EQ(cuda.fill_bytes(cuda.address(x[rank]), 0, 400, stream), 0);
      };
      if (graph) {
        const CUgraphExec executable = cuda.captured(stream, work);
        for (int n = 0; n < 2; ++n) EXPECT_EQ(cuda.graph_launch(executable, stream), 0);
      } else {
        work();
      }
      meet.arrive_and_wait();  // what the host has waited for is in order
      EXPECT_EQ(cuda.stream_synchronize(stream), 0);
      if (mistake == Mistake::kNone && !graph) {
        const auto sums = cuda.download(y, 100, stream);
        for (size_t i = 0; i < 100; ++i) EXPECT_EQ(sums[i], 4 * static_cast<float>(i + 1) + 200);
      }
      meet.arrive_and_wait();
      EXPECT_EQ(cuda.primary_context_release(1 - rank), 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(EmulatedPeers, ExchangesPutRanksInOrder) {
  for (const uint64_t seed : {1, 2, 3, 4711}) {
    for (const bool graph : {false, true}) {
      for (const Mistake mistake : {Mistake::kNone, Mistake::kFirstFence, Mistake::kSecondFence,
                                    Mistake::kBySend, Mistake::kGathersInto}) {
        SCOPED_TRACE(testing::Message()
                     << "mistake " << static_cast<int>(mistake) << ", seed " << seed << graph);
        EmulatedCuda cuda("checked", seed, 2);
        read_each_other(cuda, mistake, graph);
        if (mistake != Mistake::kNone) cuda.expect_found("order: ");
      }
    }
  }
}

// Memory of one process that another opens, with what processes tell each other besides.
class EmulatedPeerProcesses : public RankProcesses {
 protected:
  struct Shared {
    CUipcMemHandle handle;
    std::atomic<int> step;
  };
  void SetUp() override {
    void* place =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(place, MAP_FAILED);
    shared_ = new (place) Shared{};
  }
  void TearDown() override { ::munmap(shared_, sizeof(Shared)); }
  // Both ranks have come so far.
  void meet() {
    const int round = ++rounds_;
    shared_->step++;
    while (shared_->step < 2 * round) std::this_thread::yield();
  }
  float* open(Rank& r, CUresult expected = kCudaSuccess) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(r.cuda.ipc_open_handle(&memory, shared_->handle, kIpcLazyEnablePeerAccess), expected);
    return reinterpret_cast<float*>(memory);
  }
  void close(Rank& r, const float* memory) {
    EXPECT_EQ(r.cuda.ipc_close_handle(r.cuda.address(memory)), kCudaSuccess);
  }
  // x[0] + x[0] of memory.
  float twice(Rank& r, const float* memory) {
    auto* y = r.cuda.allocate<float>(1);
    EXPECT_EQ(r.cuda.launch("test_add", 1, 32, r.stream, 0, memory, memory, y, 1), kCudaSuccess);
    return r.cuda.download(y, 1, r.stream)[0];
  }

  Shared* shared_ = nullptr;
  int rounds_ = 0;
};

TEST_F(EmulatedPeerProcesses, ReadEachOthersMemory) {
  for (const std::string variant : {"checked", "quick"}) {
    shared_->step = rounds_ = 0;
    in_processes(
        2,
        [&](Rank& r) {
          ASSERT_TRUE(r.connect(2));
          if (r.rank == 1) {
            float* x = r.cuda.upload(part(0, 1000), r.stream);
            EXPECT_EQ(r.cuda.stream_synchronize(r.stream), 0);
            EXPECT_EQ(r.cuda.ipc_get_handle(&shared_->handle, r.cuda.address(x)), 0);
            meet();
            // Written later, and read behind an exchange.
            EXPECT_EQ(r.cuda.launch("test_add", 4, 256, r.stream, 0, x, x, x, 1000), 0);
            r.fence();
            r.fence();
            EXPECT_EQ(r.cuda.stream_synchronize(r.stream), 0);
            meet();
            EXPECT_EQ(r.cuda.mem_free(r.cuda.address(x)), 0);
          } else {
            meet();
            float* theirs = open(r);
            EXPECT_EQ(open(r), theirs);  // opened twice, closed twice
            r.fence();
            auto* y = r.cuda.allocate<float>(1000);
            EXPECT_EQ(r.cuda.launch("test_add", 4, 256, r.stream, 0, theirs, theirs, y, 1000), 0);
            r.fence();
            const auto sums = r.cuda.download(y, 1000, r.stream);
            for (size_t i = 0; i < 1000; ++i) EXPECT_EQ(sums[i], 4 * static_cast<float>(i + 1));
            close(r, theirs);
            close(r, theirs);
            meet();
          }
          r.end();
        },
        variant);
  }
}

TEST_F(EmulatedPeerProcesses, DoNotOpenTheirOwnMemory) {
  in_processes(
      1,
      [&](Rank& r) {
        float* x = r.cuda.upload(part(0, 10), r.stream);
        EXPECT_EQ(r.cuda.ipc_get_handle(&shared_->handle, r.cuda.address(x)), 0);
        open(r, kCudaErrorInvalidContext);
        r.cuda.expect_found("cuIpcOpenMemHandle: of memory of the same process");
        CUipcMemHandle inside;
        EXPECT_NE(r.cuda.ipc_get_handle(&inside, r.cuda.address(x + 1)), 0);
        r.cuda.expect_found("not the begin of memory of the current device");
        EXPECT_EQ(r.cuda.download(x, 10, r.stream), part(0, 10));
        EXPECT_NE(r.cuda.ipc_close_handle(r.cuda.address(x)), 0);
        r.cuda.expect_found("not memory that was opened");
      },
      "checked");
}

TEST_F(EmulatedPeerProcesses, DoNotUseWhatIsClosedOrFreed) {
  enum Use { kAfterClose, kFreedByTheOpener, kFreedTooEarly, kAfterFree, kOpenedAfterFree };
  for (const int use :
       {kAfterClose, kFreedByTheOpener, kFreedTooEarly, kAfterFree, kOpenedAfterFree}) {
    SCOPED_TRACE(use);
    shared_->step = rounds_ = 0;
    in_processes(
        2,
        [&](Rank& r) {
          if (r.rank == 1) {
            float* x = r.cuda.upload(part(0, 10), r.stream);
            EXPECT_EQ(r.cuda.stream_synchronize(r.stream), 0);
            EXPECT_EQ(r.cuda.ipc_get_handle(&shared_->handle, r.cuda.address(x)), 0);
            meet();
            meet();  // opened
            if (use != kAfterClose && use != kFreedByTheOpener) {
              EXPECT_EQ(r.cuda.mem_free(r.cuda.address(x)), 0);
              if (use != kOpenedAfterFree)
                r.cuda.expect_found("is freed while another process has it open");
            }
            meet();
            meet();  // used
            return;
          }
          meet();
          float* theirs = use == kOpenedAfterFree ? nullptr : open(r);
          if (theirs) {
            EXPECT_EQ(twice(r, theirs), 2);
          }
          meet();
          meet();
          if (use == kAfterClose) {
            close(r, theirs);
            r.cuda.launch("test_add", 1, 32, r.stream, 0, theirs, theirs, theirs, 1);
            r.cuda.stream_synchronize(r.stream);
            r.cuda.expect_found("which is freed");
          } else if (use == kFreedByTheOpener) {
            EXPECT_NE(r.cuda.mem_free(r.cuda.address(theirs)), 0);
            r.cuda.expect_found("not the address of an allocation");
          } else if (use == kAfterFree) {
            twice(r, theirs);
            r.cuda.expect_found("touches memory that the process that made it has freed");
          } else if (use == kOpenedAfterFree) {
            open(r, kCudaErrorInvalidHandle);
            r.cuda.expect_found("of memory that is not there any more");
          }
          meet();
        },
        "checked");
  }
}

}  // namespace
}  // namespace tessera::cuda
