// Capture into graphs by the rules of CUDA, and each rule broken.
#include <thread>

#include "tests/cuda/nccl_functions.h"

namespace tessera::cuda {
namespace {

struct Capture {
  explicit Capture(uint64_t seed = 1) : cuda("checked", seed) {
    x = cuda.upload(std::vector<float>(1000, 1.0f), stream);
    y = cuda.allocate<float>(1000);
    z = cuda.allocate<float>(1000);
    EXPECT_EQ(cuda.fill_bytes(cuda.address(z), 0, 4000, stream), 0);
    EXPECT_EQ(cuda.stream_synchronize(stream), 0);
  }
  void begin() { EXPECT_EQ(cuda.stream_begin_capture(stream, kStreamCaptureModeThreadLocal), 0); }
  CUresult end() { return cuda.stream_end_capture(stream, &graph); }
  void replay(int times) {
    ASSERT_EQ(cuda.graph_instantiate(&executable, graph, 0), 0);
    for (int n = 0; n < times; ++n) ASSERT_EQ(cuda.graph_launch(executable, stream), 0);
    ASSERT_EQ(cuda.stream_synchronize(stream), 0);
  }
  void add(CUstream on, const float* a, const float* b, float* c) {
    EXPECT_EQ(cuda.launch("test_add", 4, 256, on, 0, a, b, c, 1000), 0);
  }
  void order(CUstream before, CUstream behind) {
    const CUevent event = cuda.make_event();
    EXPECT_EQ(cuda.event_record(event, before), 0);
    EXPECT_EQ(cuda.stream_wait_event(behind, event, 0), 0);
  }

  EmulatedCuda cuda;
  CUstream stream = cuda.make_stream(), side = cuda.make_stream();
  float *x = nullptr, *y = nullptr, *z = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
};

TEST(EmulatedCapture, AGraphDoesItsWorkAtEachLaunchAndNotAtCapture) {
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    Capture c(seed);
    c.begin();
    c.add(c.stream, c.x, c.z, c.y);  // y = z + 1
    c.order(c.stream, c.side);
    c.add(c.side, c.y, c.x, c.z);  // z = y + 1
    c.order(c.side, c.stream);
    ASSERT_EQ(c.end(), 0);
    EXPECT_EQ(c.cuda.download(c.z, 1000, c.stream), std::vector<float>(1000, 0));
    c.replay(3);
    EXPECT_EQ(c.cuda.download(c.z, 1000, c.stream), std::vector<float>(1000, 6));
    EXPECT_EQ(c.cuda.graph_exec_destroy(c.executable), 0);
    EXPECT_EQ(c.cuda.graph_launch(c.executable, c.stream), kCudaErrorInvalidHandle);
    c.cuda.expect_found("there is no such graph");
  }
}

TEST(EmulatedCapture, AMissingOrderInAGraphIsFoundWhenItRuns) {
  Capture c;
  const CUevent start = c.cuda.make_event();
  c.begin();
  c.cuda.event_record(start, c.stream);
  c.cuda.stream_wait_event(c.side, start, 0);
  c.add(c.stream, c.x, c.x, c.y);
  c.add(c.side, c.y, c.x, c.z);  // not behind what writes y
  c.order(c.side, c.stream);
  ASSERT_EQ(c.end(), 0);
  c.replay(1);
  c.cuda.expect_found("order: ");
}

TEST(EmulatedCapture, WorkBesideAGraphIsOrderedByEventsToo) {
  for (const bool ordered : {true, false}) {
    Capture c;
    c.begin();
    c.add(c.stream, c.x, c.x, c.y);
    ASSERT_EQ(c.end(), 0);
    ASSERT_EQ(c.cuda.graph_instantiate(&c.executable, c.graph, 0), 0);
    ASSERT_EQ(c.cuda.graph_launch(c.executable, c.stream), 0);
    if (ordered) c.order(c.stream, c.side);
    c.add(c.side, c.y, c.y, c.z);
    c.cuda.stream_synchronize(c.side);
    c.cuda.stream_synchronize(c.stream);
    if (!ordered) c.cuda.expect_found("order: ");
  }
}

TEST(EmulatedCapture, AForkThatIsNotJoined) {
  Capture c;
  c.begin();
  c.order(c.stream, c.side);
  c.add(c.side, c.x, c.x, c.y);
  EXPECT_EQ(c.end(), kCudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(c.graph, nullptr);
}

TEST(EmulatedCapture, CallsThatBreakIt) {
  struct Rule {
    const char* words;
    void (*breaks)(Capture&);
  };
  static CUevent outside;
  const Rule rules[] = {
      {"cuMemAlloc is not allowed",
       [](Capture& c) {
         CUdeviceptr memory = 0;
         EXPECT_EQ(c.cuda.mem_alloc(&memory, 4), kCudaErrorStreamCaptureUnsupported);
       }},
      {"cuMemFree is not allowed",
       [](Capture& c) { EXPECT_NE(c.cuda.mem_free(c.cuda.address(c.y)), 0); }},
      {"cuStreamSynchronize is not allowed",
       [](Capture& c) { EXPECT_NE(c.cuda.stream_synchronize(c.stream), 0); }},
      {"cuEventSynchronize is not allowed",
       [](Capture& c) { EXPECT_NE(c.cuda.event_synchronize(outside), 0); }},
      {"cuEventQuery is not allowed",
       [](Capture& c) { EXPECT_NE(c.cuda.event_query(outside), 0); }},
      {"on the default stream is not allowed",
       [](Capture& c) { EXPECT_NE(c.cuda.fill_bytes(c.cuda.address(c.y), 0, 4, nullptr), 0); }},
      {"with memory of the host that is not pinned",
       [](Capture& c) {
         float value = 0;
         EXPECT_NE(c.cuda.copy_to_device(c.cuda.address(c.y), &value, 4, c.stream), 0);
       }},
      {"waits for an event from outside of the capture",
       [](Capture& c) { EXPECT_NE(c.cuda.stream_wait_event(c.stream, outside, 0), 0); }}};
  for (const Rule& rule : rules) {
    SCOPED_TRACE(rule.words);
    Capture c;
    outside = c.cuda.make_event();
    EXPECT_EQ(c.cuda.event_record(outside, c.side), 0);
    c.begin();
    c.add(c.stream, c.x, c.x, c.y);
    rule.breaks(c);
    EXPECT_EQ(c.end(), kCudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(c.graph, nullptr);
    c.cuda.expect_found(rule.words);
    // The stream is as before.
    c.add(c.stream, c.x, c.x, c.y);
    EXPECT_EQ(c.cuda.stream_synchronize(c.stream), 0);
  }
}

TEST(EmulatedCapture, EventsOfACaptureAreNoneOfTheHost) {
  Capture c;
  const CUevent event = c.cuda.make_event();
  c.begin();
  c.cuda.event_record(event, c.stream);
  ASSERT_EQ(c.end(), 0);
  EXPECT_NE(c.cuda.event_query(event), 0);
  c.cuda.expect_found("of an event that was recorded in a capture");
  EXPECT_NE(c.cuda.stream_wait_event(c.side, event, 0), 0);
  c.cuda.expect_found("of a capture that is over");
}

TEST(EmulatedCapture, ModesAndThreads) {
  Capture c;
  const auto allocate_elsewhere = [&] {
    CUresult result = 0;
    std::thread([&] {
      c.cuda.use_device(0);
      CUdeviceptr memory = 0;
      result = c.cuda.mem_alloc(&memory, 4);
    }).join();
    return result;
  };
  c.begin();
  EXPECT_EQ(allocate_elsewhere(), 0);
  EXPECT_EQ(c.end(), 0);
  EXPECT_EQ(c.cuda.stream_begin_capture(c.stream, kStreamCaptureModeGlobal), 0);
  EXPECT_EQ(allocate_elsewhere(), kCudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(c.end(), kCudaErrorStreamCaptureInvalidated);
  c.cuda.expect_found("cuMemAlloc is not allowed");
  c.begin();
  std::thread([&] {
    c.cuda.use_device(0);
    EXPECT_NE(c.end(), 0);
  }).join();
  c.cuda.expect_found("ended by another thread");
}

TEST(EmulatedCapture, PinnedMemoryIsReadWhenTheGraphRuns) {
  for (const bool too_early : {false, true}) {
    Capture c;
    auto* host = static_cast<float*>(c.cuda.pinned(4000));
    std::fill(host, host + 1000, 1.0f);
    c.begin();
    EXPECT_EQ(c.cuda.copy_to_device(c.cuda.address(c.y), host, 4000, c.stream), 0);
    ASSERT_EQ(c.end(), 0);
    std::fill(host, host + 1000, 2.0f);
    ASSERT_EQ(c.cuda.graph_instantiate(&c.executable, c.graph, 0), 0);
    ASSERT_EQ(c.cuda.graph_launch(c.executable, c.stream), 0);
    if (too_early) std::fill(host, host + 1000, 3.0f);
    EXPECT_EQ(c.cuda.download(c.y, 1, c.stream)[0], too_early ? 3.0f : 2.0f);
    if (too_early) c.cuda.expect_found("pinned memory was changed before its copy");
  }
}

TEST(EmulatedCapture, MemoryOfExchangesIsFreedBehindTheirGraph) {
  for (const bool mistake : {false, true}) {
    EmulatedCuda cuda;
    NcclFunctions nccl(cuda);
    ncclComm* comm = nullptr;
    ncclConfig config;
    ASSERT_EQ(nccl.comm_init_rank_config(&comm, 1, nccl.id, 0, &config), kNcclSuccess);
    const CUstream stream = cuda.make_stream();
    float* x = cuda.upload(std::vector<float>{1}, stream);
    EXPECT_EQ(cuda.stream_synchronize(stream), 0);
    EXPECT_EQ(cuda.stream_begin_capture(stream, kStreamCaptureModeThreadLocal), 0);
    EXPECT_EQ(nccl.all_reduce(x, x, 1, kNcclFloat32, kNcclSum, comm, stream), 0);
    CUgraph graph = nullptr;
    ASSERT_EQ(cuda.stream_end_capture(stream, &graph), 0);
    if (!mistake) {
      EXPECT_EQ(cuda.graph_destroy(graph), 0);
    }
    EXPECT_EQ(cuda.mem_free(cuda.address(x)), 0);
    if (mistake) cuda.expect_found("is freed while a graph has exchanges of it");
  }
}

}  // namespace
}  // namespace tessera::cuda
