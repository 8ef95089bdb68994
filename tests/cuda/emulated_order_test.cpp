// Mistakes with streams, events, graphs and memory of the host that are planted and have to be
// found; without them nothing is found.
#include <algorithm>
#include <thread>

#include "tests/cuda/emulated_cuda.h"

namespace tessera::cuda {
namespace {

constexpr uint64_t kOrders[] = {1, 2, 3, 17, 4711};
constexpr size_t kBytes = 4000;

// Two streams and three buffers of 1000 numbers, of which the first is written.
struct Stand {
  explicit Stand(uint64_t seed = 1) : cuda("checked", seed) {
    x = cuda.upload(std::vector<float>(1000, 1.0f), first);
    y = cuda.allocate<float>(1000);
    z = cuda.allocate<float>(1000);
    EXPECT_EQ(cuda.stream_synchronize(first), 0);
  }
  void add(CUstream stream, const float* a, const float* b, float* c) {
    EXPECT_EQ(cuda.launch("test_add", 4, 256, stream, 0, a, b, c, 1000), 0);
  }
  // What follows in `behind` comes behind what `before` holds.
  void order(CUstream before, CUstream behind) {
    const CUevent event = cuda.make_event();
    EXPECT_EQ(cuda.event_record(event, before), 0);
    EXPECT_EQ(cuda.stream_wait_event(behind, event, 0), 0);
  }
  void finish() {
    EXPECT_EQ(cuda.stream_synchronize(first), 0);
    EXPECT_EQ(cuda.stream_synchronize(second), 0);
  }

  EmulatedCuda cuda;
  CUstream first = cuda.make_stream(), second = cuda.make_stream();
  float *x = nullptr, *y = nullptr, *z = nullptr;
};

TEST(EmulatedOrder, EachOrderOfAPipelineThatIsLeftOutIsFound) {
  // Batches come on one stream, are worked on on another and leave on a third, with two buffers.
  constexpr int kBatches = 6;
  for (const uint64_t seed : kOrders) {
    for (int left_out = -1; left_out < 4; ++left_out) {
      SCOPED_TRACE(testing::Message() << "order " << left_out << ", seed " << seed);
      Stand w(seed);
      const CUstream up = w.first, compute = w.second, down = w.cuda.make_stream();
      float *in[2], *out[2];
      for (int n = 0; n < 2; ++n) {
        in[n] = w.cuda.allocate<float>(1000);
        out[n] = w.cuda.allocate<float>(1000);
      }
      auto* given = static_cast<float*>(w.cuda.pinned(kBatches * kBytes));
      auto* taken = static_cast<float*>(w.cuda.pinned(kBatches * kBytes));
      for (int n = 0; n < kBatches * 1000; ++n) given[n] = static_cast<float>(n);
      CUevent computed[kBatches], left[kBatches];
      for (int n = 0; n < kBatches; ++n) {
        computed[n] = w.cuda.make_event();
        left[n] = w.cuda.make_event();
        float *from = in[n % 2], *to = out[n % 2];
        if (n >= 2 && left_out != 0) w.cuda.stream_wait_event(up, computed[n - 2], 0);
        w.cuda.copy_to_device(w.cuda.address(from), given + n * 1000, kBytes, up);
        if (left_out != 1) w.order(up, compute);
        if (n >= 2 && left_out != 2) w.cuda.stream_wait_event(compute, left[n - 2], 0);
        w.add(compute, from, from, to);
        w.cuda.event_record(computed[n], compute);
        if (left_out != 3) w.order(compute, down);
        w.cuda.copy_to_host(taken + n * 1000, w.cuda.address(to), kBytes, down);
        w.cuda.event_record(left[n], down);
      }
      w.finish();
      w.cuda.stream_synchronize(down);
      if (left_out >= 0) {
        w.cuda.expect_found("order: ");
      } else {
        for (int n = 0; n < kBatches * 1000; ++n) ASSERT_EQ(taken[n], 2 * given[n]);
      }
    }
  }
}

TEST(EmulatedOrder, AnEventOrdersOnlyWhatWasThereWhenItWasRecorded) {
  for (const bool too_early : {false, true}) {
    Stand w;
    const CUevent event = w.cuda.make_event();
    if (too_early) w.cuda.event_record(event, w.first);
    w.add(w.first, w.x, w.x, w.y);
    if (!too_early) w.cuda.event_record(event, w.first);
    w.cuda.stream_wait_event(w.second, event, 0);
    w.add(w.second, w.y, w.y, w.z);
    w.finish();
    if (too_early) w.cuda.expect_found("order: ");
  }
}

TEST(EmulatedOrder, WaitingForAnEventThatWasNeverRecordedDoesNothing) {
  Stand w;
  EXPECT_EQ(w.cuda.stream_wait_event(w.second, w.cuda.make_event(), 0), 0);
  EXPECT_EQ(w.cuda.event_synchronize(w.cuda.make_event()), 0);
  EXPECT_EQ(w.cuda.findings(), 0);
  w.add(w.first, w.x, w.x, w.y);
  w.cuda.stream_wait_event(w.second, w.cuda.make_event(), 0);
  w.add(w.second, w.x, w.x, w.y);
  w.finish();
  w.cuda.expect_found("order: ");
}

TEST(EmulatedOrder, TheEmulationCanLeaveOutAWait) {
  for (const int left_out : {0, 1, 2}) {
    Stand w;
    w.cuda.leave_out_wait(left_out);
    w.add(w.first, w.x, w.x, w.y);
    w.order(w.first, w.second);
    w.add(w.second, w.y, w.y, w.z);
    w.order(w.second, w.first);
    w.add(w.first, w.z, w.z, w.y);
    w.finish();
    EXPECT_EQ(w.cuda.waits(), 2);
    if (left_out) w.cuda.expect_found("order: ");
  }
}

TEST(EmulatedOrder, WhatTheHostHasSeenDoneComesBefore) {
  Stand w;
  w.add(w.first, w.x, w.x, w.y);
  const CUevent event = w.cuda.make_event();
  w.cuda.event_record(event, w.first);
  while (w.cuda.event_query(event) == kCudaErrorNotReady) {
  }
  w.add(w.second, w.y, w.y, w.z);
  w.finish();
}

TEST(EmulatedOrder, StreamsWithoutOrderRunInDifferentOnes) {
  std::vector<float> seen;
  for (uint64_t seed = 1; seed < 20; ++seed) {
    Stand w(seed);
    w.cuda.fill_bytes(w.cuda.address(w.y), 0, kBytes, w.first);
    w.order(w.first, w.second);
    w.add(w.first, w.x, w.y, w.z);
    w.add(w.second, w.x, w.x, w.y);
    w.finish();
    seen.push_back(w.cuda.download(w.z, 1, w.first)[0]);
    w.cuda.expect_found("order: ");
  }
  EXPECT_NE(std::count(seen.begin(), seen.end(), 1.0f), 0);
  EXPECT_NE(std::count(seen.begin(), seen.end(), 3.0f), 0);
}

TEST(EmulatedOrder, MemoryOfTheHost) {
  for (const uint64_t seed : kOrders) {
    for (const int mistake : {0, 1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << "mistake " << mistake << ", seed " << seed);
      Stand w(seed);
      auto* host = static_cast<float*>(w.cuda.pinned(kBytes));
      for (int n = 0; n < 1000; ++n) host[n] = 5;
      w.cuda.copy_to_device(w.cuda.address(w.y), host, kBytes, w.first);
      if (mistake != 1) w.cuda.stream_synchronize(w.first);
      host[7] = 6;  // the next batch
      w.cuda.copy_to_host(host, w.cuda.address(w.x), kBytes, w.first);
      if (mistake == 2) host[8] = 9;
      if (mistake != 3) w.cuda.stream_synchronize(w.first);
      w.cuda.host_access(host, kBytes, 0);  // the host reads
      w.finish();
      if (mistake == 1) w.cuda.expect_found("pinned memory was changed before its copy");
      if (mistake == 2) w.cuda.expect_found("pinned memory was changed before a copy from");
      if (mistake == 3)
        w.cuda.expect_found("order: a read on the host reads what copy to the host");
    }
  }
}

TEST(EmulatedOrder, MemoryThatIsNotPinnedMayChangeAtOnce) {
  Stand w;
  std::vector<float> host(1000, 3);
  w.cuda.upload(w.y, host, w.first);
  host[0] = 4;
  EXPECT_EQ(w.cuda.download(w.y, 1000, w.first), std::vector<float>(1000, 3));
}

TEST(EmulatedOrder, MemoryIsFreedOnlyWhenNothingUsesIt) {
  for (const bool waits : {true, false}) {
    Stand w;
    w.add(w.first, w.x, w.x, w.y);
    if (waits) w.cuda.stream_synchronize(w.first);
    EXPECT_EQ(w.cuda.mem_free(w.cuda.address(w.y)), 0);
    if (!waits) w.cuda.expect_found("is freed while in use by test_add");
  }
}

TEST(EmulatedOrder, CopiesStayInsideOfLiveMemory) {
  Stand w;
  EXPECT_NE(w.cuda.copy_on_device(w.cuda.address(w.y + 1), w.cuda.address(w.x), kBytes, w.first),
            0);
  w.cuda.expect_found("past the end of device memory");
  float of_the_host = 0;
  EXPECT_NE(w.cuda.fill_bytes(w.cuda.address(&of_the_host), 0, 4, w.first), 0);
  w.cuda.expect_found("is in no memory of the device");
  EXPECT_EQ(w.cuda.copy_on_device(w.cuda.address(w.x + 1), w.cuda.address(w.x), 400, w.first), 0);
  w.cuda.expect_found("the ranges overlap");
  w.finish();
  w.cuda.download(w.z, 1000, w.first);
  w.cuda.expect_found("copy to the host: reads what nobody has written");
  EXPECT_EQ(w.cuda.mem_free(w.cuda.address(w.z)), 0);
  EXPECT_NE(w.cuda.fill_bytes(w.cuda.address(w.z), 0, 4, w.first), 0);
  w.cuda.expect_found("which is freed");
  EXPECT_NE(w.cuda.mem_free(w.cuda.address(w.z)), 0);
  w.cuda.expect_found("which is freed");
  EXPECT_NE(w.cuda.mem_free(w.cuda.address(w.x + 1)), 0);
  w.cuda.expect_found("not the address of an allocation");
}

TEST(EmulatedOrder, HandlesAndContexts) {
  EmulatedCuda cuda("checked", 1, 2);
  const CUstream stream = cuda.make_stream(), gone = cuda.make_stream();
  const CUevent event = cuda.make_event();
  EXPECT_EQ(cuda.stream_destroy(gone), 0);
  EXPECT_EQ(cuda.event_record(event, gone), kCudaErrorInvalidHandle);
  cuda.expect_found("there is no such stream");
  EXPECT_EQ(cuda.event_destroy(event), 0);
  EXPECT_EQ(cuda.event_record(event, stream), kCudaErrorInvalidHandle);
  cuda.expect_found("there is no such event");
  EXPECT_EQ(cuda.event_query(reinterpret_cast<CUevent>(stream)), kCudaErrorInvalidHandle);
  cuda.expect_found("there is no such event");
  auto* memory = cuda.allocate<float>(1);
  cuda.use_device(1);
  EXPECT_NE(cuda.fill_bytes(cuda.address(memory), 0, 4, stream), 0);
  cuda.expect_found("the stream is of another context than the current one");
  auto* own = cuda.allocate<float>(1);
  EXPECT_NE(cuda.copy_to_device(cuda.address(memory), own, 4, cuda.make_stream()), 0);
  cuda.expect_found("not in memory of the current device");
  std::thread([&] {
    size_t free = 0, total = 0;
    EXPECT_EQ(cuda.mem_get_info(&free, &total), kCudaErrorInvalidContext);
  }).join();
  cuda.expect_found("no context is current in this thread");
  EXPECT_EQ(cuda.primary_context_release(1), 0);
  cuda.expect_found("is not freed when the context ends");
}

TEST(EmulatedOrder, LaunchesAsNoDeviceTakesThem) {
  Stand w;
  const auto launch = [&](unsigned blocks, unsigned threads, unsigned shared) {
    return w.cuda.launch("test_add", blocks, threads, w.first, shared, w.x, w.x, w.y, 1000);
  };
  EXPECT_EQ(launch(1, 512, 0), kCudaErrorLaunchOutOfResources);
  w.cuda.expect_found("more threads than it is compiled for");
  EXPECT_EQ(launch(0, 32, 0), kCudaErrorInvalidValue);
  w.cuda.expect_found("a grid or block that no device takes");
  EXPECT_EQ(launch(1, 32, 100 << 10), kCudaErrorInvalidValue);
  w.cuda.expect_found("more shared memory than it is allowed");
  // What a kernel declares counts.
  EXPECT_EQ(w.cuda.launch("attention_dkv_bf16_64", 1, 128, w.first, 48 << 10),
            kCudaErrorInvalidValue);
  w.cuda.expect_found("more shared memory than it is allowed");
  CUfunction function = w.cuda.function("test_tiles");
  EXPECT_EQ(
      w.cuda.function_set_attribute(function, kFunctionAttributeMaxDynamicSharedSize, 228 << 10),
      kCudaErrorInvalidValue);
  CUmodule module = nullptr;
  EXPECT_EQ(w.cuda.module_load_data(&module, "any image"), 0);
  EXPECT_EQ(w.cuda.module_get_function(&function, module, "no_such_kernel"), kCudaErrorNotFound);
}

TEST(EmulatedOrder, FailuresThatTestsAskFor) {
  Stand w;  // has made three allocations
  w.cuda.fail_allocation(5);
  w.cuda.allocate<float>(1);
  CUdeviceptr memory = 0;
  EXPECT_EQ(w.cuda.mem_alloc(&memory, 16), kCudaErrorOutOfMemory);
  EXPECT_EQ(w.cuda.mem_alloc(&memory, 16), 0);
  EXPECT_EQ(w.cuda.mem_alloc(&memory, size_t{1} << 30), kCudaErrorOutOfMemory);
  w.cuda.fail_launch(2, kCudaErrorLaunchFailed);
  w.add(w.first, w.x, w.x, w.y);
  w.add(w.first, w.x, w.x, w.z);
  EXPECT_EQ(w.cuda.stream_synchronize(w.first), kCudaErrorLaunchFailed);
  EXPECT_EQ(w.cuda.mem_alloc(&memory, 16), kCudaErrorLaunchFailed);
}

}  // namespace
}  // namespace tessera::cuda
