// The double of NCCL: what ranks exchange, and calls that do not fit together.
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "tests/cuda/nccl_functions.h"

namespace tessera::cuda {
namespace {

struct Rank {
  EmulatedCuda& cuda;
  NcclFunctions& nccl;
  int rank;
  ncclComm* comm;
  CUstream stream;

  bool settle(ncclComm* of) const { return nccl.settle(of); }
};

// A thread and a device for each rank, connected.
void run_ranks(EmulatedCuda& cuda, int count, const std::function<void(Rank&)>& body) {
  NcclFunctions nccl(cuda);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      cuda.use_device(rank);
      Rank own{cuda, nccl, rank, nullptr, cuda.make_stream()};
      ncclConfig config;
      config.blocking = 0;
      const ncclResult begun = nccl.comm_init_rank_config(&own.comm, count, nccl.id, rank, &config);
      EXPECT_TRUE(begun == kNcclSuccess || begun == kNcclInProgress);
      ASSERT_TRUE(own.settle(own.comm));
      body(own);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(NcclDouble, Exchanges) {
  for (const uint64_t seed : {1, 2, 3}) {
    EmulatedCuda cuda("checked", seed, 3);
    run_ranks(cuda, 3, [](Rank& r) {
      float* x = r.cuda.upload(part(r.rank, 6), r.stream);
      auto* y = r.cuda.allocate<float>(18);
      // In place, to another buffer, and the parts of each rank.
      EXPECT_EQ(r.nccl.all_gather(x, y, 6, kNcclFloat32, r.comm, r.stream), 0);
      const auto gathered = r.cuda.download(y, 18, r.stream);
      for (size_t i = 0; i < 18; ++i)
        EXPECT_EQ(gathered[i], part(static_cast<int>(i / 6), 6)[i % 6]);
      EXPECT_EQ(r.nccl.reduce_scatter(x, y, 2, kNcclFloat32, kNcclSum, r.comm, r.stream), 0);
      const auto scattered = r.cuda.download(y, 2, r.stream);
      const auto first = static_cast<float>(r.rank * 2 + 1);
      EXPECT_EQ(scattered[0], 3 * first + 300);
      EXPECT_EQ(scattered[1], 3 * (first + 1) + 300);
      EXPECT_EQ(r.nccl.all_reduce(x, x, 6, kNcclFloat32, kNcclMax, r.comm, r.stream), 0);
      EXPECT_EQ(r.cuda.download(x, 6, r.stream), part(2, 6));
      // Everybody to its right neighbour, in one group.
      float* z = r.cuda.upload(part(r.rank, 4), r.stream);
      EXPECT_EQ(r.nccl.group_start(), 0);
      EXPECT_EQ(r.nccl.send(z, 4, kNcclFloat32, (r.rank + 1) % 3, r.comm, r.stream), 0);
      EXPECT_EQ(r.nccl.receive(y, 4, kNcclFloat32, (r.rank + 2) % 3, r.comm, r.stream), 0);
      EXPECT_EQ(r.nccl.group_end(), 0);
      EXPECT_EQ(r.cuda.download(y, 4, r.stream), part((r.rank + 2) % 3, 4));
    });
  }
}

TEST(NcclDouble, HalfPrecisionIsSummedInOrderAndRoundedOnce) {
  EmulatedCuda cuda("checked", 1, 3);
  run_ranks(cuda, 3, [](Rank& r) {
    // 256, 1 and 1: rounded in between to bf16, 256 + 1 would stay 256.
    const uint16_t bits = r.rank == 0 ? 0x4380 : 0x3f80;
    uint16_t* x = r.cuda.upload(std::vector<uint16_t>{bits}, r.stream);
    EXPECT_EQ(r.nccl.all_reduce(x, x, 1, kNcclBfloat16, kNcclSum, r.comm, r.stream), 0);
    EXPECT_EQ(r.cuda.download(x, 1, r.stream)[0], 0x4381);
  });
}

TEST(NcclDouble, SplitsByColorAndKey) {
  EmulatedCuda cuda("checked", 1, 4);
  run_ranks(cuda, 4, [](Rank& r) {
    ncclConfig config;
    config.blocking = 0;
    ncclComm* half = nullptr;
    // Ranks 3 and 1 in this order, and 2 and 0.
    EXPECT_EQ(r.nccl.comm_split(r.comm, r.rank % 2, -r.rank, &half, &config), kNcclSuccess);
    EXPECT_EQ(half, nullptr);  // until the one that is split is asked
    ASSERT_TRUE(r.settle(r.comm));
    float* x = r.cuda.upload(part(r.rank, 1), r.stream);
    auto* y = r.cuda.allocate<float>(2);
    EXPECT_EQ(r.nccl.all_gather(x, y, 1, kNcclFloat32, half, r.stream), 0);
    const auto result = r.cuda.download(y, 2, r.stream);
    EXPECT_EQ(result[0], 100.0f * static_cast<float>(r.rank % 2 + 2) + 1);
    EXPECT_EQ(result[1], 100.0f * static_cast<float>(r.rank % 2) + 1);
    EXPECT_EQ(r.nccl.comm_finalize(half), 0);
    EXPECT_EQ(r.nccl.comm_destroy(half), 0);
  });
}

TEST(NcclDouble, ExchangesAreCapturedIntoGraphs) {
  EmulatedCuda cuda("checked", 1, 2);
  run_ranks(cuda, 2, [](Rank& r) {
    float* x = r.cuda.upload(std::vector<float>{1}, r.stream);
    const CUgraphExec executable = r.cuda.captured(r.stream, [&] {
      EXPECT_EQ(r.nccl.all_reduce(x, x, 1, kNcclFloat32, kNcclSum, r.comm, r.stream), 0);
    });
    for (int n = 0; n < 5; ++n) ASSERT_EQ(r.cuda.graph_launch(executable, r.stream), 0);
    EXPECT_EQ(r.cuda.download(x, 1, r.stream)[0], 32.0f);
  });
}

TEST(NcclDouble, AGraphOfOneRankAlone) {
  EmulatedCuda cuda("checked", 1, 2);
  run_ranks(cuda, 2, [](Rank& r) {
    float* x = r.cuda.upload(std::vector<float>{1}, r.stream);
    r.cuda.stream_synchronize(r.stream);
    if (r.rank == 0) r.cuda.stream_begin_capture(r.stream, kStreamCaptureModeThreadLocal);
    EXPECT_EQ(r.nccl.all_reduce(x, x, 1, kNcclFloat32, kNcclSum, r.comm, r.stream), 0);
    if (r.rank == 0) {
      CUgraph graph = nullptr;
      CUgraphExec executable = nullptr;
      ASSERT_EQ(r.cuda.stream_end_capture(r.stream, &graph), 0);
      ASSERT_EQ(r.cuda.graph_instantiate(&executable, graph, 0), 0);
      ASSERT_EQ(r.cuda.graph_launch(executable, r.stream), 0);
    }
    EXPECT_EQ(r.cuda.download(x, 1, r.stream)[0], 2.0f);
  });
  cuda.expect_found("one rank has a call in a graph and another has not");
}

TEST(NcclDouble, ExchangesAreOrderedWithOtherStreamsByEventsOnly) {
  EmulatedCuda cuda("checked", 1, 2);
  run_ranks(cuda, 2, [](Rank& r) {
    float* x = r.cuda.upload(std::vector<float>(8, 1), r.stream);
    EXPECT_EQ(r.cuda.stream_synchronize(r.stream), 0);
    const CUstream side = r.cuda.make_stream();
    EXPECT_EQ(r.nccl.all_reduce(x, x, 8, kNcclFloat32, kNcclSum, r.comm, r.stream), 0);
    r.cuda.fill_bytes(r.cuda.address(x), 0, 32, side);
    EXPECT_EQ(r.cuda.stream_synchronize(side), 0);
    EXPECT_EQ(r.cuda.stream_synchronize(r.stream), 0);
  });
  cuda.expect_found("order: ");
}

TEST(NcclDouble, RanksThatCallDifferentThings) {
  for (const int mistake : {0, 1, 2, 3}) {
    EmulatedCuda cuda("checked", 1, 2);
    run_ranks(cuda, 2, [&](Rank& r) {
      const size_t count = mistake == 1 && r.rank == 1 ? 3 : 4;
      const int type = mistake == 2 && r.rank == 1 ? kNcclInt32 : kNcclFloat32;
      float* x = r.cuda.upload(part(r.rank, 8), r.stream);
      if (mistake == 3 && r.rank == 1) {
        r.nccl.reduce_scatter(x, x + 4, 4, type, kNcclSum, r.comm, r.stream);
      } else {
        r.nccl.all_reduce(x, x, count, type, kNcclSum, r.comm, r.stream);
      }
      if (mistake) {  // it never comes to an end
        r.nccl.comm_abort(r.comm);
        r.cuda.stream_synchronize(r.stream);
      } else {
        r.cuda.download(x, 4, r.stream);
      }
    });
    if (mistake == 3)
      cuda.take_findings();
    else if (mistake)
      cuda.expect_found("ranks call different things at the same place");
  }
}

TEST(NcclDouble, AMissingRankIsNeverThereAndAnAbortGoesOn) {
  EmulatedCuda cuda("checked", 1, 2);
  NcclFunctions nccl(cuda);
  ncclConfig config;
  config.blocking = 0;
  ncclComm* comm = nullptr;
  EXPECT_EQ(nccl.comm_init_rank_config(&comm, 2, nccl.id, 0, &config), kNcclInProgress);
  ncclResult error = 0;
  EXPECT_EQ(nccl.comm_get_async_error(comm, &error), 0);
  EXPECT_EQ(error, kNcclInProgress);
  const CUstream stream = cuda.make_stream();
  float* x = cuda.upload(part(0, 4), stream);
  EXPECT_NE(nccl.all_reduce(x, x, 4, kNcclFloat32, kNcclSum, comm, stream), 0);
  cuda.expect_found("on a communicator that is not connected yet");
  EXPECT_EQ(nccl.comm_abort(comm), 0);
  EXPECT_NE(nccl.comm_get_async_error(comm, &error), 0);
  cuda.expect_found("on a communicator that was aborted");
  // Connected, but the other rank never comes to the exchange.
  EmulatedCuda again("checked", 2, 2);
  run_ranks(again, 2, [](Rank& r) {
    float* y = r.cuda.upload(part(r.rank, 4), r.stream);
    EXPECT_EQ(r.cuda.stream_synchronize(r.stream), 0);
    if (r.rank == 1) return;
    EXPECT_EQ(r.nccl.all_reduce(y, y, 4, kNcclFloat32, kNcclSum, r.comm, r.stream), 0);
    const CUevent event = r.cuda.make_event();
    r.cuda.event_record(event, r.stream);
    for (int n = 0; n < 100; ++n) EXPECT_EQ(r.cuda.event_query(event), kCudaErrorNotReady);
    EXPECT_EQ(r.nccl.comm_abort(r.comm), 0);
    EXPECT_EQ(r.cuda.event_synchronize(event), 0);
    EXPECT_EQ(r.cuda.download(y, 4, r.stream), part(0, 4));
  });
}

constexpr std::chrono::milliseconds kLater{50};

TEST(NcclDouble, AnAbortWaitsForGraphsWithItsCalls) {
  EmulatedCuda cuda("checked", 1, 1);
  run_ranks(cuda, 1, [](Rank& r) {
    float* x = r.cuda.upload(std::vector<float>{1}, r.stream);
    const CUgraphExec executable = r.cuda.captured(r.stream, [&] {
      EXPECT_EQ(r.nccl.all_reduce(x, x, 1, kNcclFloat32, kNcclSum, r.comm, r.stream), 0);
    });
    EXPECT_EQ(r.cuda.graph_launch(executable, r.stream), 0);
    EXPECT_EQ(r.cuda.stream_synchronize(r.stream), 0);
    std::atomic<bool> destroyed = false;
    const std::jthread other([&] {
      r.cuda.use_device(0);
      std::this_thread::sleep_for(kLater);
      destroyed = true;
      EXPECT_EQ(r.cuda.graph_exec_destroy(executable), 0);
    });
    EXPECT_EQ(r.nccl.comm_abort(r.comm), 0);
    EXPECT_TRUE(destroyed);
  });
}

TEST(NcclDouble, AnAbortWaitsForWhatIsInFrontOfItsWork) {
  EmulatedCuda cuda("checked", 1, 2);
  run_ranks(cuda, 2, [](Rank& r) {
    ncclConfig config;
    config.blocking = 0;
    ncclComm* behind = nullptr;
    r.nccl.comm_split(r.comm, 0, r.rank, &behind, &config);
    ASSERT_TRUE(r.settle(r.comm));
    float* x = r.cuda.upload(std::vector<float>{1}, r.stream);
    r.cuda.stream_synchronize(r.stream);
    if (r.rank == 1) return;  // it never comes
    for (ncclComm* comm : {r.comm, behind})
      EXPECT_EQ(r.nccl.all_reduce(x, x, 1, kNcclFloat32, kNcclSum, comm, r.stream), 0);
    std::atomic<bool> aborts = false;
    const std::jthread other([&] {
      std::this_thread::sleep_for(kLater);
      aborts = true;
      EXPECT_EQ(r.nccl.comm_abort(r.comm), 0);
    });
    EXPECT_EQ(r.nccl.comm_abort(behind), 0);
    EXPECT_TRUE(aborts);
  });
}

// A part that begins too late, one whose end is not there, memory that is given back, and parts
// that nobody has written: as what a rank gives in sums that are taken in rank order.
TEST(NcclDouble, PartsThatAreNotThere) {
  for (const int mistake : {0, 1, 2, 3}) {
    EmulatedCuda cuda("checked", 1, 2);
    run_ranks(cuda, 2, [&](Rank& r) {
      float* x =
          mistake == 3 ? r.cuda.allocate<float>(8) : r.cuda.upload(part(r.rank, 8), r.stream);
      auto* y = r.cuda.allocate<float>(8);
      r.cuda.stream_synchronize(r.stream);
      if (mistake == 2 && r.rank == 0) {
        EXPECT_EQ(r.cuda.mem_free(r.cuda.address(x)), kCudaSuccess);
      }
      const float* from = x + (mistake == 1 && r.rank == 0 ? 1 : 0);
      r.nccl.group_start();
      for (int peer : {0, 1}) {
        r.nccl.send(from + 4 * peer, 4, kNcclFloat32, peer, r.comm, r.stream);
        r.nccl.receive(y + 4 * peer, 4, kNcclFloat32, peer, r.comm, r.stream);
      }
      r.nccl.group_end();
      r.cuda.stream_synchronize(r.stream);
    });
    if (mistake == 1) cuda.expect_found("past the end of");
    if (mistake == 2) cuda.expect_found("which is freed");
    if (mistake == 3) cuda.expect_found("sends what nobody has written");
  }
}

TEST(NcclDouble, CallsThatAreInProgress) {
  EmulatedCuda cuda("checked", 1, 2);
  decltype(&tessera_emulated_gpu_lagging_nccl) lag = nullptr;
  cuda.load("tessera_emulated_gpu_lagging_nccl", lag);
  lag(1);
  run_ranks(cuda, 2, [](Rank& r) {
    float* x = r.cuda.upload(part(0, 4), r.stream);
    const auto reduce = [&] {
      return r.nccl.all_reduce(x, x, 4, kNcclFloat32, kNcclSum, r.comm, r.stream);
    };
    EXPECT_EQ(reduce(), kNcclInProgress);
    EXPECT_NE(reduce(), kNcclSuccess);  // it is not asked for
    EXPECT_TRUE(r.settle(r.comm));
    EXPECT_EQ(reduce(), kNcclInProgress);
    EXPECT_TRUE(r.settle(r.comm));
    EXPECT_EQ(r.cuda.download(x, 1, r.stream)[0], 4.0f);
  });
  cuda.expect_found("while the call before it is in progress");
}

// Memory is registered once a communicator, given back before it is freed and before its
// communicator ends, and when no exchange uses it; in an exchange all ranks have it registered or
// none.
TEST(NcclDouble, RegisteredMemory) {
  enum Mistake {
    kNone,
    kTwice,
    kWithin,
    kOfAnother,
    kGone,
    kFreed,
    kDestroyed,
    kOneRank,
    kUnderWay
  };
  constexpr const char* kWords[] = {"",
                                    "is registered with this communicator already",
                                    "is registered with this communicator already",
                                    "the registration is of another communicator",
                                    "there is no such registration",
                                    "is freed while it is registered",
                                    "is destroyed while memory is registered with it",
                                    "one rank gives registered memory and another does not",
                                    "exchanges of the communicator are under way"};
  for (const int mistake :
       {kNone, kTwice, kWithin, kOfAnother, kGone, kFreed, kDestroyed, kOneRank, kUnderWay}) {
    SCOPED_TRACE(mistake);
    EmulatedCuda cuda("checked", 1, 2);
    run_ranks(cuda, 2, [&](Rank& r) {
      ncclConfig config;
      config.blocking = 0;
      ncclComm* other = nullptr;
      r.nccl.comm_split(r.comm, 0, r.rank, &other, &config);
      ASSERT_TRUE(r.settle(r.comm));
      float* x = r.cuda.upload(part(r.rank, 8), r.stream);
      r.cuda.stream_synchronize(r.stream);
      void *handle = nullptr, *second = nullptr;
      if (mistake != kOneRank || r.rank == 0) {
        EXPECT_EQ(r.nccl.comm_register(r.comm, x, 32, &handle), kNcclSuccess);
        EXPECT_NE(handle, nullptr);
      }
      // With another communicator it is another registration.
      EXPECT_EQ(r.nccl.comm_register(other, x, 32, &second), kNcclSuccess);
      if (mistake == kTwice) r.nccl.comm_register(r.comm, x, 32, &second);
      if (mistake == kWithin) r.nccl.comm_register(r.comm, x + 2, 8, &second);
      EXPECT_EQ(r.nccl.all_reduce(x, x, 4, kNcclFloat32, kNcclSum, r.comm, r.stream), 0);
      if (mistake == kUnderWay) r.nccl.comm_deregister(r.comm, handle);
      EXPECT_EQ(r.cuda.stream_synchronize(r.stream), 0);
      if (mistake == kOfAnother) r.nccl.comm_deregister(other, handle);
      if (mistake == kFreed) r.cuda.mem_free(r.cuda.address(x));
      if (mistake == kDestroyed) r.nccl.comm_destroy(r.comm);
      if (mistake == kGone || mistake == kNone) {
        EXPECT_EQ(r.nccl.comm_deregister(r.comm, handle), kNcclSuccess);
        EXPECT_EQ(r.nccl.comm_deregister(other, second), kNcclSuccess);
        EXPECT_EQ(r.nccl.comm_register(r.comm, x, 32, &second), kNcclSuccess);
        EXPECT_EQ(r.nccl.comm_deregister(r.comm, second), kNcclSuccess);
        EXPECT_EQ(r.cuda.mem_free(r.cuda.address(x)), kCudaSuccess);
      }
      if (mistake == kGone) r.nccl.comm_deregister(r.comm, handle);
    });
    if (mistake) cuda.expect_found(kWords[mistake]);
  }
}

TEST(NcclDouble, RegistrationsGoWithACommunicatorThatIsAborted) {
  EmulatedCuda cuda("checked", 1, 2);
  run_ranks(cuda, 2, [](Rank& r) {
    float* x = r.cuda.upload(part(r.rank, 8), r.stream);
    r.cuda.stream_synchronize(r.stream);
    void* handle = nullptr;
    EXPECT_EQ(r.nccl.comm_register(r.comm, x, 32, &handle), kNcclSuccess);
    EXPECT_EQ(r.nccl.comm_abort(r.comm), 0);
    EXPECT_EQ(r.cuda.mem_free(r.cuda.address(x)), kCudaSuccess);
    EXPECT_NE(r.nccl.comm_deregister(r.comm, handle), kNcclSuccess);
  });
  cuda.expect_found("on a communicator that was aborted");
}

TEST(NcclDouble, RegistersItsOwnDevicesMemoryOnly) {
  EmulatedCuda cuda("checked", 1, 2);
  run_ranks(cuda, 2, [](Rank& r) {
    void* handle = nullptr;
    EXPECT_NE(r.nccl.comm_register(r.comm, r.cuda.pinned(32), 32, &handle), kNcclSuccess);
    EXPECT_NE(r.nccl.comm_register(r.comm, r.cuda.allocate<float>(8), 64, &handle), kNcclSuccess);
  });
  cuda.expect_found("memory, communicator and the current device do not belong together");
}

TEST(NcclDouble, VersionsBefore219HaveNoRegistration) {
  EmulatedCuda cuda("checked", 1, 1);
  NcclFunctions nccl(cuda);
  void* library =
      dlopen((std::string(TESSERA_EMULATED_GPU) + "/checked/libnccl.so.2").c_str(), RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  for (const int number : {21805, 21900}) {
    setenv("TESSERA_EMULATED_NCCL_VERSION", std::to_string(number).c_str(), 1);
    int version = 0;
    EXPECT_EQ(nccl.get_version(&version), kNcclSuccess);
    EXPECT_EQ(version, number);
    for (const char* name : {"ncclCommRegister", "ncclCommDeregister"})
      EXPECT_EQ(dlsym(library, name) != nullptr, number == 21900) << name;
    EXPECT_NE(dlsym(library, "ncclAllReduce"), nullptr);
  }
  unsetenv("TESSERA_EMULATED_NCCL_VERSION");
}

TEST(NcclDouble, WhatBreaksItsRules) {
  EmulatedCuda cuda("checked", 1, 2);
  run_ranks(cuda, 2, [](Rank& r) {
    float* x = r.cuda.upload(part(r.rank, 8), r.stream);
    r.cuda.stream_synchronize(r.stream);
    if (r.rank == 1) return;
    EXPECT_NE(r.nccl.all_reduce(x, x + 1, 4, kNcclFloat32, kNcclSum, r.comm, r.stream), 0);
    r.cuda.expect_found("the buffers overlap but are not in place");
    EXPECT_NE(r.nccl.all_reduce(x, x, 4, 77, kNcclSum, r.comm, r.stream), 0);
    r.cuda.expect_found("an invalid type");
    EXPECT_NE(r.nccl.group_end(), 0);
    r.cuda.expect_found("a group is ended that was not begun");
    EXPECT_EQ(r.nccl.comm_finalize(r.comm), 0);
    EXPECT_NE(r.nccl.all_reduce(x, x, 4, kNcclFloat32, kNcclSum, r.comm, r.stream), 0);
    r.cuda.expect_found("on a communicator that is ended");
    EXPECT_EQ(r.nccl.comm_destroy(r.comm), 0);
    EXPECT_NE(r.nccl.comm_destroy(r.comm), 0);
    r.cuda.expect_found("there is no such communicator");
  });
}

}  // namespace
}  // namespace tessera::cuda
